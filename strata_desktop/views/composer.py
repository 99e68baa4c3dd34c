"""The prompt box with its send or stop button, and what is loaded below it."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from strata_desktop.views.icons import IconButton
from strata_desktop.views.prompt_edit import PromptEdit
from strata_desktop.views.theme import SPACE
from strata_desktop.views.transcript import COLUMN_PX


class Composer(QWidget):
    """Where the person writes.

    Signals:
        sent: a message (its text).
        stopped: the running answer is to end.
        draft_changed: what is typed and not sent.
    """

    sent = Signal(str)
    stopped = Signal()
    draft_changed = Signal(str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._is_writing = False
        self._can_send = False
        self.edit = PromptEdit("Message")
        self.edit.setPlaceholderText("Ask anything")
        self.edit.sent.connect(self._send)
        self.edit.escaped.connect(self._escape)
        self.edit.textChanged.connect(self._on_text)
        self.edit.focus_changed.connect(self._on_focus)
        self._send_button = IconButton("send", "Send message", tint="on_accent", side_px=20)
        self._send_button.setProperty("kind", "send")
        self._send_button.setFixedSize(QSize(36, 36))
        self._send_button.clicked.connect(self._on_button)
        self._frame = QFrame()
        self._frame.setProperty("role", "composer")
        row = QHBoxLayout(self._frame)
        row.setContentsMargins(SPACE.l, SPACE.s, SPACE.s, SPACE.s)
        row.setSpacing(SPACE.s)
        text = QVBoxLayout()
        text.setContentsMargins(0, 6, 0, 6)
        text.addWidget(self.edit)
        row.addLayout(text, 1)
        button = QVBoxLayout()
        button.addStretch()
        button.addWidget(self._send_button)
        row.addLayout(button)
        self._status = QLabel()
        self._status.setProperty("role", "caption")
        hint = QLabel("Enter sends · Shift+Enter new line")
        hint.setProperty("role", "caption")
        below = QHBoxLayout()
        below.setContentsMargins(SPACE.s, 0, SPACE.s, 0)
        below.addWidget(self._status)
        below.addStretch()
        below.addWidget(hint)
        column = QVBoxLayout()
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE.xs)
        column.addWidget(self._frame)
        column.addLayout(below)
        held = QWidget()
        held.setMaximumWidth(COLUMN_PX + 2 * SPACE.l)
        held.setLayout(column)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(SPACE.l, SPACE.xs, SPACE.l, SPACE.s)
        layout.addStretch(0)
        layout.addWidget(held, 1)
        layout.addStretch(0)
        self._refresh()

    @property
    def text(self) -> str:
        """What is typed."""
        return self.edit.toPlainText()

    def set_text(self, text: str) -> None:
        """Show a draft."""
        if text != self.text:
            self.edit.setPlainText(text)
            cursor = self.edit.textCursor()
            cursor.movePosition(cursor.MoveOperation.End)
            self.edit.setTextCursor(cursor)

    def set_writing(self, *, is_writing: bool) -> None:
        """Offer to stop instead of to send."""
        self._is_writing = is_writing
        self._refresh()

    def set_status(self, text: str, *, can_send: bool) -> None:
        """Say what is loaded, and whether anything can answer."""
        self._status.setText(text)
        self._can_send = can_send
        self._refresh()

    def focus(self) -> None:
        """Begin to write."""
        self.edit.setFocus()

    def _refresh(self) -> None:
        button = self._send_button
        button.set_icon("stop" if self._is_writing else "send")
        button.set_label("Stop the answer (Esc)" if self._is_writing else "Send message")
        button.setEnabled(self._is_writing or (self._can_send and bool(self.text.strip())))

    def _on_button(self) -> None:
        if self._is_writing:
            self.stopped.emit()
        else:
            self._send()
        self.focus()

    def _send(self) -> None:
        if self.text.strip() and self._can_send and not self._is_writing:
            self.sent.emit(self.text)

    def _escape(self) -> None:
        if self._is_writing:
            self.stopped.emit()

    def _on_text(self) -> None:
        self._refresh()
        self.draft_changed.emit(self.text)

    def _on_focus(self, has_focus: bool) -> None:  # noqa: FBT001 - a slot
        self._frame.setProperty("active", "true" if has_focus else "false")
        self._frame.style().polish(self._frame)
