"""Collects garbage on the thread the window lives on, and nowhere else.

Python frees reference cycles on whichever thread happens to allocate; a Qt object freed on the
network's or the engine's thread crashes the program.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

from PySide6.QtCore import QElapsedTimer, QObject, QTimer

YOUNG_MS = 1000
OLD_MS = 60_000


class GarbageTimer(QObject):
    """Takes the collector's work over while it exists.

    Young objects are looked at every second, all of them once a minute if nothing is going on:
    with a model loaded that may take a few frames.
    """

    def __init__(self, is_quiet: Callable[[], bool], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._is_quiet = is_quiet
        self._since_old = QElapsedTimer()
        self._since_old.start()
        self._timer = QTimer(self)
        self._timer.timeout.connect(self.collect)
        self._timer.start(YOUNG_MS)
        gc.disable()

    def collect(self) -> None:
        """Collect what is due."""
        if self._since_old.elapsed() >= OLD_MS and self._is_quiet():
            self._since_old.restart()
            gc.collect()
        elif gc.get_count()[0] > gc.get_threshold()[0]:
            gc.collect(1)

    def stop(self) -> None:
        """Give the work back to Python."""
        self._timer.stop()
        gc.enable()
