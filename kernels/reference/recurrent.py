"""What ops with a state per lane mean, for the rows of one lane in order.

Each takes the state as it is and returns it as its last row leaves it, so that rows may come in any
pieces.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.reference.gates import silu

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
Floats = npt.NDArray[np.floating[Any]]


def conv(x: F32, weight: F32, state: F32, *, dilation: int = 1) -> tuple[F32, F32]:
    """Return silu of a causal depthwise convolution, and the state after it.

    Args:
        x: rows of a lane.
        weight: taps, the last one for the row itself.
        state: rows before, oldest first; zeros at the start of a lane.
        dilation: rows from tap to tap.

    Shapes:
        x, result: f32[n_rows, n_cols]; weight: f32[n_taps, n_cols];
        state: f32[(n_taps - 1) * dilation, n_cols].
    """
    n_kept = len(state)
    rows = np.concatenate([state, x]).astype(np.float64)
    total = np.zeros(x.shape)
    for tap, weights in enumerate(weight):
        total += rows[tap * dilation : tap * dilation + len(x)] * weights
    return silu(total.astype(np.float32)), rows[len(rows) - n_kept :].astype(np.float32)


def delta_rule(
    q: Floats, k: Floats, v: Floats, *, decay: Floats, strength: Floats, state: Floats
) -> tuple[F64, F64]:
    """Return what each row reads from the state, and the state after the last.

    S = decay S; S = S + k (x) strength (v - S^T k); result S^T q / sqrt(head_dim).

    Shapes:
        q, k, v, result: [n_rows, n_heads, head_dim], keys already given to value heads;
        decay, strength: [n_rows, n_heads]; state: [n_heads, head_dim, head_dim], keys down.

    Source:
        Yang et al. 2024, "Gated Delta Networks", equation 10.
    """
    held: F64 = np.array(state, np.float64)
    result: F64 = np.empty(v.shape, np.float64)
    for row in range(len(v)):
        held = held * decay[row][:, None, None]
        known = np.einsum("hkv,hk->hv", held, k[row])
        change = strength[row][:, None] * (v[row] - known)
        held = held + k[row][:, :, None] * change[:, None, :]
        result[row] = np.einsum("hkv,hk->hv", held, q[row]) / np.sqrt(v.shape[-1])
    return result, held


def key_head_of(n_value_heads: int, n_key_heads: int, *, is_tiled: bool) -> npt.NDArray[np.intp]:
    """Return which key head each value head uses.

    Shapes:
        result: i64[n_value_heads].
    """
    heads = np.arange(n_value_heads)
    return heads % n_key_heads if is_tiled else heads // (n_value_heads // n_key_heads)
