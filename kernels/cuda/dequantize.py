"""Launches dequantize.cu: rows of a matrix as numbers, for embeddings and tests.

What they are is said by `kernels.reference.quants`, and these are the same bits.
"""

from __future__ import annotations

import ctypes

from kernels.cuda.compiler import Unit
from kernels.cuda.matvec import CODED, FLOATS
from kernels.cuda.module import KernelSet
from kernels.cuda.shapes import Matrix, Rows, require_equal, require_multiple, require_some
from kernels.errors import UnsupportedQuantError
from kernels.quants import QuantType

STEM = "dequantize"
_THREADS = 128
_COLUMNS_A_BLOCK = 4096


class DequantizeArgs(ctypes.Structure):
    """`DequantizeArgs` of dequantize.cu."""

    _fields_ = (
        ("y", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("n_cols", ctypes.c_int),
        ("row_bytes", ctypes.c_int),
    )


def units(quant: QuantType) -> tuple[Unit, ...]:
    """Return what to compile for a format.

    Raises:
        UnsupportedQuantError: the format is not read here.
    """
    return (Unit(STEM, (_name(quant, is_half=False), _name(quant, is_half=True))),)


def dequantize(
    kernels: KernelSet,
    stream: int,
    *,
    weight: Matrix,
    y: Rows,
    row_ids: int = 0,
    is_half: bool = False,
) -> None:
    """Write rows of a matrix as f32 or f16.

    Args:
        kernels: of the card.
        stream: handle of the stream.
        weight: the matrix.
        y: the result; its address is that of f16 if `is_half`.
        row_ids: address of i32[n_rows], which rows to take; 0 takes the first ones.
        is_half: whether to write f16.

    Raises:
        KernelLaunchError: shapes or alignment do not fit.
        UnsupportedQuantError: the format is not read here.

    Shapes:
        weight: [n_out, n_cols]; y: [n_rows, n_cols].
    """
    require_equal(STEM, n_cols=(weight.n_cols, y.n_cols))
    require_multiple(STEM, weight_address=(weight.address, 16), y_address=(y.address, 4))
    require_some(STEM, n_rows=(y.n_rows, 2**31 - 1 if row_ids else weight.n_out))
    kernel = kernels.kernel(STEM, _name(weight.quant, is_half=is_half))
    args = DequantizeArgs(y.address, weight.address, row_ids, weight.n_cols, weight.row_bytes)
    per_block = _THREADS if weight.quant in FLOATS else _COLUMNS_A_BLOCK
    grid = (y.n_rows, -(-weight.n_cols // per_block), 1)
    kernel.launch(stream, grid, (_THREADS, 1, 1), 0, (args,))


def _name(quant: QuantType, *, is_half: bool) -> str:
    if quant not in FLOATS and quant not in CODED:
        raise UnsupportedQuantError(
            f"{quant.name} weights are not read on the card.", quant_id=int(quant)
        )
    op = "convert" if quant in FLOATS else "dequantize"
    return f"{op}<{int(quant)}, {'strata_half' if is_half else 'float'}>"
