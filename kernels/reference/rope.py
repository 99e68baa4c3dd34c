"""What rotary position embedding means."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]


def rope_angles(positions: npt.NDArray[np.int32], frequencies: F32, magnitude: float = 1.0) -> F32:
    """Return cosine and sine of position * frequency, times magnitude.

    Shapes:
        positions: i32[n_rows]; frequencies: f32[n_pairs]; result: f32[n_rows, n_pairs, 2].
    """
    angles = positions[:, None].astype(np.float64) * frequencies.astype(np.float64)
    return (np.stack([np.cos(angles), np.sin(angles)], axis=-1) * magnitude).astype(np.float32)


def rope(x: F32, angles: F32, *, is_pairs: bool) -> F32:
    """Rotate the first 2 * n_pairs values of every head.

    Args:
        x: queries or keys.
        angles: from `rope_angles`.
        is_pairs: value 2j turns with 2j + 1; otherwise j with j + n_pairs.

    Shapes:
        x: f32[n_rows, n_heads, head_dim]; angles: f32[n_rows, n_pairs, 2]; result: as x.

    Source:
        Su et al. 2021, "RoFormer", equation 34.
    """
    n_pairs = angles.shape[1]
    rotated = x.copy()
    if is_pairs:
        first, second = slice(0, 2 * n_pairs, 2), slice(1, 2 * n_pairs, 2)
    else:
        first, second = slice(0, n_pairs), slice(n_pairs, 2 * n_pairs)
    cosine, sine = angles[:, None, :, 0], angles[:, None, :, 1]
    rotated[..., first] = x[..., first] * cosine - x[..., second] * sine
    rotated[..., second] = x[..., first] * sine + x[..., second] * cosine
    return rotated
