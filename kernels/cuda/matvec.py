"""Launches matvec.cu: a matrix in any weight format times 1 to 8 rows.

Quantised matrices take activations from `quantize_activations`, float ones take f32 rows. What the
products mean is in `kernels.reference.activations`.
"""

from __future__ import annotations

import ctypes

from kernels.cuda.compiler import Unit
from kernels.cuda.geometry import N_WARPS, WARP, Geometry, GeometryArgs, cut_rows
from kernels.cuda.module import KernelSet
from kernels.cuda.shapes import (
    ALIGNMENT,
    Activations,
    Matrix,
    Output,
    Rows,
    require_equal,
    require_multiple,
    require_some,
)
from kernels.errors import UnsupportedQuantError
from kernels.quants import QuantType

STEM = "matvec"
MAX_ROWS = 8
ROW_COUNTS = (1, 2, 4, 8)
"""Rows of activations that kernels are made for; other counts take the next larger one."""
ROWS_A_LANE = {1: 4, 2: 2, 4: 2, 8: 2}
"""Rows of the matrix that a lane takes side by side, by rows of activations."""
FLOATS = (QuantType.F32, QuantType.F16, QuantType.BF16)
CODED = (
    QuantType.Q4_0,
    QuantType.Q4_1,
    QuantType.Q5_0,
    QuantType.Q5_1,
    QuantType.Q8_0,
    QuantType.Q2_K,
    QuantType.Q3_K,
    QuantType.Q4_K,
    QuantType.Q5_K,
    QuantType.Q6_K,
    QuantType.IQ1_S,
    QuantType.IQ1_M,
    QuantType.IQ2_XXS,
    QuantType.IQ2_XS,
    QuantType.IQ2_S,
    QuantType.IQ3_XXS,
    QuantType.IQ3_S,
    QuantType.IQ4_NL,
    QuantType.IQ4_XS,
    QuantType.MXFP4,
    QuantType.Q2_0,
)
"""Formats that are multiplied as integers."""

_FEW_ROWS = 2048
"""Float matrices with fewer rows give each warp one row at a time, to keep the card busy."""
_WARPS_A_MULTIPROCESSOR = 16


class MatvecArgs(ctypes.Structure):
    """`MatvecArgs` of matvec.cu."""

    _fields_ = (
        ("y", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("n_rows", ctypes.c_int),
        ("n_out", ctypes.c_int),
        ("n_cols", ctypes.c_int),
        ("row_bytes", ctypes.c_int),
        ("y_stride", ctypes.c_int),
        ("is_added", ctypes.c_int),
        ("n_planes", ctypes.c_int),
        ("geometry", GeometryArgs),
    )


def units(quant: QuantType) -> tuple[Unit, ...]:
    """Return what to compile for a format.

    Raises:
        UnsupportedQuantError: matrices of the format cannot be multiplied here.
    """
    if quant in FLOATS:
        names = [_float_name(quant, n, j) for n in ROW_COUNTS for j in _float_rows_a_lane(n)]
    else:
        names = [_name(quant, n) for n in ROW_COUNTS]
    return (Unit(STEM, tuple(names)),)


def matvec(
    kernels: KernelSet,
    stream: int,
    *,
    weight: Matrix,
    x: Activations,
    y: Output,
    geometry: Geometry | None = None,
) -> None:
    """Multiply a quantised matrix by rows of activations.

    Args:
        kernels: of the card.
        stream: handle of the stream.
        weight: the matrix.
        x: the activations; with two planes at most 4 rows.
        y: the result.
        geometry: a cut of one's own, for measurements.

    Raises:
        KernelLaunchError: shapes or alignment do not fit.
        UnsupportedQuantError: the format cannot be multiplied here.

    Shapes:
        weight: [n_out, n_cols]; x: [n_rows, n_cols]; y: f32[n_rows, n_out].
    """
    require_equal(STEM, n_cols=(weight.n_cols, x.n_cols), n_out=(weight.n_out, y.n_cols))
    require_equal(STEM, n_rows=(x.n_rows, y.n_rows))
    require_some(STEM, n_planes=(x.n_planes, 2), n_rows=(x.n_rows, MAX_ROWS // x.n_planes))
    require_multiple(STEM, weight_address=(weight.address, ALIGNMENT), x_address=(x.address, 64))
    n = next(count for count in ROW_COUNTS if count >= x.n_rows * x.n_planes)
    cut = geometry or cut_rows(
        weight.quant,
        weight.n_out,
        weight.n_cols,
        rows_a_lane=ROWS_A_LANE[n],
        n_multiprocessors=kernels.limits.n_multiprocessors,
    )
    kernel = kernels.kernel(STEM, _name(weight.quant, n))
    shared = cut.shared_bytes(n)
    n_blocks = min(cut.n_blocks, kernels.resident_blocks(kernel, N_WARPS * WARP, shared))
    args = MatvecArgs(
        y.address,
        weight.address,
        x.address,
        y.bias,
        x.n_rows,
        weight.n_out,
        weight.n_cols,
        weight.row_bytes,
        y.n_cols,
        y.is_added,
        x.n_planes,
        cut.args,
    )
    kernel.launch(stream, (n_blocks, 1, 1), (N_WARPS * WARP, 1, 1), shared, (args,))


def matvec_float(kernels: KernelSet, stream: int, *, weight: Matrix, x: Rows, y: Output) -> None:
    """Multiply a float matrix by f32 rows.

    Args:
        kernels: of the card.
        stream: handle of the stream.
        weight: the matrix, F32, F16 or BF16.
        x: the rows.
        y: the result.

    Raises:
        KernelLaunchError: shapes or alignment do not fit.
        UnsupportedQuantError: the format is no float.

    Shapes:
        weight: [n_out, n_cols]; x: f32[n_rows, n_cols]; y: f32[n_rows, n_out].
    """
    op = "matvec_float"
    require_equal(op, n_cols=(weight.n_cols, x.n_cols), n_out=(weight.n_out, y.n_cols))
    require_equal(op, n_rows=(x.n_rows, y.n_rows))
    require_some(op, n_rows=(x.n_rows, MAX_ROWS))
    require_multiple(op, weight_address=(weight.address, 16), x_address=(x.address, 16))
    n = next(count for count in ROW_COUNTS if count >= x.n_rows)
    n_team, rows_a_lane = _float_cut(weight, n, kernels.limits.n_multiprocessors)
    n_warps = max(N_WARPS, n_team)
    kernel = kernels.kernel(STEM, _float_name(weight.quant, n, rows_a_lane))
    args = MatvecArgs(
        y.address,
        weight.address,
        x.address,
        y.bias,
        x.n_rows,
        weight.n_out,
        weight.n_cols,
        weight.row_bytes,
        y.n_cols,
        y.is_added,
        1,
        GeometryArgs(n_team=n_team),
    )
    n_blocks = -(-weight.n_out // (n_warps // n_team * rows_a_lane))
    shared = n_warps * rows_a_lane * n * 4
    kernel.launch(stream, (n_blocks, 1, 1), (n_warps * WARP, 1, 1), shared, (args,))


def _float_cut(weight: Matrix, n: int, n_multiprocessors: int) -> tuple[int, int]:
    """Return warps that share rows, and rows a lane takes side by side.

    The first, on which the order of additions depends, is the same for all row counts.
    """
    wanted = n_multiprocessors * _WARPS_A_MULTIPROCESSOR
    n_loads = weight.row_bytes // (ALIGNMENT * WARP)
    n_team = 1
    while n_team < 8 and n_team * 2 <= n_loads and weight.n_out * n_team < wanted:
        n_team *= 2
    choices = _float_rows_a_lane(n)
    return n_team, choices[0] if weight.n_out <= _FEW_ROWS else choices[-1]


def _float_rows_a_lane(n: int) -> tuple[int, ...]:
    return (1, 4) if n == 1 else (2,)


def _name(quant: QuantType, n: int) -> str:
    if quant not in CODED:
        raise UnsupportedQuantError(
            f"{quant.name} matrices are not multiplied as integers; wanted one of "
            f"{', '.join(coded.name for coded in CODED)}.",
            quant_id=int(quant),
        )
    return f"matvec<{int(quant)}, {n}, {ROWS_A_LANE[n]}>"


def _float_name(quant: QuantType, n: int, rows_a_lane: int) -> str:
    if quant not in FLOATS:
        raise UnsupportedQuantError(
            f"matvec_float wants F32, F16 or BF16, but got {quant.name}.", quant_id=int(quant)
        )
    return f"matvec_float<{int(quant)}, {n}, {rows_a_lane}>"
