"""The engine thread over a scripted backend: streams, faults, stopping, snapshots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from engine.config import SchedulerConfig
from engine.errors import DeviceError, EngineStoppedError, InvalidRequestError, KvPoolFullError
from engine.loop import EngineLoop
from engine.memory.chunks import PoolShape
from engine.sampling import SamplingParams
from engine.scheduler.request import GenerateRequest
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.text import TokenizerText
from engine.stats import ExpertPicks
from engine.step import EventKind, FinishReason, StepPlan, TokenEvent
from tests.scripted_backend import LetterTokenizer, ScriptedBackend, ScriptedSpec

LIMIT_S = 10.0
SHAPE = PoolShape(
    n_lanes=2, n_parked=2, context_tokens=40, chunk_cells=4, n_chunks=10, is_pooled=True
)


def ask(request_id: str, ids: Sequence[int], **changes: Any) -> GenerateRequest:
    fields: dict[str, Any] = {"sampling": SamplingParams(), "ignores_end": True}
    return GenerateRequest(
        request_id=request_id, prompt_ids=np.array(ids, np.int32), **(fields | changes)
    )


@dataclass
class Gate:
    """Holds the engine thread before each step until it is opened, and may raise in it."""

    is_open: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)
    fault: Exception | None = None

    def __call__(self, plan: StepPlan) -> None:
        self.reached.set()
        assert self.is_open.wait(LIMIT_S)
        if self.fault is not None:
            raise self.fault


MakeLoop = Callable[..., EngineLoop]


@pytest.fixture
def make_loop() -> Iterator[MakeLoop]:
    """Makes loops that are stopped after the test."""
    loops: list[EngineLoop] = []

    def make(
        *,
        gate: Callable[[StepPlan], None] | None = None,
        starts: bool = True,
        count_picks: Callable[[], ExpertPicks | None] = lambda: None,
    ) -> EngineLoop:
        backend = ScriptedBackend(ScriptedSpec(), shape=SHAPE, before_step=gate)
        scheduler = Scheduler(
            SHAPE,
            SchedulerConfig(span_tokens=8),
            text=TokenizerText(LetterTokenizer()),  # type: ignore[arg-type]
            bytes_per_cell=4,
        )
        loop = EngineLoop(scheduler, backend, is_checking=True, count_picks=count_picks)
        loops.append(loop)
        if starts:
            loop.start()
        return loop

    yield make
    for loop in loops:
        loop.stop()


class Picks:
    """Counts a pick for each time it is asked to count."""

    def __init__(self) -> None:
        self.n = 0
        self.is_still = False

    def __call__(self) -> ExpertPicks:
        self.n += not self.is_still
        return ExpertPicks(
            n_layers=1, n_experts=1, n_experts_used=1, n_picks=self.n, counts=((self.n,),)
        )


def last(events: Sequence[TokenEvent]) -> TokenEvent:
    assert [event.kind for event in events].count(EventKind.FINISH) == 1
    return events[-1]


def read(stream: Any) -> list[TokenEvent]:
    return list(stream.events(timeout_s=LIMIT_S))


def test_requests_at_once_get_the_text_they_have_alone(make_loop: MakeLoop) -> None:
    prompts = [[value, *range(1, 8)] for value in range(20, 26)]
    single = make_loop()
    expected = []
    for n, prompt in enumerate(prompts):
        expected.append(
            "".join(e.text for e in read(single.submit(ask(f"{n}", prompt, max_tokens=6))))
        )
        assert single.forget().result(LIMIT_S)
    loop = make_loop(starts=False)
    streams = [loop.submit(ask(f"{n}", one, max_tokens=6)) for n, one in enumerate(prompts)]
    loop.start()
    texts = ["".join(event.text for event in read(stream)) for stream in streams]
    assert texts == expected
    assert len(set(texts)) == len(texts)


def test_picks_are_counted_when_a_request_ends_but_not_at_each_step(make_loop: MakeLoop) -> None:
    picks = Picks()
    loop = make_loop(count_picks=picks)
    assert loop.expert_picks() is not None
    stream = loop.submit(ask("a", [1, 2, 3], max_tokens=30))
    assert last(read(stream)).finish is FinishReason.LENGTH
    told = loop.expert_picks()
    assert told is not None
    # At the start, when the engine came to rest, at the end; once a second in between.
    assert 2 <= told.n_picks < 30
    picks.is_still = True
    stream = loop.submit(ask("b", [1, 2, 3], max_tokens=3))
    read(stream)
    before = loop.expert_picks()
    read(loop.submit(ask("c", [1, 2, 3], max_tokens=3)))
    assert loop.expert_picks() is before


def test_without_experts_there_are_no_picks(make_loop: MakeLoop) -> None:
    loop = make_loop()
    read(loop.submit(ask("a", [1, 2, 3], max_tokens=3)))
    assert loop.expert_picks() is None


def test_subscriber_on_another_thread_gets_everything(make_loop: MakeLoop) -> None:
    done = threading.Event()
    got: list[TokenEvent] = []

    def take(event: TokenEvent) -> None:
        got.append(event)
        if event.kind is EventKind.FINISH:
            done.set()

    make_loop().submit(ask("a", [1, 2, 3], max_tokens=5)).subscribe(take)
    assert done.wait(LIMIT_S)
    assert [event.kind.value for event in got] == ["progress", *5 * ["token"], "finish"]


def test_cancel_ends_a_running_request(make_loop: MakeLoop) -> None:
    gate = Gate()
    loop = make_loop(gate=gate)
    stream = loop.submit(ask("a", [1, 2, 3]))
    assert gate.reached.wait(LIMIT_S)
    stream.cancel()
    gate.is_open.set()
    events = read(stream)
    assert last(events).finish is FinishReason.CANCELLED
    assert len(events) == 3  # the step in flight counts, none after it
    loop.cancel("a")
    loop.cancel("never seen")
    assert last(read(loop.submit(ask("a", [1, 2], max_tokens=1)))).finish is FinishReason.LENGTH


def test_refusal_is_told_at_once_and_the_next_one_runs(make_loop: MakeLoop) -> None:
    gate = Gate()
    loop = make_loop(gate=gate)
    long = loop.submit(ask("long", [1] * 33, max_tokens=2))
    assert gate.reached.wait(LIMIT_S)
    full = loop.submit(ask("full", [2] * 8, max_tokens=2))
    fits = loop.submit(ask("fits", [3] * 3, max_tokens=2))
    gate.reached.clear()
    gate.is_open.set()
    error = last(read(full)).error
    assert isinstance(error, KvPoolFullError)
    assert error.code == "kv_pool_full"
    for stream in (long, fits):
        assert last(read(stream)).finish is FinishReason.LENGTH
    assert loop.snapshot().requests.refused == 1


def test_device_fault_ends_every_request_and_the_engine(
    make_loop: MakeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate(fault=OSError("the cable is out"))
    loop = make_loop(gate=gate)
    streams = [loop.submit(ask(name, [1, 2, 3])) for name in "abc"]
    gate.is_open.set()
    for stream in streams:
        error = last(read(stream)).error
        assert isinstance(error, DeviceError)
        assert isinstance(error.__cause__, OSError)
    with pytest.raises(EngineStoppedError, match="the cable is out"):
        loop.submit(ask("d", [1]))
    with pytest.raises(EngineStoppedError):
        loop.forget().result(LIMIT_S)
    assert isinstance(loop.error, DeviceError)
    assert not loop.snapshot().is_busy
    assert [record.levelname for record in caplog.records] == ["CRITICAL"]
    caplog.clear()


def test_broken_scheduler_still_ends_every_request(
    make_loop: MakeLoop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise AssertionError("books do not balance")

    monkeypatch.setattr(Scheduler, "check", fail)
    monkeypatch.setattr(Scheduler, "abort", fail)
    stream = make_loop().submit(ask("a", [1, 2, 3]))
    assert isinstance(last(read(stream)).error, DeviceError)
    assert "books do not balance" in str(caplog.records[0].exc_info)
    caplog.clear()


def test_stop_ends_open_requests_and_refuses_later_ones(make_loop: MakeLoop) -> None:
    gate = Gate()
    loop = make_loop(gate=gate)
    streams = [loop.submit(ask(name, [1, 2, 3])) for name in "abc"]
    assert gate.reached.wait(LIMIT_S)
    stopper = threading.Thread(target=loop.stop)
    stopper.start()
    gate.is_open.set()
    for stream in streams:
        assert isinstance(last(read(stream)).error, EngineStoppedError)
    stopper.join(LIMIT_S)
    assert not stopper.is_alive()
    with pytest.raises(EngineStoppedError):
        loop.submit(ask("d", [1]))
    loop.stop()


def test_loop_that_never_started_can_be_stopped(make_loop: MakeLoop) -> None:
    loop = make_loop(starts=False)
    stream = loop.submit(ask("a", [1]))
    loop.stop()
    assert isinstance(last(read(stream)).error, EngineStoppedError)


def test_id_in_use_is_refused(make_loop: MakeLoop) -> None:
    gate = Gate()
    loop = make_loop(gate=gate)
    stream = loop.submit(ask("a", [1, 2], max_tokens=2))
    with pytest.raises(InvalidRequestError, match="'a' belongs to a request that still runs"):
        loop.submit(ask("a", [3]))
    gate.is_open.set()
    assert last(read(stream)).finish is FinishReason.LENGTH


def test_callback_that_fails_loses_its_request_alone(
    make_loop: MakeLoop, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(event: TokenEvent) -> None:
        raise RuntimeError("the window is closed")

    gate = Gate()
    loop = make_loop(gate=gate)
    loop.submit(ask("bad", [1, 2, 3], max_tokens=30)).subscribe(fail)
    good = loop.submit(ask("good", [4, 5, 6], max_tokens=5))
    gate.is_open.set()
    assert last(read(good)).finish is FinishReason.LENGTH
    assert loop.snapshot().requests.cancelled == 1
    assert "bad: its callback failed" in caplog.text
    caplog.clear()


def test_snapshot_is_true_once_the_finish_is_seen(make_loop: MakeLoop) -> None:
    loop = make_loop()
    assert loop.snapshot().kv_pool.free == 40
    read(loop.submit(ask("a", [1, 2, 3], max_tokens=4)))
    snapshot = loop.snapshot()
    assert snapshot.requests.finished == 1
    assert snapshot.work.n_completion_tokens == 4
    assert [one.state for one in snapshot.kv_pool.sessions] == ["idle"]
    later = loop.snapshot()
    assert later.kv_pool.sessions[0].idle_s > snapshot.kv_pool.sessions[0].idle_s
    assert loop.forget(["s1"]).result(LIMIT_S) == ("s1",)
    pool = loop.snapshot().kv_pool
    assert (pool.free, pool.sessions) == (40, ())


def test_idle_engine_sleeps(make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    n_plans = [0]
    plan = Scheduler.plan

    def count(self: Scheduler) -> StepPlan | None:
        n_plans[0] += 1
        return plan(self)

    monkeypatch.setattr(Scheduler, "plan", count)
    loop = make_loop()
    read(loop.submit(ask("a", [1, 2, 3], max_tokens=3)))
    loop.forget().result(LIMIT_S)
    loop.stop()
    # three steps, one that finds nothing to do, one after each later command at most
    assert n_plans[0] <= 6
