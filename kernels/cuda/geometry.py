"""How a product's rows are cut for the warps of a launch: pure arithmetic, no device.

The kernels' side of it is in `stream.cuh`. The cut depends on the matrix and the card, never on how
many rows of activations there are, so a row's result is the same bits in any company.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

from kernels.errors import KernelLaunchError
from kernels.quants import QuantType

PIECE = 32
"""Weights a lane takes at a time; activations that share a scale."""
WARP = 32
N_WARPS = 4
"""Warps of a thread block."""
NOMINAL_ROWS_A_LANE = 4
"""What cuts are computed for, whatever a kernel takes: so they are the same for all of them."""
COPY_BYTES = 16
MAX_STAGES = 8
MAX_TEAM = 4
STAGE_BYTES = 4096
"""A stage holds about so much of a warp's rows."""
RING_BYTES = 8192
"""So much of its rows a warp has in flight or at hand."""
_MAX_COPIES = 65536
"""Rows times the square of a row's copies, up to which the kernels' division is exact."""
WARPS_A_MULTIPROCESSOR = 12
"""Below that many, warps share groups of rows."""

TABLE_WORDS = {
    QuantType.IQ1_S: 2048,
    QuantType.IQ1_M: 2048,
    QuantType.IQ2_XXS: 256,
    QuantType.IQ2_XS: 512,
    QuantType.IQ2_S: 1024,
    QuantType.IQ3_XXS: 256,
    QuantType.IQ3_S: 512,
}
"""32-bit words of the look-up tables that kernels keep in shared memory."""


class GeometryArgs(ctypes.Structure):
    """`Geometry` of stream.cuh."""

    _fields_ = tuple(
        (name, ctypes.c_int)
        for name in (
            "log2_lanes",
            "n_repeats",
            "n_segments",
            "segment_bytes",
            "n_chunks",
            "slot_bytes",
            "n_stages",
            "n_team",
        )
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """What is free to choose.

    Attributes:
        n_lanes: lanes that share a row, a power of two from 4 to 32.
        n_repeats: pieces a lane takes of a row's segment; segments must be whole blocks.
        n_team: warps that share a group of rows: 1, 2 or 4.
        n_stages: segments in flight or at hand, 2 to 8; 0 takes what fits.
    """

    n_lanes: int
    n_repeats: int
    n_team: int
    n_stages: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Geometry:
    """A cut of the rows of one matrix.

    Attributes:
        log2_lanes: lanes that share a row, as a power of two.
        n_repeats: pieces a lane takes of a row's segment.
        n_segments: segments of a row.
        segment_bytes: bytes of a row's segment; the last one may be shorter.
        n_chunks: 16-byte copies that cover any segment.
        n_stages: segments in flight or at hand, 2 to 8.
        n_team: warps that share a group of rows.
        group_rows: rows of a group.
        n_groups: groups of the matrix.
        table_words: of the format's look-up table.
    """

    log2_lanes: int
    n_repeats: int
    n_segments: int
    segment_bytes: int
    n_chunks: int
    n_stages: int
    n_team: int
    group_rows: int
    n_groups: int
    table_words: int

    @property
    def slot_bytes(self) -> int:
        """Bytes of a row's place in a stage; decoders may look 4 bytes past a block."""
        return self.n_chunks * COPY_BYTES + COPY_BYTES

    @property
    def args(self) -> GeometryArgs:
        """The kernels' parameter."""
        return GeometryArgs(
            self.log2_lanes,
            self.n_repeats,
            self.n_segments,
            self.segment_bytes,
            self.n_chunks,
            self.slot_bytes,
            self.n_stages,
            self.n_team,
        )

    @property
    def n_blocks(self) -> int:
        """Thread blocks that give every team one group."""
        n_teams = N_WARPS // self.n_team
        return divide_up(self.n_groups, n_teams)

    def shared_bytes(self, n_activation_rows: int) -> int:
        """Return the shared memory of a thread block."""
        ring = N_WARPS * self.n_stages * self.group_rows * self.slot_bytes
        sums = N_WARPS * self.group_rows * n_activation_rows * 4 if self.n_team > 1 else 0
        return ring + self.table_words * 4 + sums


def count_lanes(n_pieces: int) -> int:
    """Choose how many lanes share a row: many, but hardly any idle.

    Rows are cut at whole blocks, so a lane count below a block's pieces takes several repeats.
    """
    best, best_waste = 4, 0.0
    for n_lanes in (32, 16, 8, 4):
        waste = divide_up(n_pieces, n_lanes) * n_lanes / n_pieces
        if waste <= 1.05:
            return n_lanes
        if not best_waste or waste < best_waste - 0.01:
            best, best_waste = n_lanes, waste
    return best


@cache
def cut_rows(
    quant: QuantType,
    n_out: int,
    n_cols: int,
    *,
    rows_a_lane: int,
    n_multiprocessors: int,
    n_products: int = 1,
    is_aligned: bool = True,
    n_steps_factor: int = 1,
) -> Geometry:
    """Choose a cut.

    Args:
        quant: format of the matrix.
        n_out: its rows.
        n_cols: its columns, a multiple of 32.
        rows_a_lane: rows that a lane multiplies side by side (J of the kernels).
        n_multiprocessors: of the card.
        n_products: matrices of the launch that are not cut between teams (experts side by side).
        is_aligned: whether the matrix starts at a multiple of 16 bytes.
        n_steps_factor: matrices whose products add up in one row of the result.

    Raises:
        KernelLaunchError: rows of so many columns cannot be cut.
    """
    if n_cols <= 0 or n_cols % PIECE or n_out <= 0:
        raise KernelLaunchError(
            f"products of {quant.name} want at least one row and a multiple of {PIECE} columns, "
            f"but the matrix is [{n_out}, {n_cols}]."
        )
    n_pieces = n_cols // PIECE
    block_pieces = quant.n_weights // PIECE
    n_lanes = count_lanes(n_pieces)
    nominal_rows = NOMINAL_ROWS_A_LANE * WARP // n_lanes
    piece_bytes = quant.n_bytes / block_pieces
    a_lane = divide_up(n_pieces, n_lanes)
    step = max(1, block_pieces // n_lanes)
    fitting = int(STAGE_BYTES / (nominal_rows * n_lanes * piece_bytes))
    n_repeats = max(step, min(a_lane, max(1, fitting)) // step * step)
    # The same number of segments with less of a rest in the last one.
    n_repeats = divide_up(divide_up(a_lane, divide_up(a_lane, n_repeats)), step) * step
    n_segments = divide_up(n_pieces, n_lanes * n_repeats)
    nominal_groups = divide_up(n_out, nominal_rows) * n_products
    n_team = 1
    while (
        n_team * 2 <= min(MAX_TEAM, n_segments * n_steps_factor)
        and nominal_groups * n_team < n_multiprocessors * WARPS_A_MULTIPROCESSOR
    ):
        n_team *= 2
    cut = Cut(n_lanes=n_lanes, n_repeats=n_repeats, n_team=n_team)
    return lay_out(quant, n_out, n_cols, cut, rows_a_lane=rows_a_lane, is_aligned=is_aligned)


def lay_out(
    quant: QuantType,
    n_out: int,
    n_cols: int,
    cut: Cut,
    *,
    rows_a_lane: int,
    is_aligned: bool = True,
) -> Geometry:
    """Work out a cut's bytes.

    Raises:
        KernelLaunchError: a segment is too long to copy.
    """
    n_pieces = n_cols // PIECE
    segment_pieces = min(cut.n_lanes * cut.n_repeats, n_pieces)
    segment_bytes = segment_pieces // (quant.n_weights // PIECE) * quant.n_bytes
    is_even = (
        is_aligned and quant.row_bytes(n_cols) % COPY_BYTES == 0 and segment_bytes % COPY_BYTES == 0
    )
    n_chunks = divide_up(segment_bytes + (0 if is_even else COPY_BYTES - 1), COPY_BYTES)
    group_rows = rows_a_lane * WARP // cut.n_lanes
    if group_rows * n_chunks * n_chunks >= _MAX_COPIES:
        raise KernelLaunchError(
            f"a row segment of {n_chunks * COPY_BYTES} bytes of {quant.name} is too long to copy."
        )
    stage_bytes = group_rows * (n_chunks + 1) * COPY_BYTES
    return Geometry(
        log2_lanes=cut.n_lanes.bit_length() - 1,
        n_repeats=cut.n_repeats,
        n_segments=divide_up(n_pieces, cut.n_lanes * cut.n_repeats),
        segment_bytes=segment_bytes,
        n_chunks=n_chunks,
        n_stages=cut.n_stages or max(2, min(MAX_STAGES, RING_BYTES // stage_bytes)),
        n_team=cut.n_team,
        group_rows=group_rows,
        n_groups=divide_up(n_out, group_rows),
        table_words=TABLE_WORDS.get(quant, 0),
    )


def divide_up(value: int, unit: int) -> int:
    """Return how many units cover a value."""
    return -(-value // unit)
