"""A bar at the top of the window for what went wrong and belongs to no message."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QWidget

from strata_desktop.views.icons import IconButton
from strata_desktop.views.theme import SPACE


class ErrorBar(QFrame):
    """Hidden until something is to be said; the person closes it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "banner-error")
        self._label = QLabel()
        self._label.setWordWrap(True)
        self._label.setTextFormat(Qt.TextFormat.PlainText)
        self._label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._label.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        close = IconButton("close", "Dismiss error", side_px=16)
        close.clicked.connect(self.hide)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(SPACE.l, SPACE.s, SPACE.s, SPACE.s)
        layout.addWidget(self._label, 1)
        layout.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        self.hide()

    @property
    def text(self) -> str:
        """What is said."""
        return self._label.text()

    def say(self, text: str) -> None:
        """Show a message."""
        self._label.setText(text)
        self.setAccessibleName(text)
        self.show()
