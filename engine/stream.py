"""The events of one request, handed from the engine thread to whoever asked.

It knows nothing of the engine but how to cancel; making text frames of the events is the API's.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from engine.step import EventKind, TokenEvent


class TokenStream:
    """A thread-safe stream of `TokenEvent`s that ends with exactly one FINISH.

    Read it in one of two ways: iterate (blocks, for command lines and tests), or `subscribe`
    (for asyncio and Qt).

    Attributes:
        request_id: whose events these are.
    """

    def __init__(self, request_id: str, *, on_cancel: Callable[[str], None]) -> None:
        self.request_id = request_id
        self._on_cancel = on_cancel
        self._lock = threading.RLock()
        self._arrived = threading.Condition(self._lock)
        self._events: deque[TokenEvent] = deque()
        self._callback: Callable[[TokenEvent], None] | None = None
        self._is_finished = False

    @property
    def is_finished(self) -> bool:
        """Whether the FINISH has arrived, read or not."""
        return self._is_finished

    def __iter__(self) -> Iterator[TokenEvent]:
        """Every event up to the FINISH, waiting for each."""
        return self.events()

    def events(self, *, timeout_s: float | None = None) -> Iterator[TokenEvent]:
        """Every event up to the FINISH.

        Args:
            timeout_s: longest wait for one event; None = as long as it takes.

        Yields:
            Events in order.

        Raises:
            TimeoutError: nothing came for `timeout_s`.
        """
        while True:
            event = self.next_event(timeout_s=timeout_s)
            yield event
            if event.kind is EventKind.FINISH:
                return

    def next_event(self, *, timeout_s: float | None = None) -> TokenEvent:
        """Take the next event.

        Args:
            timeout_s: longest wait; None = as long as it takes.

        Raises:
            TimeoutError: nothing came for `timeout_s`.
            RuntimeError: the FINISH was taken already, or a callback gets the events.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._arrived:
            while not self._events:
                if self._callback is not None or self._is_finished:
                    raise RuntimeError(f"request {self.request_id}: no more events to take here")
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise TimeoutError(
                        f"request {self.request_id}: no event for {timeout_s:g} seconds"
                    )
                self._arrived.wait(left_s)
            return self._events.popleft()

    def subscribe(self, callback: Callable[[TokenEvent], None]) -> None:
        """Hand every event to a callback, those that came before at once.

        Args:
            callback: called in order, from this thread for events that wait here already and from
                the engine thread for later ones; it must return at once. An asyncio program
                passes `lambda event: loop.call_soon_threadsafe(queue.put_nowait, event)`.

        Raises:
            RuntimeError: somebody has subscribed already.
        """
        with self._arrived:
            if self._callback is not None:
                raise RuntimeError(
                    f"request {self.request_id}: its events go to a callback already"
                )
            self._callback = callback
            while self._events:
                callback(self._events.popleft())
            self._arrived.notify_all()

    def cancel(self) -> None:
        """End the request wherever it stands; its FINISH still comes. Again is no error."""
        if not self._is_finished:
            self._on_cancel(self.request_id)

    def push(self, event: TokenEvent) -> None:
        """Add an event; the engine's side of the stream.

        Raises:
            RuntimeError: the stream has ended.
            Exception: whatever the callback raised.
        """
        with self._arrived:
            if self._is_finished:
                raise RuntimeError(f"request {self.request_id}: an event after its FINISH: {event}")
            self._is_finished = event.kind is EventKind.FINISH
            if self._callback is not None:
                self._callback(event)
            else:
                self._events.append(event)
                self._arrived.notify_all()
