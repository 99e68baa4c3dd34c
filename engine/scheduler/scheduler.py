"""The scheduler: which request computes what in the next step, and what came of the last one.

It is owned by the engine thread and computes nothing itself; `engine.loop` calls it, a backend runs
its plans. Where conversations live is `engine.scheduler.rows`, whose turn it is
`engine.scheduler.policy`.

    add -> WAITING --lane, cells--> READING --last span--> WRITING --> one FINISH event
              ^                        |
              +---- its read gave way -+
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from engine.config import SchedulerConfig
from engine.errors import ContextLengthError, KvPoolFullError, QueueFullError
from engine.memory.chunks import PoolShape
from engine.sampling import Sampler
from engine.scheduler.admission import Admission
from engine.scheduler.counts import Counts
from engine.scheduler.policy import choose_reader, overtaken
from engine.scheduler.request import GenerateRequest, OpenRequest, Phase, TextFactory
from engine.scheduler.rows import SessionRows
from engine.scheduler.session import Session
from engine.scheduler.snapshot import pool_snapshot, state_snapshot
from engine.stats import EngineSnapshot
from engine.step import (
    EventKind,
    FinishReason,
    LaneId,
    Logits,
    SaveState,
    Span,
    StepPlan,
    StepResult,
    TokenEvent,
    TokenId,
)

_log = logging.getLogger(__name__)


class Scheduler:
    """Sessions, the queue, and the rules that join them into steps.

    Args:
        shape: sizes of the pool; the backend must have been made with the same.
        config: how a step is filled.
        text: end tokens and assemblers of the model's tokenizer.
        bytes_per_cell: K and V of all layers, for the snapshot.
        state_bytes: recurrent state of a lane; 0 = the model has none.
        backing: where the cells lie, for the snapshot.
        clock: seconds that only go up.
    """

    def __init__(
        self,
        shape: PoolShape,
        config: SchedulerConfig,
        *,
        text: TextFactory,
        bytes_per_cell: int,
        state_bytes: int = 0,
        backing: str = "ram",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shape = shape
        self._config = config
        self._text = text
        self._bytes_per_cell = bytes_per_cell
        self._state_bytes = state_bytes
        self._backing = backing
        self._clock = clock
        self._rows = SessionRows(shape, n_snapshots=config.n_snapshots(state_bytes))
        self._open: dict[str, OpenRequest] = {}
        self._queue = Admission(self._rows, max_yields=config.max_yields)
        self._in_flight: dict[LaneId, OpenRequest] = {}
        self._saves: tuple[SaveState, ...] = ()
        self._last_reader: OpenRequest | None = None
        self._events: list[TokenEvent] = []
        self._counts = Counts()
        self._n_added = 0
        self._n_planned = 0
        self._planned_s = 0.0

    # Commands

    @property
    def has_work(self) -> bool:
        """Whether a request runs or waits."""
        return bool(self._open)

    def add(self, request: GenerateRequest) -> None:
        """Queue a request; what can never run is refused by a FINISH event at once.

        Args:
            request: its id must not be in use by an open request.

        Raises:
            ValueError: the id is in use.
        """
        if request.request_id in self._open:
            raise ValueError(f"request id {request.request_id!r} is in use by an open request")
        self._n_added += 1
        one = OpenRequest(
            request=request,
            number=self._n_added,
            submitted_s=self._clock(),
            text=self._text.assembler(request.stop),
        )
        self._open[request.request_id] = one
        if one.n_prompt >= self._shape.context_tokens:
            self._finish(
                one,
                FinishReason.ERROR,
                error=ContextLengthError(
                    n_prompt_tokens=one.n_prompt, context_tokens=self._shape.context_tokens
                ),
            )
        elif one.n_prompt + 1 > self._shape.cells:
            self._refuse(one)
        elif len(self._queue) >= self._config.max_waiting:
            self._finish(
                one,
                FinishReason.ERROR,
                error=QueueFullError(n_waiting=len(self._queue)),
            )
        else:
            self._queue.add(one)

    def cancel(self, request_id: str) -> None:
        """End a request wherever it stands; one that has ended already is no error."""
        one = self._open.get(request_id)
        if one is not None:
            self._finish(one, FinishReason.CANCELLED)

    def forget(self, session_ids: Iterable[str] | None = None) -> tuple[str, ...]:
        """Drop idle conversations, so that their chunks are free.

        Args:
            session_ids: which; busy and unknown ones are passed over. None = all idle ones.

        Returns:
            Ids of those dropped.
        """
        return self._rows.forget(session_ids)

    def abort(self, error: Exception) -> list[TokenEvent]:
        """End every open request by a fault; the events of all are returned."""
        for one in list(self._open.values()):
            self._finish(one, FinishReason.ERROR, error=error)
        return self.take_events()

    def take_events(self) -> list[TokenEvent]:
        """Events since the last call that no `commit` has returned (refusals, cancellations)."""
        events = self._events
        self._events = []
        return events

    # A step

    def plan(self) -> StepPlan | None:
        """Decide the next step.

        Every writing lane computes its next token; beside them one prompt is read, a span at a
        time. Requests that end here (refused, no room to grow) are in `take_events`.

        Returns:
            The plan, or None when there is nothing to compute. It has no spans when recurrent
            states are to be dropped and nothing else is to be done.
        """
        self._planned_s = self._clock()
        self._grow_writers()
        for refused in self._queue.admit():
            self._refuse(refused)
        self._queue.admit_by_yield(self._of_phase(Phase.READING))
        spans = self._spans()
        if not spans and not self._rows.states.has_ops:
            return None
        self._n_planned += 1
        return StepPlan(
            step_id=self._n_planned,
            copies=self._rows.take_copies(),
            tables=self._rows.take_tables(),
            spans=tuple(spans),
            state_ops=self._rows.states.take_ops(),
            saves=self._saves,
        )

    def commit(self, plan: StepPlan, result: StepResult) -> list[TokenEvent]:
        """Take in what a step computed.

        Args:
            plan: the plan that was run.
            result: what came of it.

        Returns:
            Everything that happened since the last call, in order.

        Raises:
            ValueError: the result is of another step.
        """
        if result.step_id != plan.step_id:
            raise ValueError(f"result of step {result.step_id} for plan {plan.step_id}")
        now_s = self._clock()
        n_read = n_written = 0
        for span in plan.spans:
            one = self._in_flight.pop(span.lane, None)
            if one is None or self._open.get(one.request.request_id) is not one:
                continue
            assert one.session is not None
            one.session.append(span.ids)
            one.session.is_live = True
            if one.phase is Phase.READING:
                if span.start == one.n_cached:
                    self._counts.n_cached_tokens += one.n_cached
                n_read += len(span.ids)
                self._emit(one, EventKind.PROGRESS)
            if span.wants_logits:
                one.phase = Phase.WRITING
                n_written += 1
                self._write(one, result.logits[span.lane])
        counts = self._counts
        counts.n_steps += 1
        counts.n_prompt_tokens += n_read
        counts.n_completion_tokens += n_written
        counts.copied_bytes += result.copied_bytes
        elapsed_s = now_s - self._planned_s
        counts.prefill.note(n_read, now_s=now_s, elapsed_s=elapsed_s)
        counts.decode.note(n_written, now_s=now_s, elapsed_s=elapsed_s)
        return self.take_events()

    # What others may see

    def snapshot(self) -> EngineSnapshot:
        """The state as one frozen value."""
        now_s = self._clock()
        rows = self._rows
        return EngineSnapshot(
            kv_pool=pool_snapshot(
                rows,
                self._open.values(),
                bytes_per_cell=self._bytes_per_cell,
                backing=self._backing,
                now_s=now_s,
            ),
            requests=self._counts.requests(
                running=len(self._open) - len(self._queue), waiting=len(self._queue)
            ),
            work=self._counts.work(n_swaps=rows.n_swaps, n_evictions=rows.n_evictions, now_s=now_s),
            is_busy=self.has_work,
            states=state_snapshot(rows, bytes_each=self._state_bytes),
        )

    def check(self) -> None:
        """Verify every invariant of requests, sessions and chunks.

        Raises:
            AssertionError: which one is broken.
        """
        self._rows.check()
        busy = {session.number for session in self._rows.sessions if session.is_busy}
        running = [one.session.number for one in self._open.values() if one.session is not None]
        assert sorted(running) == sorted(busy), f"busy sessions {busy}, requests in {running}"
        for one in self._open.values():
            is_queued = one in self._queue
            assert is_queued == (one.phase is Phase.WAITING), f"request {one.number} is misplaced"
            if not is_queued:
                assert one.session is not None
                assert self._rows.lane_of(one.session) is not None, f"{one.number} has no lane"

    # Filling a step

    def _grow_writers(self) -> None:
        """Reserve the cell each writing lane computes next.

        The earliest request is served first. When the pool has nothing left, the latest of those
        that lack a chunk ends, and what it held serves the others.
        """
        lacking = [
            one for one in self._of_phase(Phase.WRITING) if not self._rows.grow(*_next_cell(one))
        ]
        while lacking:
            self._finish(lacking.pop(), FinishReason.POOL)
            lacking = [one for one in lacking if not self._rows.grow(*_next_cell(one))]

    def _spans(self) -> list[Span]:
        """One token of every writing lane and one span of the prompt whose turn it is."""
        self._in_flight = {}
        self._saves = ()
        spans = []
        for one in self._of_phase(Phase.WRITING):
            assert one.next_id is not None
            spans.append(self._span(one, np.array([one.next_id], np.int32), wants_logits=True))
        readers = self._of_phase(Phase.READING)
        reader = choose_reader(readers, last=self._last_reader, max_yields=self._config.max_yields)
        if reader is not None:
            for other in overtaken(readers, reader, last=self._last_reader):
                other.n_yields += 1
            n_known = reader.n_prompt - reader.n_left
            n_stop = reader.next_stop(self._config.span_tokens)
            ids = reader.request.prompt_ids[n_known:n_stop]
            is_last = n_stop == reader.n_prompt
            spans.append(self._span(reader, ids, wants_logits=is_last))
            self._saves = self._saves_of(reader, n_stop)
            if reader.first_span_s is None:
                reader.first_span_s = self._planned_s
        self._last_reader = reader
        return sorted(spans, key=lambda span: span.lane)

    def _span(self, one: OpenRequest, ids: npt.NDArray[np.int32], *, wants_logits: bool) -> Span:
        assert one.session is not None
        lane = self._rows.lane_of(one.session)
        assert lane is not None, f"request {one.number} computes without a lane"
        self._in_flight[lane] = one
        return Span(lane=lane, start=one.session.n_tokens, ids=ids, wants_logits=wants_logits)

    def _saves_of(self, reader: OpenRequest, n_stop: int) -> tuple[SaveState, ...]:
        """The state to keep behind a span that ends at a mark, if there is room for it."""
        mark = reader.mark_at(n_stop)
        if mark is None or reader.session is None:
            return ()
        save = self._rows.states.save_behind(reader.session, mark)
        return () if save is None else (save,)

    def _of_phase(self, phase: Phase) -> list[OpenRequest]:
        """Open requests in a phase, the earliest first (as they were added)."""
        return [one for one in self._open.values() if one.phase is phase]

    # Taking in a step

    def _write(self, one: OpenRequest, logits: Logits) -> None:
        """Pick the next token; a fault in it ends this request alone."""
        request = one.request
        try:
            if one.sampler is None:
                one.sampler = Sampler(request.sampling, request.prompt_ids.tolist())
            token = TokenId(int(one.sampler.pick(logits)))
            one.sampler.accept(token)
            is_end = token in self._text.end_ids and not request.ignores_end
            text = "" if is_end else one.text.push(token)
        except Exception as error:  # noqa: BLE001 - any fault of one request, told to its stream
            _log.exception(
                "request %s: picking its token %d failed", request.request_id, one.n_written
            )
            self._finish(one, FinishReason.ERROR, error=error)
            return
        now_s = self._clock()
        one.n_written += 1
        one.next_id = token
        one.last_token_s = now_s
        if one.first_token_s is None:
            one.first_token_s = now_s
        self._emit(one, EventKind.TOKEN, token_id=token, text=text)
        n_most = self._shape.context_tokens - one.n_prompt
        if request.max_tokens is not None:
            n_most = min(n_most, request.max_tokens)
        if is_end or one.text.is_stopped:
            self._finish(one, FinishReason.STOP)
        elif one.n_written >= n_most:
            self._finish(one, FinishReason.LENGTH)

    def _refuse(self, one: OpenRequest) -> None:
        error = KvPoolFullError(
            cells_wanted=one.n_prompt + 1,
            cells_free=self._rows.cells_free,
            cells_total=self._shape.cells,
        )
        self._finish(one, FinishReason.ERROR, error=error)

    def _emit(
        self, one: OpenRequest, kind: EventKind, *, token_id: int | None = None, text: str = ""
    ) -> None:
        self._events.append(one.event(kind, now_s=self._clock(), token_id=token_id, text=text))

    def _finish(
        self, one: OpenRequest, finish: FinishReason, *, error: Exception | None = None
    ) -> None:
        """End a request: its one FINISH event, its session idle, its lane free for others."""
        del self._open[one.request.request_id]
        if one in self._queue:
            self._queue.remove(one)
        now_s = self._clock()
        if one.session is not None:
            one.session.tokens_per_s = one.tokens_per_s
            is_ahead = one in self._in_flight.values()
            self._rows.end_use(one.session, now_s=now_s, is_ahead=is_ahead)
        self._counts.note_end(finish, error)
        text = "" if finish is FinishReason.ERROR else one.text.flush()
        self._events.append(
            one.event(EventKind.FINISH, now_s=now_s, text=text, finish=finish, error=error)
        )


def _next_cell(one: OpenRequest) -> tuple[Session, int]:
    """The session of a writing request and the cells it must hold to compute its next token."""
    assert one.session is not None
    return one.session, one.session.n_tokens + 1
