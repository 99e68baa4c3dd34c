"""What looking up token rows means."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kernels.quants import QuantType
from kernels.reference.quants import dequantize

F32 = npt.NDArray[np.float32]


def embed(
    table: npt.NDArray[np.uint8], ids: npt.NDArray[np.int32], quant: QuantType, n_cols: int
) -> F32:
    """Return the dequantised rows of a table.

    Shapes:
        table: u8[n_vocab, row_bytes]; ids: i32[n_rows]; result: f32[n_rows, n_cols].
    """
    return dequantize(table[ids], quant, n_cols)
