"""What the routed experts of a layer compute, and what is left out when some are not at hand."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I32 = npt.NDArray[np.int32]


def experts_gate_up(x: F64, gate: F64, up: F64, expert_ids: I32) -> F64:
    """Return silu(gate x) * (up x) for every token and each of its experts.

    Shapes:
        x: [n_tokens, d_model]; gate, up: [n_experts, d_ff, d_model];
        expert_ids: i32[n_tokens, n_used]; result: f64[n_tokens, n_used, d_ff].
    """
    gated = np.einsum("tkfm,tm->tkf", gate[expert_ids], x)
    raised = np.einsum("tkfm,tm->tkf", up[expert_ids], x)
    return np.asarray(gated / (1 + np.exp(-gated)) * raised)


def experts_down(
    hidden: F64, down: F64, expert_ids: I32, weights: F32, *, is_here: npt.NDArray[np.bool_]
) -> F64:
    """Return the weighted sum over a token's experts that are at hand.

    Shapes:
        hidden: [n_tokens, n_used, d_ff]; down: [n_experts, d_model, d_ff];
        weights: f32[n_tokens, n_used]; is_here: bool[n_experts]; result: f64[n_tokens, d_model].
    """
    factors = np.where(is_here[expert_ids], weights.astype(np.float64), 0)
    # Rows of absent experts may hold anything, so they are taken out and not multiplied by zero.
    parts = np.where(is_here[expert_ids][..., None], hidden, 0)
    return np.asarray(np.einsum("tkmf,tkf,tk->tm", down[expert_ids], parts, factors))
