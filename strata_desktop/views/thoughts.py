"""What the model thought before it answered: folded away, dimmed, there to be read."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt
from PySide6.QtWidgets import QFrame, QPushButton, QVBoxLayout, QWidget

from strata_desktop.views.icons import icon
from strata_desktop.views.markdown_view import TextView
from strata_desktop.views.theme import SPACE, colors


class Thoughts(QWidget):
    """A fold: a line to click, and below it the text as it was thought."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._text = ""
        self._fold = QPushButton()
        self._fold.setProperty("kind", "fold")
        self._fold.setCheckable(True)
        self._fold.setIconSize(QSize(14, 14))
        self._fold.toggled.connect(self._show)
        self._body = TextView()
        self._body.setProperty("role", "muted")
        self._frame = QFrame()
        self._frame.setProperty("role", "quote")
        inner = QVBoxLayout(self._frame)
        inner.setContentsMargins(SPACE.m, 2, 0, 2)
        inner.addWidget(self._body)
        self._frame.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(SPACE.xs)
        layout.addWidget(self._fold, 0, Qt.AlignmentFlag.AlignLeft)
        layout.addWidget(self._frame)
        self._tint()

    def show_thoughts(self, text: str, label: str) -> None:
        """Show thoughts that may have grown, under a label."""
        self._text = text
        if label != self._fold.text():
            self._fold.setText(label)
            self._fold.setAccessibleName(label)
        if self._fold.isChecked():
            self._body.show_plain(text)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "_body"):
            self._tint()

    def _show(self, is_open: bool) -> None:  # noqa: FBT001 - a slot
        if is_open:
            self._body.show_plain(self._text)
        self._frame.setVisible(is_open)
        self._tint()

    def _tint(self) -> None:
        name = "chevron-down" if self._fold.isChecked() else "chevron-right"
        self._fold.setIcon(icon(name, colors(self).text_muted, side_px=14))
