"""A scheduler over a scripted backend, stepped by hand, with a clock that ticks by the call."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.config import SchedulerConfig
from engine.memory.chunks import PoolShape
from engine.sampling import SamplingParams
from engine.scheduler.request import GenerateRequest
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.text import TokenizerText
from engine.step import EventKind, StepPlan, TokenEvent
from tests.scripted_backend import LetterTokenizer, ScriptedBackend, ScriptedSpec


def make_shape(**changes: Any) -> PoolShape:
    sizes: dict[str, Any] = {
        "n_lanes": 2,
        "n_parked": 2,
        "context_tokens": 40,
        "chunk_cells": 4,
        "n_chunks": 10,
        "is_pooled": True,
    }
    return PoolShape(**(sizes | changes))


def make_request(request_id: str, ids: Sequence[int], **changes: Any) -> GenerateRequest:
    fields: dict[str, Any] = {"sampling": SamplingParams(), "ignores_end": True}
    return GenerateRequest(
        request_id=request_id, prompt_ids=np.array(ids, np.int32), **(fields | changes)
    )


class Rig:
    """Everything that happened is kept: plans, and events by request."""

    def __init__(
        self,
        shape: PoolShape | None = None,
        *,
        n_vocab: int = 64,
        is_recurrent: bool = False,
        **config: Any,
    ) -> None:
        self.now_s = 0.0
        self.shape = shape or make_shape()
        spec = ScriptedSpec(n_vocab=n_vocab, has_recurrent_state=is_recurrent)
        self.backend = ScriptedBackend(spec, shape=self.shape)
        self.scheduler = Scheduler(
            self.shape,
            SchedulerConfig(**({"span_tokens": 8} | config)),
            text=TokenizerText(LetterTokenizer()),
            bytes_per_cell=4,
            state_bytes=self.backend.state_bytes_per_lane,
            clock=self._tick,
        )
        self.events: dict[str, list[TokenEvent]] = defaultdict(list)

    def _tick(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def add(self, request_id: str, ids: Sequence[int], **changes: Any) -> None:
        self.scheduler.add(make_request(request_id, ids, **changes))

    def step(self) -> StepPlan | None:
        """One step, with every invariant checked after it."""
        plan = self.scheduler.plan()
        self.note(self.scheduler.take_events())
        self.scheduler.check()
        if plan is not None:
            self.note(self.scheduler.commit(plan, self.backend.run(plan)))
            self.scheduler.check()
        return plan

    def run(self, n_steps: int = 2000) -> None:
        """Steps until there is nothing to do."""
        for _ in range(n_steps):
            if self.step() is None:
                return
        raise AssertionError(f"still busy after {n_steps} steps")

    def note(self, events: list[TokenEvent]) -> None:
        for event in events:
            before = self.events[event.request_id]
            assert not before or before[-1].kind is not EventKind.FINISH, f"after FINISH: {event}"
            before.append(event)

    def finish(self, request_id: str) -> TokenEvent:
        self.note(self.scheduler.take_events())
        last = self.events[request_id][-1]
        assert last.kind is EventKind.FINISH
        return last

    def ids(self, request_id: str) -> list[int]:
        return [event.token_id for event in self.events[request_id] if event.token_id is not None]

    def text(self, request_id: str) -> str:
        return "".join(event.text for event in self.events[request_id])

    def sessions(self) -> dict[str, Any]:
        return {one.id: one for one in self.scheduler.snapshot().kv_pool.sessions}

    def chunks(self) -> list[str]:
        """Holders of each chunk, joined, e.g. ["s1", "s1 s2", ""]."""
        return [" ".join(one.sessions) for one in self.scheduler.snapshot().kv_pool.chunks]


def alone(
    ids: Sequence[int],
    *,
    shape: PoolShape | None = None,
    is_recurrent: bool = False,
    **changes: Any,
) -> Rig:
    """The same request alone on an empty engine; its id is "alone"."""
    large = make_shape(chunk_cells=64, context_tokens=768, n_chunks=12)
    rig = Rig(shape or large, span_tokens=256, is_recurrent=is_recurrent, max_snapshots=0)
    rig.add("alone", ids, **changes)
    rig.run()
    return rig
