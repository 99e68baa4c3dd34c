"""Launches experts.cu: the routed experts of a layer that are on the card.

Which experts are there, and where, is read from tables on the device at the time of the launch; who
fills them is the expert cache's matter. What the ops mean is in `kernels.reference.experts`.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from kernels.cuda.compiler import Unit
from kernels.cuda.geometry import N_WARPS, WARP, Geometry, GeometryArgs, cut_rows
from kernels.cuda.matvec import CODED
from kernels.cuda.module import KernelSet
from kernels.cuda.shapes import (
    PIECE,
    Activations,
    Output,
    Rows,
    require_equal,
    require_multiple,
    require_some,
)
from kernels.errors import UnsupportedQuantError
from kernels.quants import QuantType

STEM = "experts"
MAX_USED = 32
"""Experts of a token."""
_GATE_UP_ROWS = 4
_DOWN_ROWS = 2


class ExpertArgs(ctypes.Structure):
    """`ExpertArgs` of experts.cu."""

    _fields_ = (
        ("y", ctypes.c_void_p),
        ("h", ctypes.c_void_p),
        ("hidden", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("expert_ids", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("slot_of", ctypes.c_void_p),
        ("addresses", ctypes.c_void_p),
        ("counters", ctypes.c_void_p),
        ("up_offset", ctypes.c_longlong),
        ("down_offset", ctypes.c_longlong),
        ("n_used", ctypes.c_int),
        ("d_model", ctypes.c_int),
        ("d_ff", ctypes.c_int),
        ("row_bytes", ctypes.c_int),
        ("is_added", ctypes.c_int),
        ("geometry", GeometryArgs),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertShape:
    """An expert of one layer as it lies in a slot: gate rows, up rows, down rows.

    Attributes:
        gate_up: format of the gate and up rows.
        down: format of the down rows.
        d_model: columns of gate and up, rows of down.
        d_ff: rows of gate and up, columns of down; a multiple of 32.
        up_offset: bytes from the slot's start to the up rows.
        down_offset: the same to the down rows.
    """

    gate_up: QuantType
    down: QuantType
    d_model: int
    d_ff: int
    up_offset: int
    down_offset: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Routing:
    """Which experts each token uses and where they are: addresses of tables on the device.

    Attributes:
        n_tokens: rows.
        n_used: experts of a token.
        expert_ids: i32[n_tokens, n_used].
        weights: f32[n_tokens, n_used].
        slot_of: i32[n_experts] of this layer, -1 where an expert is not on the card.
        slot_addresses: u64[n_slots], multiples of 16.
    """

    n_tokens: int
    n_used: int
    expert_ids: int
    weights: int
    slot_of: int
    slot_addresses: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertScratch:
    """Memory between the two launches.

    Attributes:
        h: f32[n_tokens * n_used, d_ff].
        hidden: activations [n_tokens * n_used, d_ff].
        counters: address of u32[n_tokens * n_used, d_ff / 32]; zero before and after a launch.
    """

    h: Rows
    hidden: Activations
    counters: int


def units(gate_up: QuantType, down: QuantType) -> tuple[Unit, ...]:
    """Return what to compile for experts of two formats.

    Raises:
        UnsupportedQuantError: one is not multiplied as integers.
    """
    return (Unit(STEM, (_name("gate_up", gate_up),)), Unit(STEM, (_name("down", down),)))


def experts_gate_up(
    kernels: KernelSet,
    stream: int,
    *,
    shape: ExpertShape,
    routing: Routing,
    x: Activations,
    scratch: ExpertScratch,
    geometry: Geometry | None = None,
) -> None:
    """Compute silu(gate x) * (up x) of every token's experts on the card, and its codes.

    Args:
        kernels: of the card.
        stream: handle of the stream.
        shape: of the layer's experts.
        routing: the tokens' experts.
        x: the tokens' activations.
        scratch: takes the result; rows of experts not on the card are left alone.
        geometry: a cut of one's own, for measurements.

    Raises:
        KernelLaunchError: shapes or alignment do not fit.
        UnsupportedQuantError: the format is not multiplied as integers.

    Shapes:
        x: [n_tokens, d_model]; scratch.hidden: [n_tokens * n_used, d_ff].
    """
    op = "experts_gate_up"
    n_pairs = _check(op, shape, routing, scratch)
    require_equal(op, n_tokens=(routing.n_tokens, x.n_rows), d_model=(shape.d_model, x.n_cols))
    require_equal(op, n_planes=(1, x.n_planes))
    row_bytes = shape.gate_up.row_bytes(shape.d_model)
    cut = geometry or cut_rows(
        shape.gate_up,
        2 * shape.d_ff,
        shape.d_model,
        rows_a_lane=_GATE_UP_ROWS,
        n_multiprocessors=kernels.limits.n_multiprocessors,
        n_products=n_pairs,
        is_aligned=shape.up_offset % 16 == 0,
    )
    kernel = kernels.kernel(STEM, _name("gate_up", shape.gate_up))
    args = ExpertArgs(
        h=scratch.h.address,
        hidden=scratch.hidden.address,
        x=x.address,
        expert_ids=routing.expert_ids,
        slot_of=routing.slot_of,
        addresses=routing.slot_addresses,
        counters=scratch.counters,
        up_offset=shape.up_offset,
        n_used=routing.n_used,
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        row_bytes=row_bytes,
        geometry=cut.args,
    )
    grid = (cut.n_blocks, n_pairs, 1)
    kernel.launch(stream, grid, (N_WARPS * WARP, 1, 1), cut.shared_bytes(1), (args,))


def experts_down(
    kernels: KernelSet,
    stream: int,
    *,
    shape: ExpertShape,
    routing: Routing,
    scratch: ExpertScratch,
    y: Output,
    geometry: Geometry | None = None,
) -> None:
    """Add up the weighted down products of every token's experts on the card.

    Args:
        kernels: of the card.
        stream: handle of the stream.
        shape: of the layer's experts.
        routing: the tokens' experts.
        scratch: what `experts_gate_up` made.
        y: the sums; a token without an expert on the card gets zeros (or keeps what is there).
        geometry: a cut of one's own, for measurements.

    Raises:
        KernelLaunchError: shapes or alignment do not fit.
        UnsupportedQuantError: the format is not multiplied as integers.

    Shapes:
        y: f32[n_tokens, d_model].
    """
    op = "experts_down"
    _check(op, shape, routing, scratch)
    require_equal(op, n_tokens=(routing.n_tokens, y.n_rows), d_model=(shape.d_model, y.n_cols))
    require_equal(op, bias=(0, y.bias))
    cut = geometry or cut_rows(
        shape.down,
        shape.d_model,
        shape.d_ff,
        rows_a_lane=_DOWN_ROWS,
        n_multiprocessors=kernels.limits.n_multiprocessors,
        n_products=routing.n_tokens,
        is_aligned=shape.down_offset % 16 == 0,
        n_steps_factor=routing.n_used,
    )
    kernel = kernels.kernel(STEM, _name("down", shape.down))
    args = ExpertArgs(
        y=y.address,
        hidden=scratch.hidden.address,
        expert_ids=routing.expert_ids,
        weights=routing.weights,
        slot_of=routing.slot_of,
        addresses=routing.slot_addresses,
        down_offset=shape.down_offset,
        n_used=routing.n_used,
        d_model=shape.d_model,
        d_ff=shape.d_ff,
        row_bytes=shape.down.row_bytes(shape.d_ff),
        is_added=y.is_added,
        geometry=cut.args,
    )
    grid = (cut.n_blocks, routing.n_tokens, 1)
    kernel.launch(stream, grid, (N_WARPS * WARP, 1, 1), cut.shared_bytes(1), (args,))


def _check(op: str, shape: ExpertShape, routing: Routing, scratch: ExpertScratch) -> int:
    """Check what both launches share; return the number of (token, expert) pairs."""
    n_pairs = routing.n_tokens * routing.n_used
    require_some(op, n_used=(routing.n_used, MAX_USED), n_tokens=(routing.n_tokens, 65535))
    require_some(op, n_pairs=(n_pairs, 65535))
    require_multiple(op, d_ff=(shape.d_ff, PIECE), hidden_address=(scratch.hidden.address, 64))
    require_equal(
        op,
        h_rows=(n_pairs, scratch.h.n_rows),
        h_cols=(shape.d_ff, scratch.h.n_cols),
        hidden_rows=(n_pairs, scratch.hidden.n_rows),
        hidden_cols=(shape.d_ff, scratch.hidden.n_cols),
        hidden_planes=(1, scratch.hidden.n_planes),
    )
    return n_pairs


def _name(part: str, quant: QuantType) -> str:
    if quant not in CODED:
        raise UnsupportedQuantError(
            f"experts in {quant.name} are not multiplied on the card.", quant_id=int(quant)
        )
    rows_a_lane = _GATE_UP_ROWS if part == "gate_up" else _DOWN_ROWS
    return f"experts_{part}<{int(quant)}, {rows_a_lane}>"
