"""The editor that takes a message's place while the person changes it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from strata_desktop.views.prompt_edit import PromptEdit
from strata_desktop.views.theme import SPACE


class MessageEditor(QFrame):
    """Text, "Send" and "Cancel".

    Signals:
        sent: the new text is to replace the message.
        cancelled: leave the message as it was.
    """

    sent = Signal(str)
    cancelled = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "composer")
        self.setProperty("active", "true")
        self._edit = PromptEdit("Edit message", max_lines=16)
        self._edit.setPlainText(text)
        self._edit.sent.connect(self._send)
        self._edit.escaped.connect(self.cancelled)
        hint = QLabel("Replaces this message and everything below it.")
        hint.setProperty("role", "caption")
        hint.setWordWrap(True)
        send = QPushButton("Send")
        send.setProperty("kind", "primary")
        send.setAccessibleName("Send changed message")
        send.clicked.connect(self._send)
        cancel = QPushButton("Cancel")
        cancel.setProperty("kind", "ghost")
        cancel.setAccessibleName("Cancel editing")
        cancel.clicked.connect(self.cancelled)
        row = QHBoxLayout()
        row.addWidget(hint, 1)
        row.addWidget(cancel)
        row.addWidget(send)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE.m, SPACE.m, SPACE.m, SPACE.s)
        layout.addWidget(self._edit)
        layout.addLayout(row)

    def focus(self) -> None:
        """Put the cursor at the end of the text."""
        self._edit.moveCursor(QTextCursor.MoveOperation.End)
        self._edit.setFocus()

    def _send(self) -> None:
        if text := self._edit.toPlainText().strip():
            self.sent.emit(text)
