"""The router's choices of a backend as a frozen value; counting them is the backend's."""

from __future__ import annotations

from engine.backend.base import Backend
from engine.stats import ExpertPicks


def read_picks(backend: Backend) -> ExpertPicks | None:
    """Return how often each expert was picked since the load, None for a model without experts.

    Called between two steps only: in the midst of one, some layers have counted it and some not.
    """
    counts = backend.expert_counts()
    if counts is None:
        return None
    n_layers, n_experts = counts.shape
    return ExpertPicks(
        n_layers=n_layers,
        n_experts=n_experts,
        n_experts_used=backend.spec.n_experts_used,
        n_picks=int(counts.sum()),
        counts=tuple(tuple(row) for row in counts.tolist()),
    )
