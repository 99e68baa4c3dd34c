"""Pieces the pages of the panels are put together from: cards, labels, lines that elide."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import (
    QBoxLayout,
    QFrame,
    QLabel,
    QSizePolicy,
    QStackedLayout,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import SPACE, TYPE


class Card(QFrame):
    """A raised area with a name and a box to fill.

    Attributes:
        box: its layout.
    """

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "card")
        self.setAccessibleName(name)
        self.box = QVBoxLayout(self)
        self.box.setContentsMargins(SPACE.l, SPACE.m, SPACE.l, SPACE.m)
        self.box.setSpacing(SPACE.s)


class Columns(QBoxLayout):
    """Parts side by side, or one below the other where there is no room for that."""

    def __init__(self, spacing: int = SPACE.m) -> None:
        super().__init__(QBoxLayout.Direction.LeftToRight)
        self.setContentsMargins(0, 0, 0, 0)
        self.setSpacing(spacing)

    @property
    def is_stacked(self) -> bool:
        """Whether the parts stand one below the other."""
        return self.direction() is QBoxLayout.Direction.TopToBottom

    def stack(self, *, is_stacked: bool) -> None:
        """Choose one of the two."""
        if is_stacked != self.is_stacked:
            self.setDirection(
                QBoxLayout.Direction.TopToBottom if is_stacked else QBoxLayout.Direction.LeftToRight
            )


def make_label(text: str = "", *, role: str = "") -> QLabel:
    """Return a plain-text label with a look from the style sheet."""
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    if role:
        label.setProperty("role", role)
    return label


class Stack(QStackedLayout):
    """Either a part or the reason why it is empty.

    It is given its owner at once: a stack without one would show its first part as a window.
    """

    def __init__(self, owner: QWidget, part: QWidget) -> None:
        super().__init__(owner)
        self._gap = GapText()
        self.addWidget(part)
        self.addWidget(self._gap)

    def say(self, gap: str) -> None:
        """Show the reason, or the part when it is ""."""
        self._gap.setText(gap)
        self.setCurrentIndex(1 if gap else 0)


class LineLabel(QLabel):
    """One line with figures of equal width; what does not fit ends in an ellipsis and a tooltip."""

    def __init__(self, text: str = "", *, role: str = "caption") -> None:
        super().__init__(text)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", role)
        self.setFont(tabular(self.font(), height_px=TYPE.caption))
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def minimumSizeHint(self) -> QSize:
        """Ask for height only."""
        return QSize(1, super().minimumSizeHint().height())

    def setText(self, text: str) -> None:
        """Show a text, and the whole of it as a tooltip."""
        if text != self.text():
            super().setText(text)
            self.setToolTip(text)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw what fits."""
        painter = QPainter(self)
        painter.setPen(self.palette().color(self.foregroundRole()))
        shown = self.fontMetrics().elidedText(
            self.text(), Qt.TextElideMode.ElideRight, self.width()
        )
        painter.drawText(self.rect(), self.alignment() | Qt.AlignmentFlag.AlignVCenter, shown)
        painter.end()


class GapText(QLabel):
    """Says why a part is empty, in its middle."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setProperty("role", "muted")
        self.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.setWordWrap(True)
        self.setMinimumHeight(60)
