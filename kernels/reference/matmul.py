"""What products with weights mean, and the codes that activations are turned into for them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.quants import QuantType
from kernels.reference.quants import dequantize

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]

CODE_BLOCK = 256
"""Activations that share a scale; the last block of a row may be shorter."""
LARGEST_CODE = 2**15 - 1
SMALLEST = np.float32(1e-30)
"""A block with nothing larger counts as zeros."""


def quantize(x: F32) -> tuple[I32, F32]:
    """Turn activations into codes.

    Returns:
        Codes, and scale of each block: x is about scale * code.

    Shapes:
        x: f32[n_rows, n_cols]; result: i32[n_rows, n_cols], f32[n_rows, ceil(n_cols / 256)].
    """
    n_rows, n_cols = x.shape
    blocks = np.pad(x, ((0, 0), (0, -n_cols % CODE_BLOCK))).reshape(n_rows, -1, CODE_BLOCK)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    largest[largest < SMALLEST] = 0
    inverse = np.divide(
        np.float32(LARGEST_CODE), largest, out=np.zeros_like(largest), where=largest > 0
    )
    codes = np.rint(blocks * inverse).astype(np.int32).reshape(n_rows, -1)
    return codes[:, :n_cols], (largest / np.float32(LARGEST_CODE))[..., 0]


def matmul(x: F32, weight: npt.NDArray[np.uint8], quant: QuantType, bias: F32 | None = None) -> F32:
    """Return x weight^T + bias, on dequantised weights.

    Shapes:
        x: f32[n_rows, n_cols]; weight: u8[n_out, row_bytes]; bias: f32[n_out];
        result: f32[n_rows, n_out].
    """
    plain = dequantize(weight, quant, x.shape[1]).astype(np.float64)
    product = x.astype(np.float64) @ plain.T
    return (product if bias is None else product + bias).astype(np.float32)


def matmul_codes(
    x: F32, weight: npt.NDArray[np.uint8], quant: QuantType, bias: F32 | None = None
) -> F32:
    """Return what `matmul` gives for x as its codes say it.

    Shapes:
        as matmul.
    """
    codes, scales = quantize(x)
    spread = np.repeat(scales, CODE_BLOCK, axis=-1)[:, : x.shape[1]]
    return matmul(codes.astype(np.float32) * spread, weight, quant, bias)
