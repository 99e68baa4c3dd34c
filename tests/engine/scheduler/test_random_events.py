"""Random events on a pool of ten chunks: every invariant holds, every text is the one alone."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

from engine.memory.chunks import PoolShape
from engine.sampling import SamplingParams
from engine.step import FinishReason, LoadState
from tests.engine.scheduler.rig import Rig, alone, make_shape

N_EVENTS = 2000
POOLED = make_shape(
    n_lanes=3, n_parked=3, chunk_cells=40, n_chunks=10, context_tokens=240, is_pooled=True
)
LANES = make_shape(
    n_lanes=3, n_parked=0, chunk_cells=40, n_chunks=18, context_tokens=240, is_pooled=False
)


@cache
def text_alone(
    prompt: tuple[int, ...], max_tokens: int, seed: int | None, *, is_recurrent: bool = False
) -> str:
    rig = alone(prompt, is_recurrent=is_recurrent, max_tokens=max_tokens, sampling=sampling(seed))
    return rig.text("alone")


def sampling(seed: int | None) -> SamplingParams:
    """Greedy without a seed."""
    return SamplingParams(temperature=0.0 if seed is None else 1.0, seed=seed)


class Crowd:
    """Clients that start, edit, continue and give up conversations at random."""

    def __init__(self, shape: PoolShape, seed: int, **rig: Any) -> None:
        self.random = random.Random(seed)
        self.is_recurrent = bool(rig.get("is_recurrent"))
        self.rig = Rig(shape, span_tokens=24, **rig)
        self.asked: dict[str, tuple[tuple[int, ...], int, int | None]] = {}
        self.open: list[str] = []
        self.known: list[tuple[int, ...]] = [()]
        self.n_done = dict.fromkeys(FinishReason, 0)

    def act(self) -> None:
        pick = self.random.random()
        if pick < 0.12 and len(self.open) < 6:
            self.ask()
        elif pick < 0.14 and self.open:
            self.rig.scheduler.cancel(self.random.choice(self.open))
        elif pick < 0.15:
            ids = list(self.rig.sessions())
            self.rig.scheduler.forget(self.random.sample(ids, len(ids) // 2))
        else:
            self.rig.step()
        self.rig.scheduler.check()
        self.settle()

    def ask(self) -> None:
        draw = self.random
        start = draw.choice(self.known)
        start = start[: draw.randint(len(start) // 2, len(start))]
        prompt = (*start, *draw.choices(range(1, 64), k=draw.choice([1, 5, 30, 90])))[:200]
        name = f"r{len(self.asked)}"
        max_tokens = min(draw.choice([1, 5, 20, 60]), 240 - len(prompt))
        seed = draw.choice([None, draw.randint(0, 99)])
        key = draw.choice(["", "", "k1", "k2"])
        self.asked[name] = prompt, max_tokens, seed
        self.open.append(name)
        marks: list[int] = []
        if self.is_recurrent:
            n_marks = draw.randint(0, min(3, len(prompt)))
            marks = sorted(draw.sample(range(1, len(prompt) + 1), n_marks))
        self.rig.add(
            name,
            prompt,
            max_tokens=max_tokens,
            sampling=sampling(seed),
            session_key=key,
            marks=tuple(marks),
        )

    def settle(self) -> None:
        """Compare every request that has ended with the same one alone."""
        self.rig.note(self.rig.scheduler.take_events())
        for name in self.open.copy():
            events = self.rig.events[name]
            if not events or events[-1].finish is None:
                continue
            self.open.remove(name)
            finish = events[-1].finish
            self.n_done[finish] += 1
            prompt, max_tokens, seed = self.asked[name]
            text = self.rig.text(name)
            expected = text_alone(prompt, max_tokens, seed, is_recurrent=self.is_recurrent)
            if finish is FinishReason.LENGTH:
                assert text == expected, f"{name}: prompt of {len(prompt)}"
                self.known = [*self.known[-7:], (*prompt, *self.rig.ids(name))]
            else:
                assert expected.startswith(text), f"{name} ended with {finish}"
                assert finish is not FinishReason.STOP


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_pool_keeps_every_invariant_and_every_text(seed: int) -> None:
    crowd = Crowd(POOLED, seed)
    for _ in range(N_EVENTS):
        crowd.act()
    crowd.rig.run()
    crowd.settle()
    assert not crowd.open
    work = crowd.rig.scheduler.snapshot().work
    done = crowd.n_done
    assert done[FinishReason.LENGTH] > 50
    assert min(done[FinishReason.CANCELLED], done[FinishReason.ERROR]) > 0
    assert min(work.n_swaps, work.n_evictions, work.copied_bytes, work.n_cached_tokens) > 0
    crowd.rig.scheduler.forget()
    pool = crowd.rig.scheduler.snapshot().kv_pool
    assert (pool.free, pool.sessions) == (pool.cells, ())
    crowd.rig.scheduler.check()


def test_lanes_without_a_pool_keep_every_text() -> None:
    crowd = Crowd(LANES, 4)
    for _ in range(N_EVENTS):
        crowd.act()
    crowd.rig.run()
    crowd.settle()
    assert crowd.n_done[FinishReason.LENGTH] > 50
    assert crowd.n_done[FinishReason.ERROR] == crowd.n_done[FinishReason.POOL] == 0
    assert all(not plan.tables and not plan.copies for plan in crowd.rig.backend.plans)


@pytest.mark.parametrize(("seed", "max_snapshots"), [(5, 0), (6, 1), (7, 3), (8, 16)])
def test_recurrent_states_keep_every_text_on_a_pool(seed: int, max_snapshots: int) -> None:
    crowd = Crowd(POOLED, seed, is_recurrent=True, max_snapshots=max_snapshots)
    for _ in range(N_EVENTS):
        crowd.act()
        check_snapshots(crowd.rig)
    crowd.rig.run()
    crowd.settle()
    assert not crowd.open
    work = crowd.rig.scheduler.snapshot().work
    assert crowd.n_done[FinishReason.LENGTH] > 50
    assert work.n_evictions > 0
    assert work.n_cached_tokens > 0
    if max_snapshots:
        ops = [op for plan in crowd.rig.backend.plans for op in plan.state_ops]
        assert min(len([op for op in ops if isinstance(op, LoadState)]), work.n_swaps) > 10
    forget_all(crowd.rig)


@pytest.mark.parametrize(("seed", "max_snapshots"), [(9, 0), (10, 3)])
def test_recurrent_states_keep_every_text_without_a_pool(seed: int, max_snapshots: int) -> None:
    crowd = Crowd(LANES, seed, is_recurrent=True, max_snapshots=max_snapshots)
    for _ in range(N_EVENTS):
        crowd.act()
        check_snapshots(crowd.rig)
    crowd.rig.run()
    crowd.settle()
    assert crowd.n_done[FinishReason.LENGTH] > 50
    assert crowd.rig.scheduler.snapshot().work.n_cached_tokens > 0
    forget_all(crowd.rig)


def check_snapshots(rig: Rig) -> None:
    """The bound holds at every moment, on the shelf and in the backend."""
    states = rig.scheduler.snapshot().states
    assert states.count <= states.limit
    assert rig.backend.most_snapshots <= states.limit


def forget_all(rig: Rig) -> None:
    """Nothing is left when all conversations are forgotten."""
    rig.scheduler.forget()
    rig.run()
    snapshot = rig.scheduler.snapshot()
    assert (snapshot.kv_pool.free, snapshot.kv_pool.sessions) == (snapshot.kv_pool.cells, ())
    assert (snapshot.states.count, rig.backend.snapshots) == (0, {})
    rig.scheduler.check()
