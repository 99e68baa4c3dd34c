"""Cuts of rows: they cover all rows and pieces once, fit shared memory, heed only the matrix."""

from __future__ import annotations

import ctypes

import pytest

from kernels.cuda.experts import ExpertArgs
from kernels.cuda.geometry import COPY_BYTES, MAX_STAGES, WARP, GeometryArgs, cut_rows
from kernels.cuda.matvec import CODED, MatvecArgs
from kernels.errors import KernelLaunchError
from kernels.quants import QuantType

SHAPES = [(10240, 2560), (12288, 2560), (2560, 6144), (2560, 10240), (640, 2560), (248320, 2560)]
SMALLEST_SHARED = 64 << 10
"""Bytes a block may have on the oldest supported cards."""


@pytest.mark.parametrize("quant", CODED, ids=lambda quant: quant.name)
@pytest.mark.parametrize("n_multiprocessors", [4, 46, 132])
def test_cuts_cover_rows_and_fit(quant: QuantType, n_multiprocessors: int) -> None:
    small = [(n_out, quant.n_weights * n) for n_out in (1, 33) for n in (1, 2, 3, 5, 20, 160)]
    for n_out, n_cols in [*SHAPES, *small]:
        for rows_a_lane, n_rows in ((4, 1), (2, 8)):
            cut = cut_rows(
                quant,
                n_out,
                n_cols,
                rows_a_lane=rows_a_lane,
                n_multiprocessors=n_multiprocessors,
            )
            lanes = 1 << cut.log2_lanes
            pieces = lanes * cut.n_repeats
            assert (cut.n_segments - 1) * pieces < n_cols // 32 <= cut.n_segments * pieces
            assert cut.n_segments == 1 or pieces % (quant.n_weights // 32) == 0
            assert cut.group_rows == rows_a_lane * WARP // lanes
            assert (cut.n_groups - 1) * cut.group_rows < n_out <= cut.n_groups * cut.group_rows
            assert 2 <= cut.n_stages <= MAX_STAGES
            assert cut.n_team in (1, 2, 4)
            assert cut.n_team <= cut.n_segments
            reach = cut.segment_bytes + (0 if quant.row_bytes(n_cols) % 16 == 0 else 15)
            assert cut.n_chunks * COPY_BYTES >= min(reach, cut.segment_bytes)
            assert cut.slot_bytes >= cut.n_chunks * COPY_BYTES + 4
            assert cut.shared_bytes(n_rows) <= SMALLEST_SHARED


@pytest.mark.parametrize("quant", CODED, ids=lambda quant: quant.name)
def test_the_order_of_additions_heeds_no_row_count(quant: QuantType) -> None:
    for n_out, n_cols in SHAPES:
        orders = set()
        for rows_a_lane in (1, 2, 4):
            cut = cut_rows(quant, n_out, n_cols, rows_a_lane=rows_a_lane, n_multiprocessors=132)
            orders.add((cut.log2_lanes, cut.n_repeats, cut.n_segments, cut.n_team))
        assert len(orders) == 1


def test_copies_cover_segments_that_start_anywhere() -> None:
    cut = cut_rows(QuantType.IQ2_XS, 100, 2560, rows_a_lane=4, n_multiprocessors=132)
    assert cut.segment_bytes == 6 * 74
    assert cut.n_chunks == 29
    for odd in range(16):
        assert -(-(odd + cut.segment_bytes) // 16) <= cut.n_chunks


def test_the_kernels_division_by_copies_is_exact() -> None:
    for quant in CODED:
        for n_out, n_cols in SHAPES:
            cut = cut_rows(quant, n_out, n_cols, rows_a_lane=4, n_multiprocessors=132)
            reciprocal = 65536 // cut.n_chunks + 1
            for c in range(cut.group_rows * cut.n_chunks):
                assert c * reciprocal >> 16 == c // cut.n_chunks


def test_odd_widths_are_refused() -> None:
    with pytest.raises(KernelLaunchError, match=r"multiple of 32 columns, .* \[4, 33\]"):
        cut_rows(QuantType.Q8_0, 4, 33, rows_a_lane=4, n_multiprocessors=132)


def test_arguments_lie_as_the_kernels_expect() -> None:
    assert ctypes.sizeof(GeometryArgs) == 32
    assert MatvecArgs.geometry.offset == 60
    assert ExpertArgs.geometry.offset == 108
