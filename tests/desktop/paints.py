"""Counting the paints of a widget, from a moment on when none is on its way."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

QUIET_MS = 40
"""A paint asked for comes within 5 ms and a turn of the event loop."""
MAX_ROUNDS = 100


class PaintCount(QObject):
    """Counts the paints of a widget.

    Attributes:
        n: paints since it was made, or since somebody set it.
    """

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.n = 0
        widget.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Paint:
            self.n += 1
        return False


def settle(qtbot: QtBot, *counts: PaintCount) -> None:
    """Wait until nothing was painted for two rounds in a row, then count from nought.

    Being shown takes several turns of the event loop; how long they take is the machine's affair.
    A widget that paints without end fails here.
    """
    n_quiet = 0
    for _ in range(MAX_ROUNDS):
        before = [count.n for count in counts]
        qtbot.wait(QUIET_MS)
        n_quiet = n_quiet + 1 if [count.n for count in counts] == before else 0
        if n_quiet == 2:
            break
    else:
        raise AssertionError("it is painted again and again while nothing happens")
    for count in counts:
        count.n = 0
