"""A short message at the lower edge that goes away by itself, with an undo."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QPoint, Qt, QTimer
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from strata_desktop.viewmodels.conversation import Undo
from strata_desktop.views.icons import IconButton
from strata_desktop.views.theme import SPACE

SHOWN_MS = 10_000


class Toast(QFrame):
    """Lies over its parent, at the lower edge of one of its parts."""

    def __init__(self, parent: QWidget, over: QWidget) -> None:
        super().__init__(parent)
        self._over = over
        self.setProperty("role", "toast")
        self._undo: Undo | None = None
        self._label = QLabel()
        self._button = QPushButton("Undo")
        self._button.setProperty("kind", "link")
        self._button.setAccessibleName("Undo")
        self._button.clicked.connect(self.undo)
        close = IconButton("close", "Dismiss", side_px=14)
        close.clicked.connect(self.hide)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(SPACE.l, SPACE.xs, SPACE.s, SPACE.xs)
        layout.setSpacing(SPACE.s)
        layout.addWidget(self._label)
        layout.addWidget(self._button)
        layout.addWidget(close)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.hide)
        over.installEventFilter(self)
        self.hide()

    def offer(self, undo: Undo) -> None:
        """Show what was done and offer to take it back."""
        self._undo = undo
        metrics = self._label.fontMetrics()
        self._label.setText(metrics.elidedText(undo.label, Qt.TextElideMode.ElideMiddle, 360))
        self.setAccessibleName(f"{undo.label}. Undo is offered.")
        self.adjustSize()
        self._place()
        self.show()
        self.raise_()
        self._timer.start(SHOWN_MS)

    def undo(self) -> None:
        """Take back what was done last, if that is still offered."""
        undo, self._undo = self._undo, None
        self.hide()
        if undo is not None:
            undo.restore()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Stay in the middle of the lower edge."""
        if event.type() in (QEvent.Type.Resize, QEvent.Type.Move):
            self._place()
        return super().eventFilter(watched, event)

    def _place(self) -> None:
        place = self._over.mapTo(self.parentWidget(), QPoint(0, 0))
        left = place.x() + (self._over.width() - self.width()) // 2
        self.move(max(SPACE.s, left), place.y() + self._over.height() - self.height() - SPACE.m)
