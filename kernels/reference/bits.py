"""Bit fields of quant blocks, taken out for many blocks at once.

Which field lies where in a block is left to `kernels.reference.quants` and `quants_iq`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]


def f16_field(blocks: U8, at: int) -> F32:
    """Return the f16 at byte `at` of each block: u8[n_blocks, n_bytes] -> f32[n_blocks, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def nibbles(packed: U8) -> U8:
    """Return low nibbles of all bytes, then high ones: u8[n_blocks, n] -> u8[n_blocks, 2 n]."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def codes_of_bits(packed: U8, *, n_bits: int, run: int) -> U8:
    """Split bytes into codes of `n_bits` bits, run by run.

    Each run of `run` bytes gives first the lowest bits of all its bytes, then the next bits of all
    its bytes, and so on.

    Shapes:
        packed: u8[n_blocks, n]; result: u8[n_blocks, n * 8 / n_bits].
    """
    n_blocks = len(packed)
    shifts = np.arange(0, 8, n_bits, dtype=np.uint8)
    runs = packed.reshape(n_blocks, -1, 1, run) >> shifts[None, None, :, None]
    codes: U8 = (runs & np.uint8((1 << n_bits) - 1)).reshape(n_blocks, -1)
    return codes
