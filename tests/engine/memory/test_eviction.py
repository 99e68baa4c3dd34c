"""Who gives way, in which order, on ten chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from engine.memory.eviction import Candidate, Rank, plan_eviction
from engine.step import ChunkId


def idle(
    number: int, chunks: Sequence[int], *, used: int = 0, rank: Rank = Rank.CACHED
) -> Candidate:
    held = tuple(ChunkId(chunk) for chunk in chunks)
    return Candidate(number=number, rank=rank, last_used=used, chunks=held)


def plan(
    candidates: Sequence[Candidate], n_wanted: int, *, busy: Sequence[int] = ()
) -> tuple[int, ...] | None:
    """Plan over ten chunks that the candidates and busy sessions hold."""
    holders = np.zeros(10, np.int32)
    for candidate in candidates:
        holders[list(candidate.chunks)] += 1
    holders[list(busy)] += 1
    before = holders.copy()
    chosen = plan_eviction(candidates, holders, n_wanted=n_wanted)
    assert np.array_equal(holders, before)
    return chosen


def test_nobody_goes_while_enough_is_free() -> None:
    assert plan([idle(1, [0, 1])], 8) == ()


def test_longest_unused_goes_first_and_no_more_than_needed() -> None:
    sessions = [idle(1, [0, 1, 2], used=9), idle(2, [3, 4], used=5), idle(3, [5, 6, 7], used=7)]
    assert plan(sessions, 3, busy=[8, 9]) == (2, 3)
    assert plan(sessions, 2, busy=[8, 9]) == (2,)
    assert plan(sessions, 8, busy=[8, 9]) == (2, 3, 1)


def test_worthless_goes_before_longer_unused() -> None:
    sessions = [idle(1, [0, 1], used=1), idle(2, [2, 3], used=9, rank=Rank.WORTHLESS)]
    assert plan(sessions, 2, busy=range(4, 10)) == (2,)


def test_lower_number_goes_first_among_equals() -> None:
    sessions = [idle(5, [0]), idle(3, [1]), idle(4, [2])]
    assert plan(sessions, 2, busy=range(3, 10)) == (3, 4)


def test_nobody_goes_if_all_together_would_not_do() -> None:
    sessions = [idle(1, [0, 1]), idle(2, [2, 3])]
    assert plan(sessions, 5, busy=range(4, 10)) is None
    assert plan(sessions, 4, busy=range(4, 10)) == (1, 2)


def test_chunk_shared_with_a_survivor_does_not_count() -> None:
    sessions = [idle(1, [0, 1, 2], used=1)]
    assert plan(sessions, 2, busy=[0, 1, *range(3, 10)]) is None
    assert plan(sessions, 1, busy=[0, 1, *range(3, 10)]) == (1,)


def test_chunks_shared_among_the_idle_count_once_the_last_goes() -> None:
    sessions = [idle(1, [0, 1], used=1), idle(2, [0, 1], used=2)]
    assert plan(sessions, 2, busy=range(2, 10)) == (1, 2)


def test_who_frees_nothing_stays() -> None:
    sessions = [idle(1, [0, 1], used=1), idle(2, [2, 3], used=2)]
    assert plan(sessions, 2, busy=[0, 1, *range(4, 10)]) == (2,)


@pytest.mark.parametrize("n_wanted", range(11))
def test_plan_frees_what_it_says(n_wanted: int) -> None:
    rng = np.random.default_rng(7)
    for _ in range(50):
        sessions = [
            idle(n, sorted(rng.choice(10, rng.integers(0, 5), replace=False)), used=int(used))
            for n, used in enumerate(rng.permutation(4))
        ]
        busy = sorted(rng.choice(10, 3, replace=False))
        chosen = plan(sessions, n_wanted, busy=busy)
        left = [] if chosen is None else [one for one in sessions if one.number not in chosen]
        kept = {chunk for one in left for chunk in one.chunks} | set(busy)
        if chosen is None:
            assert 10 - len(set(busy)) < n_wanted
        else:
            assert 10 - len(kept) >= n_wanted
