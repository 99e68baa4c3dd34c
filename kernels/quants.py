"""The weight formats of GGUF files: number, weights and bytes of a block. The only such table.

How the bits of a block become weights is left to `kernels.reference.quants` (the definition) and
`kernels/include/blocks.h` (the same blocks as C structs).
"""

from __future__ import annotations

import enum
from typing import Self

from kernels.errors import UnsupportedQuantError


class QuantType(enum.IntEnum):
    """A format of tensor data; the value is ggml's id, as stored in GGUF files.

    Every row of a tensor is a whole number of blocks, one after the other.

    Attributes:
        n_weights: weights in a block.
        n_bytes: bytes of a block.

    Source:
        The `ggml_type` list of the GGUF format and the block layouts of ggml.
    """

    n_weights: int
    n_bytes: int

    F32 = 0, 1, 4
    F16 = 1, 1, 2
    Q4_0 = 2, 32, 18
    Q4_1 = 3, 32, 20
    Q5_0 = 6, 32, 22
    Q5_1 = 7, 32, 24
    Q8_0 = 8, 32, 34
    Q8_1 = 9, 32, 36
    Q2_K = 10, 256, 84
    Q3_K = 11, 256, 110
    Q4_K = 12, 256, 144
    Q5_K = 13, 256, 176
    Q6_K = 14, 256, 210
    Q8_K = 15, 256, 292
    IQ2_XXS = 16, 256, 66
    IQ2_XS = 17, 256, 74
    IQ3_XXS = 18, 256, 98
    IQ1_S = 19, 256, 50
    IQ4_NL = 20, 32, 18
    IQ3_S = 21, 256, 110
    IQ2_S = 22, 256, 82
    IQ4_XS = 23, 256, 136
    I8 = 24, 1, 1
    I16 = 25, 1, 2
    I32 = 26, 1, 4
    I64 = 27, 1, 8
    F64 = 28, 1, 8
    IQ1_M = 29, 256, 56
    BF16 = 30, 1, 2
    TQ1_0 = 34, 256, 54
    TQ2_0 = 35, 256, 66
    MXFP4 = 39, 32, 17
    NVFP4 = 40, 64, 36
    Q1_0 = 41, 128, 18
    Q2_0 = 42, 64, 18

    def __new__(cls, quant_id: int, n_weights: int = 0, n_bytes: int = 0) -> Self:
        """Make a member from its row of the table."""
        member = int.__new__(cls, quant_id)
        member._value_ = quant_id
        member.n_weights = n_weights
        member.n_bytes = n_bytes
        return member

    @classmethod
    def _missing_(cls, value: object) -> Self:
        if not isinstance(value, int):
            raise TypeError(f"A weight format is named by its number, got {value!r}.")
        if (removed := removed_quant(value)) is not None:
            name, replacement = removed
            raise UnsupportedQuantError(
                f"weight format {value} ({name}) was removed from the GGUF format; "
                f"use a file in {replacement} instead.",
                quant_id=value,
            )
        raise UnsupportedQuantError(
            f"weight format {value} is not known to this version of Strata; the file may need "
            "a newer version.",
            quant_id=value,
        )

    @property
    def is_float(self) -> bool:
        """Whether a block is one floating-point number."""
        return self in (QuantType.F32, QuantType.F16, QuantType.BF16, QuantType.F64)

    @property
    def is_storage_only(self) -> bool:
        """Whether tensors of this format may lie in a file but are no weights to compute with.

        Integers and F64 are side tables; Q8_1 and Q8_K exist for activations only.
        """
        return self in (
            QuantType.I8,
            QuantType.I16,
            QuantType.I32,
            QuantType.I64,
            QuantType.F64,
            QuantType.Q8_1,
            QuantType.Q8_K,
        )

    def row_bytes(self, n_cols: int) -> int:
        """Return the bytes of a row of `n_cols` weights.

        Raises:
            UnsupportedQuantError: `n_cols` is not a whole number of blocks.
        """
        if n_cols < 0 or n_cols % self.n_weights:
            raise UnsupportedQuantError(
                f"a row of {n_cols} weights cannot be stored as {self.name}: rows must be a "
                f"multiple of {self.n_weights}.",
                quant_id=int(self),
            )
        return n_cols // self.n_weights * self.n_bytes


def removed_quant(quant_id: int) -> tuple[str, str] | None:
    """Return name and replacement of a format that was once in ggml, or None."""
    match quant_id:
        case 4:
            return "Q4_2", "Q4_0"
        case 5:
            return "Q4_3", "Q4_1"
        case 31:
            return "Q4_0_4_4", "Q4_0"
        case 32:
            return "Q4_0_4_8", "Q4_0"
        case 33:
            return "Q4_0_8_8", "Q4_0"
        case 36:
            return "IQ4_NL_4_4", "IQ4_NL"
        case 37:
            return "IQ4_NL_4_8", "IQ4_NL"
        case 38:
            return "IQ4_NL_8_8", "IQ4_NL"
    return None
