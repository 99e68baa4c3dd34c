"""What the bits of every quant block mean: dequantising in plain NumPy, block by block.

Here are the formats with evenly spaced levels and the K-quants; those that look their weights up
in a table are in `kernels.reference.quants_iq`. Sizes are in `kernels.quants`.

Products of a block's scales and codes have at most 24 bits, so float32 holds them exactly and only
the final addition of a minimum rounds. That is why results are equal bit for bit to any other
correct implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernels.errors import KernelLaunchError, UnsupportedQuantError
from kernels.quants import QuantType
from kernels.reference import quants_iq
from kernels.reference.bits import F32, U8, codes_of_bits, f16_field, nibbles

__all__ = ["dequantize"]


def dequantize(data: U8, quant: QuantType, n_cols: int) -> F32:
    """Turn rows of quant blocks into weights.

    Args:
        data: the rows as they lie in a GGUF file.
        quant: their format.
        n_cols: weights of a row.

    Returns:
        The weights, in memory of their own.

    Raises:
        KernelLaunchError: `data` is no array of rows of `n_cols` weights in that format.
        UnsupportedQuantError: the format holds no weights (integers, activations), or `n_cols` is
            not a whole number of blocks.

    Shapes:
        data: u8[n_rows, row_bytes]; result: f32[n_rows, n_cols].

    Source:
        Block layouts of ggml, as used by the GGUF format.
    """
    row_bytes = quant.row_bytes(n_cols)
    if data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != row_bytes:
        raise KernelLaunchError(
            f"dequantize wants u8[n_rows, {row_bytes}] for rows of {n_cols} weights in "
            f"{quant.name}, but got {data.dtype}{list(data.shape)}."
        )
    decode = _DECODERS.get(quant)
    if decode is None:
        raise UnsupportedQuantError(
            f"{quant.name} holds no weights, so it cannot be dequantised.", quant_id=int(quant)
        )
    blocks = np.ascontiguousarray(data).reshape(-1, quant.n_bytes)
    return np.ascontiguousarray(decode(blocks)).reshape(len(data), n_cols)


def _f32(blocks: U8) -> F32:
    return blocks.view("<f4").astype(np.float32)


def _f16(blocks: U8) -> F32:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: U8) -> F32:
    """The upper half of a float32."""
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: U8) -> F32:
    """Scale f16 | 16 bytes: low nibbles are weights 0-15, high ones 16-31; code 8 is zero."""
    return f16_field(blocks, 0) * (nibbles(blocks[:, 2:]) - np.float32(8))


def _q4_1(blocks: U8) -> F32:
    """Scale f16 | minimum f16 | 16 bytes of nibbles as in Q4_0."""
    return f16_field(blocks, 0) * nibbles(blocks[:, 4:]) + f16_field(blocks, 2)


def _q5_codes(high_bits: U8, low_bits: U8) -> U8:
    """Bit i of the four bytes `high_bits` is the fifth bit of weight i."""
    fifth = np.unpackbits(high_bits, axis=1, bitorder="little")
    codes: U8 = nibbles(low_bits) | fifth << np.uint8(4)
    return codes


def _q5_0(blocks: U8) -> F32:
    """Scale f16 | 32 fifth bits | 16 bytes of nibbles; code 16 is zero."""
    codes = _q5_codes(blocks[:, 2:6], blocks[:, 6:])
    return f16_field(blocks, 0) * (codes - np.float32(16))


def _q5_1(blocks: U8) -> F32:
    """Scale f16 | minimum f16 | 32 fifth bits | 16 bytes of nibbles."""
    codes = _q5_codes(blocks[:, 4:8], blocks[:, 8:])
    return f16_field(blocks, 0) * codes + f16_field(blocks, 2)


def _q8_0(blocks: U8) -> F32:
    """Scale f16 | 32 signed bytes."""
    return f16_field(blocks, 0) * blocks[:, 2:].view(np.int8)


def _q2_k(blocks: U8) -> F32:
    """16 bytes of scale (low nibble) and minimum (high) | 64 bytes of codes | scale, minimum f16.

    A run of 32 bytes holds 4 x 32 weights: bits 0-1 the first 32, bits 2-3 the next.
    """
    codes = codes_of_bits(blocks[:, 16:80], n_bits=2, run=32).reshape(-1, 16, 16)
    scales: F32 = f16_field(blocks, 80) * (blocks[:, :16] & 15)
    minima: F32 = f16_field(blocks, 82) * (blocks[:, :16] >> 4)
    weights: F32 = scales[:, :, None] * codes - minima[:, :, None]
    return weights


def _q3_k(blocks: U8) -> F32:
    """32 bytes of third bits | 64 bytes of two bits as in Q2_K | 12 bytes of scales | scale f16.

    Bit j of third-bit byte l belongs to weight 32 j + l; where it is 0, 4 is taken away.
    Scales have six bits: 16 low nibbles in bytes 0-7, two high bits each in 8-11; 32 is zero.
    """
    low = codes_of_bits(blocks[:, 32:96], n_bits=2, run=32)
    third = codes_of_bits(blocks[:, :32], n_bits=1, run=32)
    codes = (low | third << 2).astype(np.int8) - 4
    packed = blocks[:, 96:108]
    scales = (
        codes_of_bits(packed[:, :8], n_bits=4, run=8)
        | codes_of_bits(packed[:, 8:], n_bits=2, run=4) << 4
    ).astype(np.int8) - 32
    weights: F32 = (f16_field(blocks, 108) * scales)[:, :, None] * codes.reshape(-1, 16, 16)
    return weights


def _k_scales(packed: U8) -> tuple[U8, U8]:
    """Unpack 8 scales and 8 minima of six bits from 12 bytes, as Q4_K and Q5_K have them.

    The first four of each are the low six bits of bytes 0-3 and 4-7; the others have their low
    nibble in bytes 8-11 (scale low, minimum high) and their two high bits on top of bytes 0-7.
    """
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minima


def _q4_k(blocks: U8) -> F32:
    """Scale, minimum f16 | 12 bytes of scales and minima | 128 bytes of nibbles in runs of 32."""
    scales, minima = _k_scales(blocks[:, 4:16])
    codes = codes_of_bits(blocks[:, 16:], n_bits=4, run=32).reshape(-1, 8, 32)
    scale = (f16_field(blocks, 0) * scales)[:, :, None]
    weights: F32 = scale * codes - (f16_field(blocks, 2) * minima)[:, :, None]
    return weights


def _q5_k(blocks: U8) -> F32:
    """As Q4_K, with 32 bytes of fifth bits before the nibbles: bit j of byte l, weight 32 j + l."""
    scales, minima = _k_scales(blocks[:, 4:16])
    fifth = codes_of_bits(blocks[:, 16:48], n_bits=1, run=32)
    low = codes_of_bits(blocks[:, 48:], n_bits=4, run=32)
    codes = (low | fifth << 4).reshape(-1, 8, 32)
    scale = (f16_field(blocks, 0) * scales)[:, :, None]
    weights: F32 = scale * codes - (f16_field(blocks, 2) * minima)[:, :, None]
    return weights


def _q6_k(blocks: U8) -> F32:
    """128 bytes of nibbles, runs of 64 | 64 bytes of high bits, runs of 32 | 16 i8 | scale f16."""
    low = codes_of_bits(blocks[:, :128], n_bits=4, run=64)
    high = codes_of_bits(blocks[:, 128:192], n_bits=2, run=32)
    codes = (low | high << 4).astype(np.int8) - 32
    scales = f16_field(blocks, 208) * blocks[:, 192:208].view(np.int8)
    weights: F32 = scales[:, :, None] * codes.reshape(-1, 16, 16)
    return weights


def _tq1_0(blocks: U8) -> F32:
    """48 + 4 bytes of base-3 digits | scale f16; five digits a byte (four in the last 4 bytes).

    A byte is a fraction of 256; times 3^k, its next digit stands before the point.
    """
    parts: list[F32] = []
    for start, stop, n_digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        powers = 3 ** np.arange(n_digits, dtype=np.uint8)
        fractions = blocks[:, None, start:stop] * powers[None, :, None]
        digits = fractions.astype(np.uint16) * 3 >> 8
        parts.append(digits.astype(np.float32).reshape(len(blocks), -1))
    weights: F32 = f16_field(blocks, 52) * (np.concatenate(parts, axis=1) - np.float32(1))
    return weights


def _tq2_0(blocks: U8) -> F32:
    """64 bytes of two-bit codes in runs of 32 | scale f16; code 1 is zero."""
    codes = codes_of_bits(blocks[:, :64], n_bits=2, run=32)
    weights: F32 = f16_field(blocks, 64) * (codes - np.float32(1))
    return weights


def _q1_0(blocks: U8) -> F32:
    """Scale f16 | 128 bits: 0 is minus, 1 is plus."""
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
    return f16_field(blocks, 0) * (bits * np.float32(2) - np.float32(1))


def _q2_0(blocks: U8) -> F32:
    """Scale f16 | 16 bytes, each with four neighbours, the lowest bits first; code 1 is zero."""
    codes = codes_of_bits(blocks[:, 2:], n_bits=2, run=1)
    return f16_field(blocks, 0) * (codes - np.float32(1))


_DECODERS: Mapping[QuantType, Callable[[U8], F32]] = {
    QuantType.F32: _f32,
    QuantType.F16: _f16,
    QuantType.BF16: _bf16,
    QuantType.Q4_0: _q4_0,
    QuantType.Q4_1: _q4_1,
    QuantType.Q5_0: _q5_0,
    QuantType.Q5_1: _q5_1,
    QuantType.Q8_0: _q8_0,
    QuantType.Q2_K: _q2_k,
    QuantType.Q3_K: _q3_k,
    QuantType.Q4_K: _q4_k,
    QuantType.Q5_K: _q5_k,
    QuantType.Q6_K: _q6_k,
    QuantType.TQ1_0: _tq1_0,
    QuantType.TQ2_0: _tq2_0,
    QuantType.Q1_0: _q1_0,
    QuantType.Q2_0: _q2_0,
    QuantType.IQ1_S: quants_iq.iq1_s,
    QuantType.IQ1_M: quants_iq.iq1_m,
    QuantType.IQ2_XXS: quants_iq.iq2_xxs,
    QuantType.IQ2_XS: quants_iq.iq2_xs,
    QuantType.IQ2_S: quants_iq.iq2_s,
    QuantType.IQ3_XXS: quants_iq.iq3_xxs,
    QuantType.IQ3_S: quants_iq.iq3_s,
    QuantType.IQ4_NL: quants_iq.iq4_nl,
    QuantType.IQ4_XS: quants_iq.iq4_xs,
    QuantType.MXFP4: quants_iq.mxfp4,
    QuantType.NVFP4: quants_iq.nvfp4,
}
