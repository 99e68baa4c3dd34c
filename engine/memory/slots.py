"""How many experts fit into a number of extents: slots in one virtual range, by size of expert.

Experts of different layers may have different sizes. Layers of one size form a class; a class has
its own run of places in the experts' range, long enough for all its experts, and its slots lie
there side by side, across the borders of extents:

    range    | class 0 ............................ | class 1 ............... |
    places   [ extent | extent | extent |  hole ... | extent | extent | hole ]
    slots    | s0 | s1 | s2 | s3 | s4 | s5 |-         | t0 | t1 | t2 |-
                                            ^ lost to rounding: less than one slot a class

Only sizes live here. Which expert is in which slot is the expert cache's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SLOT_ALIGN_BYTES = 128
"""A slot begins at a cache line of the card."""


def aligned(n_bytes: int, step_bytes: int) -> int:
    """Round up to a multiple."""
    return -(-n_bytes // step_bytes) * step_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class SlotClass:
    """The slots for experts of one size.

    Attributes:
        layers: layers whose experts have this size.
        blob_bytes: size of an expert.
        stride_bytes: distance from slot to slot.
        n_experts: experts of all these layers; more slots than that are of no use.
        first_place: where the class begins in the experts' range.
        n_places: places it has there.
        n_extents: of them, how many have memory at start: the first ones.
        extent_bytes: size of a place.
    """

    layers: tuple[int, ...]
    blob_bytes: int
    stride_bytes: int
    n_experts: int
    first_place: int
    n_places: int
    n_extents: int
    extent_bytes: int

    @property
    def n_slots(self) -> int:
        """Whole slots in the extents it has at start."""
        return min(self.n_experts, self.n_extents * self.extent_bytes // self.stride_bytes)

    @property
    def lost_bytes(self) -> int:
        """Bytes of its extents that hold no expert."""
        return self.n_extents * self.extent_bytes - self.n_slots * self.blob_bytes

    def slot_offset(self, slot: int) -> int:
        """Return where a slot begins in the experts' range, in bytes."""
        return self.first_place * self.extent_bytes + slot * self.stride_bytes

    def slots_in(self, place: int) -> range:
        """Return the slots that lose bytes when the memory of a place (of the range) leaves."""
        start = (place - self.first_place) * self.extent_bytes
        first = start // self.stride_bytes
        stop = -(-(start + self.extent_bytes) // self.stride_bytes)
        return range(min(first, self.n_experts), min(stop, self.n_experts))


def divide_slots(
    blob_bytes: Sequence[int], *, n_experts: int, n_extents: int, extent_bytes: int
) -> tuple[SlotClass, ...]:
    """Divide extents among the sizes of experts, each size by its share of all experts' bytes.

    Args:
        blob_bytes: size of an expert, for each layer; 0 = a layer without experts.
        n_experts: experts of a layer.
        n_extents: extents to divide; what the experts do not need is left over.
        extent_bytes: size of an extent.

    Returns:
        One class a size, in the order of the first layer that has it.
    """
    sizes = list(dict.fromkeys(n_bytes for n_bytes in blob_bytes if n_bytes))
    layers = [tuple(i for i, n in enumerate(blob_bytes) if n == size) for size in sizes]
    strides = [aligned(size, SLOT_ALIGN_BYTES) for size in sizes]
    places = [
        -(-len(group) * n_experts * stride // extent_bytes)
        for group, stride in zip(layers, strides, strict=True)
    ]
    shares = _share(n_extents, places)
    firsts = [sum(places[:i]) for i in range(len(places))]
    return tuple(
        SlotClass(
            layers=layers[i],
            blob_bytes=sizes[i],
            stride_bytes=strides[i],
            n_experts=len(layers[i]) * n_experts,
            first_place=firsts[i],
            n_places=places[i],
            n_extents=shares[i],
            extent_bytes=extent_bytes,
        )
        for i in range(len(sizes))
    )


def _share(n_extents: int, wanted: Sequence[int]) -> list[int]:
    """Divide a number in proportion to wishes: whole parts first, then the largest remainders."""
    total = sum(wanted)
    if n_extents >= total:
        return list(wanted)
    parts = [n_extents * wish // total for wish in wanted]
    by_remainder = sorted(range(len(wanted)), key=lambda i: -(n_extents * wanted[i] % total))
    for i in by_remainder[: n_extents - sum(parts)]:
        parts[i] += 1
    return parts
