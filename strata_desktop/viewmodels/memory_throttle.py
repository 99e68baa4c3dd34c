"""A gate that lets many calls through as few: 100 events a second repaint ten times.

It holds the timing only; what is repainted is the listener's business.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

REPAINTS_PER_S = 10


class Throttle(QObject):
    """Emits `fired` at once when quiet, and at most once an interval when not.

    The last call is never lost: a call inside the interval arms one single shot at its end.
    While nobody calls, no timer runs.

    Signals:
        fired: it is time to look at the newest state.
    """

    fired = Signal()

    def __init__(
        self,
        parent: QObject | None = None,
        *,
        interval_s: float = 1.0 / REPAINTS_PER_S,
        clock: Callable[[], float] = time.monotonic,
        schedule: Callable[[float, Callable[[], None]], None] | None = None,
    ) -> None:
        """Make a gate.

        Args:
            parent: Qt owner.
            interval_s: shortest time between two signals.
            clock: seconds, steady.
            schedule: calls a function after seconds; None = a Qt single shot.
        """
        super().__init__(parent)
        self._interval_s = interval_s
        self._clock = clock
        self._schedule = schedule or self._start_timer
        self._last_s: float | None = None
        self._is_armed = False
        self._timer: QTimer | None = None

    @property
    def is_armed(self) -> bool:
        """Whether a delayed signal is on its way."""
        return self._is_armed

    def trigger(self) -> None:
        """Say that something changed."""
        if self._is_armed:
            return
        now_s = self._clock()
        wait_s = 0.0 if self._last_s is None else self._last_s + self._interval_s - now_s
        if wait_s <= 0:
            self._fire()
            return
        self._is_armed = True
        self._schedule(wait_s, self._on_due)

    def _start_timer(self, wait_s: float, call: Callable[[], None]) -> None:
        if self._timer is None:
            self._timer = QTimer(self)
            self._timer.setSingleShot(True)
            self._timer.timeout.connect(call)
        self._timer.start(max(1, round(1000 * wait_s)))

    def _on_due(self) -> None:
        self._is_armed = False
        self._fire()

    def _fire(self) -> None:
        self._last_s = self._clock()
        self.fired.emit()
