"""Address ranges that stay, and extents of physical memory that move between them.

A `VirtualRange` is reserved once, so that addresses inside it never change. Physical memory comes
in extents, each a handle of the driver, and is mapped into places of a range:

    place        0        1        2        3        4
    range   [ extent | extent |  hole  | extent |  hole  ]      all places are extent_bytes long

Every change registers its undo before the next one begins (`undo: ExitStack`), so a failure
half-way leaves what was there before. Who may have how much is `engine.memory.arena`'s business.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from engine.memory.vmm import Driver, Event, Handle


@dataclass(eq=False, slots=True)
class Extent:
    """A piece of physical memory of the card.

    Attributes:
        handle: the driver's name of it.
        n_bytes: its size.
        n_maps: addresses it lies behind now: 0 or 1, and 2 only inside a move.
    """

    handle: Handle
    n_bytes: int
    n_maps: int = 0


class VirtualRange:
    """Addresses reserved once, in places of one extent each.

    Attributes:
        address: of its first byte; never changes.
        n_places: how many extents it can hold.
        extent_bytes: size of a place.
    """

    def __init__(self, driver: Driver, *, n_places: int, extent_bytes: int) -> None:
        """Reserve the addresses.

        Args:
            driver: of the card.
            n_places: how many extents it will ever hold; 0 reserves nothing.
            extent_bytes: size of each.

        Raises:
            ValueError: extent_bytes is no multiple of the card's granularity.
            DriverError: the driver has no such addresses.
        """
        if extent_bytes <= 0 or extent_bytes % driver.granularity_bytes:
            raise ValueError(
                f"An extent of {extent_bytes} bytes cannot be mapped: this card maps multiples of "
                f"{driver.granularity_bytes} bytes."
            )
        self._driver = driver
        self.n_places = n_places
        self.extent_bytes = extent_bytes
        self._extents: list[Extent | None] = [None] * n_places
        self.address = driver.reserve(self.n_bytes) if n_places else 0
        self._is_open = n_places > 0

    @property
    def n_bytes(self) -> int:
        """Bytes of addresses."""
        return self.n_places * self.extent_bytes

    @property
    def n_mapped(self) -> int:
        """Places with memory behind them."""
        return self.n_places - self._extents.count(None)

    def extent(self, place: int) -> Extent | None:
        """Return what lies in a place; None = a hole."""
        return self._extents[place]

    def has_extent(self, place: int) -> bool:
        """Whether there is such a place, with memory."""
        return 0 <= place < self.n_places and self._extents[place] is not None

    def has_hole(self, place: int) -> bool:
        """Whether there is such a place, without memory."""
        return 0 <= place < self.n_places and self._extents[place] is None

    def place_address(self, place: int) -> int:
        """Return the first address of a place."""
        return self.address + place * self.extent_bytes

    def places_of(self, offset_bytes: int, n_bytes: int) -> range:
        """Return the places that a run of bytes touches."""
        if n_bytes <= 0:
            return range(0)
        return range(
            offset_bytes // self.extent_bytes, -(-(offset_bytes + n_bytes) // self.extent_bytes)
        )

    def mapped_places(self) -> list[int]:
        """Return the places with memory, in order."""
        return [place for place, extent in enumerate(self._extents) if extent is not None]

    def holes(self) -> list[int]:
        """Return the places without memory, in order."""
        return [place for place, extent in enumerate(self._extents) if extent is None]

    def map(self, places: Sequence[int], extents: Sequence[Extent], undo: ExitStack) -> None:
        """Put extents into holes and let the card use them.

        Access is set once for each run of neighbours, since it costs per call and not per byte.

        Args:
            places: holes, in ascending order.
            extents: one for each.
            undo: takes what unmaps them again.

        Raises:
            DriverError: the driver refused; unwind `undo`.
        """
        for place, extent in zip(places, extents, strict=True):
            self._map_one(place, extent)
            undo.callback(self._unmap_one, place)
        for run in runs(places):
            address = self.place_address(run.start)
            self._driver.set_access(address, len(run) * self.extent_bytes)

    def unmap(self, places: Sequence[int], undo: ExitStack) -> list[Extent]:
        """Take the extents out of places nobody uses any more.

        Args:
            places: mapped ones, in ascending order.
            undo: takes what maps the same extents again.

        Returns:
            The extents, with their bytes, in the order of `places`.

        Raises:
            DriverError: the driver refused; unwind `undo`.
        """
        taken = []
        for place in places:
            extent = self._unmap_one(place)
            undo.callback(self._restore_one, place, extent)
            taken.append(extent)
        return taken

    def close(self) -> None:
        """Give the addresses back, once nothing is mapped; a second call does nothing.

        Raises:
            DriverError: the driver refused; it may be tried again.
        """
        if self._is_open and not self.n_mapped:
            self._driver.free(self.address, self.n_bytes)
            self._is_open = False

    def _map_one(self, place: int, extent: Extent) -> None:
        assert self._extents[place] is None, f"place {place} is mapped already"
        assert extent.n_bytes == self.extent_bytes, "an extent of another size"
        self._driver.map(self.place_address(place), self.extent_bytes, extent.handle)
        self._extents[place] = extent
        extent.n_maps += 1

    def _unmap_one(self, place: int) -> Extent:
        extent = self._extents[place]
        assert extent is not None, f"place {place} is a hole"
        self._driver.unmap(self.place_address(place), self.extent_bytes)
        self._extents[place] = None
        extent.n_maps -= 1
        return extent

    def _restore_one(self, place: int, extent: Extent) -> None:
        self._map_one(place, extent)
        self._driver.set_access(self.place_address(place), self.extent_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Places of one range, for a move.

    Attributes:
        range: the range.
        places: of it, in ascending order.
    """

    range: VirtualRange
    places: Sequence[int]


def move(
    driver: Driver, source: Placement, target: Placement, *, after: Event | None, undo: ExitStack
) -> None:
    """Move extents from one range to another; their bytes come along.

    The new place is mapped before the old one is unmapped: the bytes have an address at every
    moment, what can fail for lack of memory fails first, and the card may still be busy with the
    old addresses meanwhile.

    Args:
        driver: of the card.
        source: mapped places.
        target: holes, as many.
        after: the event after which nobody uses the source; None = nobody does now.
        undo: takes what moves them back.

    Raises:
        DriverError: the driver refused; unwind `undo`.
    """
    extents = [source.range.extent(place) for place in source.places]
    target.range.map(target.places, [extent for extent in extents if extent is not None], undo)
    if after is not None:
        driver.wait(after)
    source.range.unmap(source.places, undo)


def runs(places: Iterable[int]) -> list[range]:
    """Group ascending numbers into runs of neighbours: 2 3 7 -> 2..3, 7..7."""
    grouped: list[range] = []
    for place in places:
        if grouped and grouped[-1].stop == place:
            grouped[-1] = range(grouped[-1].start, place + 1)
        else:
            grouped.append(range(place, place + 1))
    return grouped
