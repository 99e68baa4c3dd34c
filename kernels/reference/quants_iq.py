"""Dequantising of the formats that look weights up in a table: IQ1 to IQ4, MXFP4, NVFP4.

IQ1 to IQ3 name lattice points of four or eight weights by an index (`kernels.reference.grids`);
IQ4 and the FP4 formats have sixteen levels a weight. Each function takes u8[n_blocks, n_bytes] and
returns f32[n_blocks, ...]; `kernels.reference.quants` checks and reshapes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.reference.bits import F32, U8, codes_of_bits, f16_field, nibbles
from kernels.reference.grids import grid

IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""Levels of IQ4_NL and IQ4_XS."""

FP4_LEVELS = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the levels of a 4-bit float (2 bits of exponent, 1 of mantissa), so that all are whole."""

IQ1_DELTA = 0.125
"""By how much all eight weights of an IQ1 point are moved up or down."""


def _words(blocks: U8, start: int, stop: int, dtype: str) -> npt.NDArray[Any]:
    """Return bytes `start` to `stop` of each block as little-endian integers."""
    return np.ascontiguousarray(blocks[:, start:stop]).view(dtype)


def _levels(levels: tuple[int, ...], codes: U8) -> F32:
    return np.array(levels, np.float32)[codes]


def _parity_signs(seven_bits: npt.NDArray[Any]) -> F32:
    """Return eight factors +1 or -1 from seven sign bits: the number of minus signs is even.

    Shapes:
        seven_bits: [...]; result: f32[..., 8].
    """
    bits = np.unpackbits(seven_bits.astype(np.uint8)[..., None], axis=-1, bitorder="little")
    bits[..., 7] = np.bitwise_xor.reduce(bits[..., :7], axis=-1)
    return 1 - bits * np.float32(2)


def _byte_signs(sign_bytes: U8) -> F32:
    """Return eight factors +1 or -1 for each byte, the lowest bit first: [...] -> f32[..., 8]."""
    bits = np.unpackbits(sign_bytes[..., None], axis=-1, bitorder="little")
    return 1 - bits * np.float32(2)


def iq2_xxs(blocks: U8) -> F32:
    """Scale f16 | 8 groups of 32 weights: 4 index bytes, then u32 = 4 x 7 signs, 4 of scale."""
    n_blocks = len(blocks)
    words = _words(blocks, 2, 66, "<u4").reshape(n_blocks, 8, 2)
    indices = np.ascontiguousarray(words[:, :, 0]).view(np.uint8).reshape(n_blocks, 8, 4)
    tail = words[:, :, 1]
    signs = tail[:, :, None] >> np.array([0, 7, 14, 21], np.uint32) & 127
    scales = f16_field(blocks, 0) * (np.float32(0.5) + (tail >> 28).astype(np.float32))
    scales = scales * np.float32(0.25)
    weights: F32 = scales[:, :, None, None] * grid("IQ2_XXS")[indices] * _parity_signs(signs)
    return weights


def iq2_xs(blocks: U8) -> F32:
    """Scale f16 | 32 u16 = 9 bits of index, 7 signs | 8 bytes, a nibble of scale for 16 weights."""
    words = _words(blocks, 2, 66, "<u2")
    scales = codes_of_bits(blocks[:, 66:], n_bits=4, run=1).astype(np.float32)
    scales = f16_field(blocks, 0) * (np.float32(0.5) + scales) * np.float32(0.25)
    points = grid("IQ2_XS")[words & 511] * _parity_signs(words >> 9)
    weights: F32 = scales[:, :, None] * points.reshape(len(blocks), 16, 16)
    return weights


def iq2_s(blocks: U8) -> F32:
    """Scale f16 | 32 low index bytes | 32 sign bytes | 8 of 2 high bits | 8 of nibble scales."""
    high = codes_of_bits(blocks[:, 66:74], n_bits=2, run=1).astype(np.uint16)
    indices = blocks[:, 2:34] | high << 8
    scales = codes_of_bits(blocks[:, 74:], n_bits=4, run=1).astype(np.float32)
    scales = f16_field(blocks, 0) * (np.float32(0.5) + scales) * np.float32(0.25)
    points = grid("IQ2_S")[indices] * _byte_signs(blocks[:, 34:66])
    weights: F32 = scales[:, :, None] * points.reshape(len(blocks), 16, 16)
    return weights


def iq3_xxs(blocks: U8) -> F32:
    """Scale f16 | 64 index bytes, four weights each | 8 u32 = 4 x 7 signs, 4 bits of scale."""
    tail = _words(blocks, 66, 98, "<u4")
    signs = tail[:, :, None] >> np.array([0, 7, 14, 21], np.uint32) & 127
    scales = f16_field(blocks, 0) * (np.float32(0.5) + (tail >> 28).astype(np.float32))
    scales = scales * np.float32(0.5)
    points = grid("IQ3_XXS")[blocks[:, 2:66]].reshape(len(blocks), 8, 4, 8)
    weights: F32 = scales[:, :, None, None] * points * _parity_signs(signs)
    return weights


def iq3_s(blocks: U8) -> F32:
    """Scale f16 | 64 low index bytes | 8 of ninth bits | 32 of signs | 4 of nibble scales."""
    ninth = np.unpackbits(blocks[:, 66:74], axis=1, bitorder="little").astype(np.uint16)
    indices = blocks[:, 2:66] | ninth << 8
    scales = codes_of_bits(blocks[:, 106:], n_bits=4, run=1).astype(np.float32)
    scales = f16_field(blocks, 0) * (1 + 2 * scales)
    points = grid("IQ3_S")[indices].reshape(len(blocks), 8, 4, 8)
    signs = _byte_signs(blocks[:, 74:106]).reshape(len(blocks), 8, 4, 8)
    weights: F32 = scales[:, :, None, None] * points * signs
    return weights


def iq1_s(blocks: U8) -> F32:
    """Scale f16 | 32 low index bytes | 8 u16 = 4 x 3 high bits, 3 of scale, sign of the delta."""
    words = _words(blocks, 34, 50, "<u2")
    high = words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & 7
    indices = blocks[:, 2:34].reshape(-1, 8, 4) | high << 8
    scales = f16_field(blocks, 0) * (2 * (words >> 12 & 7) + 1).astype(np.float32)
    delta = np.where(words & 0x8000, np.float32(-IQ1_DELTA), np.float32(IQ1_DELTA))
    points = grid("IQ1_S")[indices] + delta[:, :, None, None]
    weights: F32 = scales[:, :, None, None] * points
    return weights


def iq1_m(blocks: U8) -> F32:
    """32 low index bytes | 16 bytes of nibbles = 3 high bits, sign of the delta | 4 u16.

    The u16 hold 4 x 3 bits of scale, each for 16 weights, and on top four bits of the block's f16
    scale, the lowest four in the first.
    """
    nibble = codes_of_bits(blocks[:, 32:48], n_bits=4, run=1).astype(np.uint16)
    indices = blocks[:, :32] | (nibble & 7) << 8
    words = _words(blocks, 48, 56, "<u2")
    f16_bits = np.bitwise_or.reduce(words >> 12 << np.array([0, 4, 8, 12], np.uint16), axis=1)
    block_scale = f16_bits.astype("<u2").view("<f2").astype(np.float32)[:, None]
    three = (words[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & 7).reshape(-1, 16)
    scales = block_scale * (2 * three + 1).astype(np.float32)
    delta = np.where(nibble & 8, np.float32(-IQ1_DELTA), np.float32(IQ1_DELTA))
    points = grid("IQ1_S")[indices] + delta[:, :, None]
    weights: F32 = scales[:, :, None] * points.reshape(len(blocks), 16, 16)
    return weights


def iq4_nl(blocks: U8) -> F32:
    """Scale f16 | 16 bytes of nibbles: low ones weights 0-15, high ones 16-31."""
    return f16_field(blocks, 0) * _levels(IQ4_LEVELS, nibbles(blocks[:, 2:]))


def iq4_xs(blocks: U8) -> F32:
    """Scale f16 | u16 = 8 x 2 high scale bits | 4 bytes of low nibbles | 128 bytes, runs of 16."""
    high = _words(blocks, 2, 4, "<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    low = codes_of_bits(blocks[:, 4:8], n_bits=4, run=1)
    scales = f16_field(blocks, 0) * ((low | high << 4).astype(np.float32) - 32)
    codes = codes_of_bits(blocks[:, 8:], n_bits=4, run=16).reshape(-1, 8, 32)
    weights: F32 = scales[:, :, None] * _levels(IQ4_LEVELS, codes)
    return weights


def mxfp4(blocks: U8) -> F32:
    """Scale e8m0, a power of two | 16 bytes of nibbles as in IQ4_NL.

    Scale byte e means 2^(e - 127) of a weight; half of that goes with the doubled levels, so e
    below 2 gives subnormal floats.
    """
    exponent = blocks[:, :1].astype(np.uint32)
    bits = np.where(exponent < 2, np.uint32(1 << 21) << exponent, (exponent - 1) << 23)
    return bits.astype(np.uint32).view(np.float32) * _levels(FP4_LEVELS, nibbles(blocks[:, 1:]))


def nvfp4(blocks: U8) -> F32:
    """4 scales, unsigned e4m3, for 16 weights each | 32 bytes of nibbles in runs of 8.

    The top bit of a scale does not count; 0x7F, which is no number, means zero.
    """
    exponent = (blocks[:, :4] >> 3 & 15).astype(np.int32)
    mantissa = (blocks[:, :4] & 7).astype(np.float32)
    scales = np.where(
        exponent == 0,
        np.ldexp(mantissa, -9),
        np.ldexp(1 + mantissa / np.float32(8), exponent - 7),
    )
    scales = np.where(blocks[:, :4] == 0x7F, np.float32(0), scales * np.float32(0.5))
    codes = codes_of_bits(blocks[:, 4:], n_bits=4, run=8).reshape(-1, 4, 16)
    return scales.astype(np.float32)[:, :, None] * _levels(FP4_LEVELS, codes)
