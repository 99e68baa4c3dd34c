"""Launches quantize_activations.cu: f32 rows to int8 codes, after a norm if wanted.

What the codes mean is in `kernels.reference.activations`.
"""

from __future__ import annotations

import ctypes

from kernels.cuda.compiler import Unit
from kernels.cuda.module import KernelSet
from kernels.cuda.shapes import (
    PIECE,
    Activations,
    Rows,
    require_equal,
    require_multiple,
    require_some,
)

STEM = "quantize_activations"
_THREADS = 256
_VALUES_A_BLOCK = 1024
_MAX_THREADS = 1024


class QuantizeArgs(ctypes.Structure):
    """`QuantizeArgs` of quantize_activations.cu."""

    _fields_ = (
        ("codes", ctypes.c_void_p),
        ("y", ctypes.c_void_p),
        ("x", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("n_cols", ctypes.c_int),
        ("x_stride", ctypes.c_int),
        ("epsilon", ctypes.c_float),
    )


def units() -> tuple[Unit, ...]:
    """Return what to compile."""
    names = tuple(f"{op}<{n_planes}>" for op in (STEM, "rms_norm_quantize") for n_planes in (1, 2))
    return (Unit(STEM, names),)


def quantize_activations(kernels: KernelSet, stream: int, *, x: Rows, codes: Activations) -> None:
    """Turn rows into codes.

    Args:
        kernels: of the card.
        stream: handle of the stream.
        x: the rows.
        codes: the result.

    Raises:
        KernelLaunchError: shapes or alignment do not fit.

    Shapes:
        x: f32[n_rows, n_cols]; codes: [n_rows, n_cols]; n_cols a multiple of 32.
    """
    _check(STEM, x, codes)
    kernel = kernels.kernel(STEM, f"quantize_activations<{codes.n_planes}>")
    args = QuantizeArgs(codes.address, 0, x.address, 0, x.n_cols, x.n_cols, 0)
    grid = (x.n_rows, -(-x.n_cols // _VALUES_A_BLOCK), 1)
    kernel.launch(stream, grid, (_THREADS, 1, 1), 0, (args,))


def rms_norm_quantize(
    kernels: KernelSet,
    stream: int,
    *,
    x: Rows,
    weight: Rows,
    epsilon: float,
    codes: Activations,
    y: Rows | None = None,
) -> None:
    """Norm rows and turn them into codes.

    Args:
        kernels: of the card.
        stream: handle of the stream.
        x: the rows.
        weight: one row to multiply the normed ones by.
        epsilon: added to the mean square.
        codes: the result.
        y: the result as f32 too, if anybody wants it.

    Raises:
        KernelLaunchError: shapes or alignment do not fit.

    Shapes:
        x, y: f32[n_rows, n_cols]; weight: f32[1, n_cols]; codes: [n_rows, n_cols].
    """
    op = "rms_norm_quantize"
    _check(op, x, codes)
    require_equal(op, weight_cols=(x.n_cols, weight.n_cols), weight_rows=(1, weight.n_rows))
    require_multiple(op, weight_address=(weight.address, 16))
    if y is not None:
        require_equal(op, y_rows=(x.n_rows, y.n_rows), y_cols=(x.n_cols, y.n_cols))
        require_multiple(op, y_address=(y.address, 16))
    kernel = kernels.kernel(STEM, f"rms_norm_quantize<{codes.n_planes}>")
    args = QuantizeArgs(
        codes.address,
        0 if y is None else y.address,
        x.address,
        weight.address,
        x.n_cols,
        x.n_cols,
        epsilon,
    )
    n_threads = min(_MAX_THREADS, -(-x.n_cols // 4 // PIECE) * PIECE)
    kernel.launch(stream, (x.n_rows, 1, 1), (n_threads, 1, 1), 0, (args,))


def _check(op: str, x: Rows, codes: Activations) -> None:
    require_equal(op, n_rows=(x.n_rows, codes.n_rows), n_cols=(x.n_cols, codes.n_cols))
    require_some(op, n_rows=(x.n_rows, 2**31 - 1), n_planes=(codes.n_planes, 2))
    require_multiple(op, n_cols=(x.n_cols, PIECE), x_address=(x.address, 16))
    require_multiple(op, codes_address=(codes.address, 64))
