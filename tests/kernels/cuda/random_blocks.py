"""Random matrices in any weight format: every bit of every block but sane scales."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.quants import QuantType

HALF_FIELDS = {
    QuantType.Q4_0: (0,),
    QuantType.Q4_1: (0, 2),
    QuantType.Q5_0: (0,),
    QuantType.Q5_1: (0, 2),
    QuantType.Q8_0: (0,),
    QuantType.Q2_K: (80, 82),
    QuantType.Q3_K: (108,),
    QuantType.Q4_K: (0, 2),
    QuantType.Q5_K: (0, 2),
    QuantType.Q6_K: (208,),
    QuantType.IQ1_S: (0,),
    QuantType.IQ2_XXS: (0,),
    QuantType.IQ2_XS: (0,),
    QuantType.IQ2_S: (0,),
    QuantType.IQ3_XXS: (0,),
    QuantType.IQ3_S: (0,),
    QuantType.IQ4_NL: (0,),
    QuantType.IQ4_XS: (0,),
    QuantType.Q2_0: (0,),
}
"""Where the f16 scales of a block are."""


def random_matrix(
    quant: QuantType, n_out: int, n_cols: int, rng: np.random.Generator
) -> npt.NDArray[np.uint8]:
    """Return u8[n_out, row_bytes]; scales are of both signs, some tiny, some zero."""
    row_bytes = quant.row_bytes(n_cols)
    if quant.is_float:
        values = rng.standard_normal((n_out, n_cols)).astype(np.float32)
        if quant is QuantType.F16:
            return values.astype(np.float16).view(np.uint8)
        if quant is QuantType.BF16:
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.view(np.uint8)
    blocks = rng.integers(
        0, 256, (n_out * row_bytes // quant.n_bytes, quant.n_bytes), dtype=np.uint8
    )
    scales = (rng.standard_normal((len(blocks), 2)) * 0.05).astype(np.float16)
    kinds = rng.integers(0, 16, scales.shape)
    scales[kinds == 0] = 0
    scales[kinds == 1] = np.float16(6e-8)
    if quant is QuantType.IQ1_M:
        bits = scales[:, 0].view(np.uint16)
        for i in range(4):
            high = blocks[:, 49 + 2 * i]
            high[:] = high & 15 | ((bits >> 4 * i & 15) << 4).astype(np.uint8)
    elif quant is QuantType.MXFP4:
        blocks[:, 0] = np.where(kinds[:, 0] == 0, kinds[:, 1] % 3, 118 + kinds[:, 0])
    else:
        for field, at in enumerate(HALF_FIELDS[quant]):
            blocks[:, at : at + 2] = scales[:, field : field + 1].view(np.uint8)
    return blocks.reshape(n_out, row_bytes)
