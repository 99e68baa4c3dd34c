"""What int8 codes of activations are, and what products with them mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.quants import QuantType
from kernels.reference.quants import dequantize

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]

CODE_BLOCK = 32
"""Activations that share a scale."""
LARGEST_INT8 = 127


def quantize(x: F32, n_planes: int = 1) -> tuple[I32, F32]:
    """Turn activations into codes.

    With one plane codes have 8 bits. With two they have 15: code = 128 * high + low, where high is
    the first plane (at 128 times the scale) and low, in -64..63, the second.

    Returns:
        Codes, and the scale of each block: x is about scale * code, summed over the planes.

    Shapes:
        x: f32[n_rows, n_cols]; result: i32[n_rows, n_planes, n_cols],
        f32[n_rows, n_planes, n_cols / 32].
    """
    largest_code = np.float32(LARGEST_INT8 * (1 if n_planes == 1 else 128))
    blocks = x.reshape(len(x), -1, CODE_BLOCK)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    inverse = np.divide(
        largest_code, largest, out=np.zeros_like(largest), where=largest > 0, dtype=np.float32
    )
    codes = np.rint(blocks * inverse).astype(np.int32).reshape(x.shape)
    scales = (largest / largest_code)[..., 0]
    if n_planes == 1:
        return codes[:, None], scales[:, None]
    high = codes + 64 >> 7
    return (
        np.stack([high, codes - high * 128], axis=1),
        np.stack([scales * np.float32(128), scales], axis=1),
    )


def coded_values(x: F32, n_planes: int = 1) -> F64:
    """Return activations as their codes say them: f32[n_rows, n_cols] -> f64[n_rows, n_cols]."""
    codes, scales = quantize(x, n_planes)
    values: F64 = (codes * np.repeat(scales.astype(np.float64), CODE_BLOCK, axis=-1)).sum(axis=1)
    return values


def matvec(x: F32, weight: U8, quant: QuantType, n_planes: int = 1) -> F64:
    """Return x weight^T for x as its codes say it; float matrices take x as it is.

    Shapes:
        x: f32[n_rows, n_cols]; weight: u8[n_out, row_bytes]; result: f64[n_rows, n_out].
    """
    plain = dequantize(weight, quant, x.shape[1]).astype(np.float64)
    values = x.astype(np.float64) if quant.is_float else coded_values(x, n_planes)
    product: F64 = values @ plain.T
    return product
