"""What root-mean-square normalisation means."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]


def rms_norm(x: F32, weight: F32, epsilon: float) -> F32:
    """Return x / sqrt(mean(x^2) + epsilon) * weight.

    Shapes:
        x: f32[n_rows, n_cols]; weight: f32[n_cols]; result: f32[n_rows, n_cols].

    Source:
        Zhang and Sennrich 2019, "Root Mean Square Layer Normalization", equation 4.
    """
    mean_square = np.mean(x.astype(np.float64) ** 2, axis=-1, keepdims=True)
    normed: F32 = (x / np.sqrt(mean_square + epsilon) * weight).astype(np.float32)
    return normed
