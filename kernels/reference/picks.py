"""What routing to experts means: picks, their order by expert, and the sum of their results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]


def route(logits: F32, n_used: int) -> tuple[I32, F32]:
    """Return the experts with the largest logits, the first of equals, and softmax over those.

    It is the same as softmax over all, of which the largest are divided by their sum.

    Shapes:
        logits: f32[n_rows, n_experts]; result: i32[n_rows, n_used], f32[n_rows, n_used].
    """
    experts = np.argsort(-logits, axis=1, kind="stable")[:, :n_used].astype(np.int32)
    best = np.take_along_axis(logits, experts, axis=1).astype(np.float64)
    shares = np.exp(best - best[:, :1])
    return experts, (shares / shares.sum(axis=1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Picks:
    """Picks sorted by expert, then by row.

    Shapes:
        rows: i32[n_picks]; places: i32[n_rows, n_used], where each pick went;
        groups: i32[n_picked_experts], ascending; firsts: i32[n_picked_experts + 1].
    """

    rows: I32
    places: I32
    groups: I32
    firsts: I32


def group_picks(experts: I32) -> Picks:
    """Sort picks.

    Shapes:
        experts: i32[n_rows, n_used].
    """
    order = np.argsort(experts.reshape(-1), kind="stable")
    places = np.empty(order.shape, np.int32)
    places[order] = np.arange(len(order))
    groups, counts = np.unique(experts, return_counts=True)
    return Picks(
        rows=(order // experts.shape[1]).astype(np.int32),
        places=places.reshape(experts.shape),
        groups=groups.astype(np.int32),
        firsts=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
    )


def matmul_picks(x: F32, weight: F32, picks: Picks) -> F32:
    """Return each picked row times the weight of its expert.

    Shapes:
        x: f32[n_picks, n_cols]; weight: f32[n_experts, n_out, n_cols]; result: f32[n_picks, n_out].
    """
    result = np.empty((len(x), weight.shape[1]), np.float32)
    for group, expert in enumerate(picks.groups):
        rows = slice(picks.firsts[group], picks.firsts[group + 1])
        result[rows] = x[rows].astype(np.float64) @ weight[expert].T.astype(np.float64)
    return result


def sum_picks(x: F32, picks: Picks, shares: F32) -> F32:
    """Return the weighted sum of the picks of each row.

    Shapes:
        x: f32[n_picks, n_cols]; shares: f32[n_rows, n_used]; result: f32[n_rows, n_cols].
    """
    chosen = x[picks.places].astype(np.float64)
    return np.asarray(np.einsum("ruc,ru->rc", chosen, shares)).astype(np.float32)
