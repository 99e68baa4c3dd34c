"""What the small ops of hybrid models mean: norms of groups, gates, mixing of residual streams."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


def sigmoid(x: F32 | F64) -> F64:
    """Return 1 / (1 + exp(-x)).

    Shapes:
        x, result: any, the same.
    """
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))))


def silu(x: F32, scale: float = 1.0) -> F32:
    """Return z sigmoid(z) with z = scale * x.

    Shapes:
        x, result: f32[n_rows, n_cols].
    """
    z = x.astype(np.float64) * scale
    return np.asarray(z * sigmoid(z)).astype(np.float32)


def gate(x: F32, gates: F32) -> F32:
    """Return x * sigmoid(gates); each gate serves a run of values.

    Shapes:
        x, result: f32[n_rows, n_gates * n]; gates: f32[n_rows, n_gates].
    """
    n_each = x.shape[1] // gates.shape[1]
    return np.asarray(x * np.repeat(sigmoid(gates), n_each, axis=1)).astype(np.float32)


def decay(x: F32, rate: F32, bias: F32) -> F32:
    """Return exp(rate * softplus(x + bias)), what a state keeps of itself.

    Shapes:
        x, result: f32[n_rows, n_heads]; rate, bias: f32[n_heads].

    Source:
        Yang et al. 2024, "Gated Delta Networks", section 3; Gu and Dao 2023, algorithm 2.
    """
    softplus = np.logaddexp(0, x.astype(np.float64) + bias)
    return np.asarray(np.exp(rate * softplus)).astype(np.float32)


def repeat(x: F32, n_copies: int) -> F32:
    """Return copies of each row side by side.

    Shapes:
        x: f32[n_rows, n_cols]; result: f32[n_rows, n_copies * n_cols].
    """
    return np.tile(x, (1, n_copies))


def columns(x: F32, *, n_groups: int, first: int, n_taken: int) -> F32:
    """Return some columns of each group of a row.

    Shapes:
        x: f32[n_rows, n_groups * n_cols]; result: f32[n_rows, n_groups * n_taken].
    """
    groups = x.reshape(len(x), n_groups, -1)
    return groups[:, :, first : first + n_taken].reshape(len(x), -1)


def grouped_norm(x: F32, weight: F32, *, n_groups: int, epsilon: float) -> F32:
    """Return each group of a row over its root mean square, times weights of its own.

    Shapes:
        x, result: f32[n_rows, n_groups * n_cols]; weight: f32[n_groups * n_cols].
    """
    groups = x.astype(np.float64).reshape(len(x), n_groups, -1)
    mean_square = np.mean(groups**2, axis=-1, keepdims=True)
    return np.asarray((groups / np.sqrt(mean_square + epsilon)).reshape(x.shape) * weight).astype(
        np.float32
    )


def l2_norm(x: F32, *, n_heads: int, head_dim: int, epsilon: float) -> F32:
    """Return the row with each of its first heads at length 1.

    Shapes:
        x, result: f32[n_rows, n_cols].
    """
    stop = n_heads * head_dim
    heads = x[:, :stop].astype(np.float64).reshape(len(x), n_heads, head_dim)
    normed = heads / np.sqrt((heads**2).sum(axis=-1, keepdims=True) + epsilon)
    return np.concatenate([normed.reshape(len(x), stop), x[:, stop:]], axis=1).astype(np.float32)


def mix_streams(x: F32, gates: F32, *, n_streams: int) -> F32:
    """Return the mean over the streams of sigmoid(gates) * x.

    Shapes:
        x, gates: f32[n_rows, n_streams * n_cols]; result: f32[n_rows, n_cols].

    Source:
        Zhu et al. 2024, "Hyper-Connections", equation 5.
    """
    mixed = (sigmoid(gates) * x).reshape(len(x), n_streams, -1)
    return np.asarray(mixed.mean(axis=1)).astype(np.float32)


def inject(x: F32, y: F32, gates: F32) -> F32:
    """Return the streams x with 2 * sigmoid(gates / n_streams) * y added to each.

    Shapes:
        x, result: f32[n_rows, n_streams * n_cols]; y: f32[n_rows, n_cols];
        gates: f32[n_rows, n_streams].

    Source:
        Zhu et al. 2024, "Hyper-Connections", equation 6.
    """
    shares = 2 * sigmoid(gates / np.float64(gates.shape[1]))
    added = shares[:, :, None] * y[:, None, :]
    return np.asarray(x + added.reshape(x.shape)).astype(np.float32)
