"""Which idle conversations give way when the pool is full: a pure function over ids.

It decides only; releasing chunks and telling anybody is the scheduler's.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.step import ChunkId


class Rank(enum.IntEnum):
    """Who gives way first."""

    WORTHLESS = 0
    """So short that reading it again costs nothing."""
    CACHED = 1
    """An idle conversation."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """An idle conversation that may give way.

    Attributes:
        number: identifies the session.
        rank: its group.
        last_used: counts up with every request that ends; the smaller is unused longer.
        chunks: what it holds, shared chunks included.
    """

    number: int
    rank: Rank
    last_used: int
    chunks: tuple[ChunkId, ...]


def plan_eviction(
    candidates: Sequence[Candidate],
    holders: npt.NDArray[np.int32],
    *,
    n_wanted: int,
) -> tuple[int, ...] | None:
    """Choose who gives way so that `n_wanted` chunks are free.

    Candidates are asked in order of rank, then longest unused, then lower number, until enough is
    free. A chunk counts only once its last holder is gone; who would give way without freeing
    anything stays.

    Args:
        candidates: idle conversations; busy ones must not be among them.
        holders: i32[n_chunks], rows that hold each chunk; 0 = free.
        n_wanted: chunks that must be free in the end.

    Returns:
        Numbers of those that give way, in order; empty when enough is free already; None when all
        of them together would not do, and then nobody needs to.
    """
    left = holders.copy()
    n_free = int(np.count_nonzero(left == 0))
    order = sorted(candidates, key=lambda one: (one.rank, one.last_used, one.number))
    chosen: list[Candidate] = []
    for candidate in order:
        if n_free >= n_wanted:
            break
        chosen.append(candidate)
        held = list(candidate.chunks)
        left[held] -= 1
        n_free += int(np.count_nonzero(left[held] == 0))
    if n_free < n_wanted:
        return None
    for candidate in reversed(chosen.copy()):
        held = list(candidate.chunks)
        if not np.any(left[held] == 0):
            left[held] += 1
            chosen.remove(candidate)
    return tuple(candidate.number for candidate in chosen)
