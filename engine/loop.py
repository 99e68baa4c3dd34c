"""The engine thread: commands in, plan, run, commit, events out. Read this first.

Rules are the scheduler's, arithmetic the backend's; HTTP, Qt and the command line are other threads
that reach the engine only through this class.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from engine.errors import DeviceError, EngineStoppedError, InvalidRequestError
from engine.scheduler.request import GenerateRequest
from engine.scheduler.scheduler import Scheduler
from engine.scheduler.snapshot import aged
from engine.stats import EngineSnapshot, ExpertPicks
from engine.step import EventKind, FinishReason, StepPlan, StepResult, TokenEvent, Usage
from engine.stream import TokenStream

_log = logging.getLogger(__name__)

SNAPSHOT_EVERY_S = 1 / 30
"""While busy a new snapshot is made at most this often."""

PICKS_EVERY_S = 1.0
"""While busy the picks of experts are counted at most this often, and when a request ends."""


class StepRunner(Protocol):
    """The part of a backend the loop needs."""

    def run(self, plan: StepPlan) -> StepResult:
        """Compute a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Command:
    """Something another thread wants done.

    Attributes:
        run: done by the engine thread between two steps.
        refuse: called instead when the engine has stopped before.
    """

    run: Callable[[], None]
    refuse: Callable[[Exception], None] = lambda error: None


class EngineLoop:
    """Owns the engine thread; every method may be called from any thread.

    Args:
        scheduler: from `start` on touched by the engine thread alone.
        backend: likewise; closing it, after `stop`, is for whoever made it.
        is_checking: verify every invariant after each step (slow; for tests).
        count_picks: tells how often each expert was picked; called by the engine thread alone,
            between two steps. None = the model has no experts.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        backend: StepRunner,
        *,
        is_checking: bool = False,
        count_picks: Callable[[], ExpertPicks | None] = lambda: None,
    ) -> None:
        self._scheduler = scheduler
        self._backend = backend
        self._is_checking = is_checking
        self._count_picks = count_picks
        self._thread = threading.Thread(target=self._serve, name="strata-engine", daemon=True)
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._is_stopping = False
        # The lock guards what other threads read or write: the five below.
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._streams: dict[str, TokenStream] = {}
        self._snapshot = scheduler.snapshot()
        self._snapshot_s = time.monotonic()
        self._picks = count_picks()
        self._picks_s = self._snapshot_s

    # For other threads

    @property
    def error(self) -> Exception | None:
        """Why no more requests are taken: a DeviceError or an EngineStoppedError, else None."""
        return self._error

    def start(self) -> None:
        """Start the engine thread; a loop is started once."""
        self._thread.start()

    def stop(self) -> None:
        """End every open request with an error and wait for the engine thread to end."""
        if self._thread.ident is None:
            self._close(EngineStoppedError("The engine was stopped before it was started."))
            return
        self._commands.put(_Command(run=self._begin_stopping))
        self._thread.join()

    def submit(self, request: GenerateRequest) -> TokenStream:
        """Hand a request to the engine.

        Args:
            request: what to generate.

        Returns:
            Its events; a refusal is its FINISH.

        Raises:
            EngineStoppedError: the engine is stopping, or its device has failed.
            InvalidRequestError: an open request has the same id.
        """
        stream = TokenStream(request.request_id, on_cancel=self.cancel)
        with self._lock:
            if self._error is not None:
                raise EngineStoppedError(
                    f"The engine takes no more requests: {self._error}"
                ) from self._error
            if request.request_id in self._streams:
                raise InvalidRequestError(
                    f"Request id {request.request_id!r} belongs to a request that still runs."
                )
            self._streams[request.request_id] = stream
            self._commands.put(_Command(run=lambda: self._scheduler.add(request)))
        return stream

    def cancel(self, request_id: str) -> None:
        """End a request wherever it stands; one that has ended already is no error."""
        self._commands.put(_Command(run=lambda: self._scheduler.cancel(request_id)))

    def forget(self, session_ids: Iterable[str] | None = None) -> Future[tuple[str, ...]]:
        """Drop idle conversations, so that their chunks are free.

        Args:
            session_ids: which; busy and unknown ones are passed over. None = all idle ones.

        Returns:
            The ids dropped, once it is done and the snapshot shows it; an EngineStoppedError
            when the engine takes no more commands.
        """
        wanted = None if session_ids is None else tuple(session_ids)
        done: Future[tuple[str, ...]] = Future()

        def drop() -> None:
            dropped = self._scheduler.forget(wanted)
            self._publish()
            done.set_result(dropped)

        def refuse(error: Exception) -> None:
            done.set_exception(EngineStoppedError(f"The engine takes no more commands: {error}"))

        with self._lock:
            error = self._error
            if error is None:
                self._commands.put(_Command(run=drop, refuse=refuse))
        if error is not None:
            refuse(error)
        return done

    def snapshot(self) -> EngineSnapshot:
        """The latest state; how long sessions have been idle goes on counting."""
        with self._lock:
            snapshot, made_s = self._snapshot, self._snapshot_s
        return aged(snapshot, by_s=time.monotonic() - made_s)

    def expert_picks(self) -> ExpertPicks | None:
        """Which experts were picked, at most a second old and exact while idle; None without any.

        The value stays the same object until there is a newer one.
        """
        with self._lock:
            return self._picks

    # The engine thread

    def _serve(self) -> None:
        """Take commands and run steps until stopped or until something fails."""
        error: Exception
        try:
            is_busy = False
            while self._obey(can_wait=not is_busy):
                is_busy = self._step()
            error = EngineStoppedError("The engine was stopped.")
        except Exception as fault:  # noqa: BLE001 - told to every stream; the engine stops
            _log.critical("the engine cannot go on", exc_info=fault)
            error = DeviceError(
                f"The engine failed in the middle of work ({type(fault).__name__}: {fault}). "
                "Load the model again."
            )
            error.__cause__ = fault
        self._close(error)

    def _obey(self, *, can_wait: bool) -> bool:
        """Do what other threads asked for; False once asked to stop.

        Args:
            can_wait: sleep until there is a command.
        """
        while can_wait or not self._commands.empty():
            self._commands.get().run()
            can_wait = False
        return not self._is_stopping

    def _step(self) -> bool:
        """Plan, run, commit; False when there was nothing to do."""
        plan = self._scheduler.plan()
        events = self._scheduler.take_events()
        if plan is None or events:
            self._publish(wants_picks=plan is None)
            self._hand_out(events)
        if plan is None:
            return False
        result = self._backend.run(plan)
        events = self._scheduler.commit(plan, result)
        if self._is_checking:
            self._scheduler.check()
        has_finish = any(event.kind is EventKind.FINISH for event in events)
        if has_finish or time.monotonic() - self._snapshot_s >= SNAPSHOT_EVERY_S:
            self._publish(wants_picks=has_finish)
        self._hand_out(events)
        return True

    def _publish(self, *, wants_picks: bool = False) -> None:
        """Make the state visible to other threads, before the events that tell of it.

        Args:
            wants_picks: count the picks of experts too, even if it was done a moment ago.
        """
        snapshot = self._scheduler.snapshot()
        now_s = time.monotonic()
        # Some ten thousand numbers for a large model: a millisecond, so not at each step.
        is_due = wants_picks or now_s - self._picks_s >= PICKS_EVERY_S
        picks = self._count_picks() if is_due else None
        with self._lock:
            self._snapshot = snapshot
            self._snapshot_s = now_s
            if picks is not None:
                self._picks_s = now_s
                if picks != self._picks:
                    self._picks = picks

    def _hand_out(self, events: Iterable[TokenEvent]) -> None:
        """Give each event to its stream; a callback that fails loses its request, no more."""
        for event in events:
            is_last = event.kind is EventKind.FINISH
            with self._lock:
                stream = self._streams.get(event.request_id)
                if is_last:
                    self._streams.pop(event.request_id, None)
            if stream is None:
                continue
            try:
                stream.push(event)
            except Exception:  # noqa: BLE001 - foreign code; the engine must go on
                _log.warning("request %s: its callback failed", event.request_id, exc_info=True)
                with self._lock:
                    self._streams.pop(event.request_id, None)
                self._scheduler.cancel(event.request_id)

    def _begin_stopping(self) -> None:
        self._is_stopping = True

    def _close(self, error: Exception) -> None:
        """Take no more commands and end every open request by the error."""
        with self._lock:
            self._error = error
        while not self._commands.empty():
            self._commands.get().refuse(error)
        try:
            events = self._scheduler.abort(error)
            self._publish()
            self._hand_out(events)
        except Exception:  # noqa: BLE001 - the scheduler itself may be what failed
            _log.exception("the scheduler could not end its requests")
        with self._lock:
            left = list(self._streams)
        self._hand_out(
            TokenEvent(
                kind=EventKind.FINISH,
                request_id=request_id,
                usage=Usage(),
                finish=FinishReason.ERROR,
                error=error,
            )
            for request_id in left
        )
