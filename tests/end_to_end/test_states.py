"""Hybrid models behind the real scheduler: kept, parked and loaded states change no bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.backend.cpu import CpuBackend
from engine.config import SchedulerConfig
from engine.memory.chunks import PoolShape
from engine.sampling import SamplingParams
from engine.scheduler.request import GenerateRequest
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.text import TokenizerText
from engine.step import EventKind, LoadState, StepPlan, Usage
from tests.engine.models.goldens import COMMITTED, open_backend
from tests.scripted_backend import LetterTokenizer

Array = npt.NDArray[Any]

FILES = ["qwen4exp-t-f16", "qwen4exp-q-iq2_xs", "qwen35moe-t-f16-fused", "qwen3next-t-bf16"]
POOLED = PoolShape(
    n_lanes=2, n_parked=3, context_tokens=512, chunk_cells=64, n_chunks=24, is_pooled=True
)
LANES = PoolShape(
    n_lanes=2, n_parked=0, context_tokens=512, chunk_cells=64, n_chunks=16, is_pooled=False
)
N_ANSWER = 6


def make_ids(seed: int, n_ids: int) -> list[int]:
    ids: list[int] = np.random.default_rng(seed).integers(0, 2000, n_ids).tolist()
    return ids


SYSTEM = make_ids(1, 101)
TURN = [*SYSTEM, *make_ids(2, 90)]


class Engine:
    """A scheduler over a real backend; the logits each token was picked from are kept."""

    def __init__(self, backend: CpuBackend, shape: PoolShape, **config: Any) -> None:
        self.backend = backend
        self.plans: list[StepPlan] = []
        self.logits: dict[str, list[Array]] = defaultdict(list)
        self.ids: dict[str, list[int]] = defaultdict(list)
        self.usage: dict[str, Usage] = {}
        self.scheduler = Scheduler(
            shape,
            SchedulerConfig(**({"span_tokens": 64} | config)),
            text=TokenizerText(LetterTokenizer()),  # type: ignore[arg-type]
            bytes_per_cell=backend.kv_bytes_per_cell,
            state_bytes=backend.state_bytes_per_lane,
        )

    def add(self, name: str, ids: Sequence[int], marks: tuple[int, ...] = ()) -> None:
        self.scheduler.add(
            GenerateRequest(
                request_id=name,
                prompt_ids=np.array(ids, np.int32),
                sampling=SamplingParams(),
                max_tokens=N_ANSWER,
                ignores_end=True,
                marks=marks,
            )
        )

    def step(self) -> bool:
        plan = self.scheduler.plan()
        if plan is None:
            return False
        self.plans.append(plan)
        result = self.backend.run(plan)
        for event in self.scheduler.commit(plan, result):
            name = event.request_id
            if event.kind is EventKind.TOKEN and event.token_id is not None:
                # The lanes' logits are told apart by the token that was picked from them.
                rows = [row for row in result.logits.values() if row.argmax() == event.token_id]
                self.ids[name].append(event.token_id)
                self.logits[name].append(rows[0])
            elif event.kind is EventKind.FINISH:
                assert event.error is None, event.error
                self.usage[name] = event.usage
        self.scheduler.check()
        return True

    def run(self, name: str, ids: Sequence[int], marks: tuple[int, ...] = ()) -> list[int]:
        """Run one request alone to its end; returns where its spans start."""
        n_plans = len(self.plans)
        self.add(name, ids, marks)
        while self.step():
            pass
        return [plan.spans[0].start for plan in self.plans[n_plans:] if plan.spans]


def expect(backend: CpuBackend, prompts: dict[str, Sequence[int]]) -> dict[str, list[Array]]:
    """Logits of each prompt and its answer, read at once in an empty lane without any state."""
    logits = {}
    for name, ids in prompts.items():
        one = Engine(backend, LANES, max_snapshots=0, span_tokens=512)
        one.run(name, ids)
        logits[name] = one.logits[name]
    return logits


def assert_same_bits(had: dict[str, list[Array]], wanted: dict[str, list[Array]]) -> None:
    for name, rows in wanted.items():
        assert len(had[name]) == len(rows) == N_ANSWER
        assert all(np.array_equal(*pair) for pair in zip(had[name], rows, strict=True)), name


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("shape", [POOLED, LANES], ids=["pooled", "lanes"])
def test_turns_edits_and_parked_conversations_continue_bit_for_bit(
    file: str, shape: PoolShape
) -> None:
    path = COMMITTED / f"{file}.gguf"
    sizes = {"n_lanes": 2, "context_tokens": 512, "chunk_cells": 64}
    prompts: dict[str, Sequence[int]] = {"first": TURN}
    with open_backend(path, **sizes, n_chunks=shape.n_chunks, is_pooled=shape.is_pooled) as backend:
        engine = Engine(backend, shape)
        engine.run("first", TURN, (101, 188))
        known = [*TURN, *engine.ids["first"]]
        prompts["next"] = [*known, *make_ids(3, 45)]
        assert engine.run("next", prompts["next"], (101, 188, 240))[:2] == [196, 240]
        prompts["edited"] = [*known, *make_ids(4, 33)]
        assert engine.run("edited", prompts["edited"], (101, 188, 226))[0] == 196
        prompts["again"] = prompts["edited"]
        assert engine.run("again", prompts["again"], (101, 188, 226))[0] == 226
        assert engine.usage["again"].n_cached_tokens == 226
        prompts["other"] = [*SYSTEM, *make_ids(5, 20)]
        start = engine.run("other", prompts["other"], (101, 118))[0]
        assert start == (101 if shape.is_pooled else 0)
        prompts["third"] = make_ids(6, 70)
        engine.run("third", prompts["third"])
        prompts["fourth"] = make_ids(7, 70)
        engine.run("fourth", prompts["fourth"])
        again = [*prompts["again"], *engine.ids["again"]]
        prompts["back"] = [*again, *make_ids(8, 10)]
        start = engine.run("back", prompts["back"])[0]
        assert start == (len(again) - 1 if shape.is_pooled else 0)
    n_loads = sum(isinstance(op, LoadState) for plan in engine.plans for op in plan.state_ops)
    assert n_loads >= (4 if shape.is_pooled else 2)
    with open_backend(path, **sizes, n_chunks=16) as backend:
        assert_same_bits(engine.logits, expect(backend, prompts))


@pytest.mark.parametrize("file", FILES[1:3])
def test_read_that_gives_way_twice_continues_bit_for_bit(file: str) -> None:
    path = COMMITTED / f"{file}.gguf"
    sizes = {"context_tokens": 512, "chunk_cells": 64}
    shape = PoolShape(
        n_lanes=1, n_parked=3, context_tokens=512, chunk_cells=64, n_chunks=16, is_pooled=True
    )
    prompts = {"long": make_ids(11, 400), "a": make_ids(12, 40), "b": make_ids(13, 50)}
    with open_backend(path, **sizes, n_chunks=16, is_pooled=True) as backend:
        engine = Engine(backend, shape, span_tokens=37)
        engine.add("long", prompts["long"])
        engine.step()
        engine.add("a", prompts["a"])
        engine.step()
        assert [one.state for one in engine.scheduler.snapshot().kv_pool.sessions] == [
            "waiting",
            "reading",
        ]
        engine.add("b", prompts["b"])
        while engine.step():
            pass
        assert engine.usage["long"].n_cached_tokens == 0
        assert engine.scheduler.snapshot().work.n_prompt_tokens == 400 + 40 + 50
    with open_backend(path, **sizes, n_lanes=2, n_chunks=16) as backend:
        assert_same_bits(engine.logits, expect(backend, prompts))
