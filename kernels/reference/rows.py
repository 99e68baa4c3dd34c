"""What the small ops on whole rows mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]


def add(x: F32, y: F32) -> F32:
    """Return x + y (the kernels write it to x).

    Shapes:
        x, y, result: f32[n_rows, n_cols].
    """
    return x + y


def gather_rows(x: F32, rows: I32) -> F32:
    """Return some of the rows.

    Shapes:
        x: f32[n, n_cols]; rows: i32[n_rows]; result: f32[n_rows, n_cols].
    """
    return x[rows]


def argmax(x: F32) -> I32:
    """Return the index of the largest value of each row, the first of equals.

    Shapes:
        x: f32[n_rows, n_cols]; result: i32[n_rows].
    """
    best: I32 = np.argmax(x, axis=-1).astype(np.int32)
    return best
