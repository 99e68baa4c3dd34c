"""One message: what was said, what can be done with it, and what went wrong, in words."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.viewmodels.message_words import (
    MessageAction,
    counts_text,
    notice_for,
    thoughts_label,
)
from strata_desktop.viewmodels.messages import Message, Role
from strata_desktop.views.icons import IconButton
from strata_desktop.views.markdown_view import MarkdownView, TextView
from strata_desktop.views.message_editor import MessageEditor
from strata_desktop.views.theme import SPACE
from strata_desktop.views.thoughts import Thoughts

BUBBLE_INSET_PX = 72
COPIED_MS = 1500


class MessageView(QFrame):
    """A message with its actions.

    Attributes:
        message: the message shown.

    Signals:
        action_wanted: a MessageAction for this message (its id, the action).
        edited: the person's message was changed and is to be sent (its id, the text).
    """

    action_wanted = Signal(int, object)
    edited = Signal(int, str)

    def __init__(self, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        is_user = message.role is Role.USER
        self.setAccessibleName("You" if is_user else "Answer")
        self._editor: MessageEditor | None = None
        self._body: MarkdownView | TextView = TextView() if is_user else MarkdownView()
        self._copy = IconButton("copy", "Copy message", tint="text_faint", side_px=16)
        self._again = IconButton("refresh", "Answer again", tint="text_faint", side_px=16)
        self._edit = IconButton("edit", "Edit and send again", tint="text_faint", side_px=16)
        self._delete = IconButton("trash", "Delete message", tint="text_faint", side_px=16)
        self._counts = QLabel()
        self._counts.setProperty("role", "caption")
        self._thoughts = Thoughts()
        self._waiting = _Waiting()
        self._notice = _Notice()
        self._notice.action_wanted.connect(self._want)
        self._copy.clicked.connect(self.copy)
        self._again.clicked.connect(lambda: self._want(MessageAction.REGENERATE))
        self._edit.clicked.connect(self.begin_edit)
        self._delete.clicked.connect(lambda: self._want(MessageAction.DELETE))
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(lambda: self._copy.set_icon("copy"))
        self._actions = self._build_actions(is_user=is_user)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE.xs)
        self._content: QWidget = self._bubble() if is_user else self._body
        for part in (self._thoughts, self._content, self._waiting, self._notice, self._actions):
            self._column.addWidget(part)
        self.show_message(message)

    def show_message(self, message: Message) -> None:
        """Show a newer state of the message."""
        self.message = message
        if isinstance(self._body, MarkdownView):
            self._body.set_text(message.text, is_final=not message.is_writing)
            self._body.setVisible(bool(message.text))
        else:
            self._body.show_plain(message.text)
        self.setAccessibleDescription(message.text)
        self._thoughts.setVisible(bool(message.thoughts))
        self._thoughts.show_thoughts(message.thoughts, thoughts_label(message))
        self._waiting.setVisible(message.is_writing and not message.text and not message.thoughts)
        notice = notice_for(message)
        self._notice.setVisible(notice is not None)
        if notice is not None:
            self._notice.show_notice(notice.text, notice.actions, is_error=notice.is_error)
        self._counts.setText(counts_text(message))
        is_answer = message.role is Role.ASSISTANT
        self._again.setVisible(is_answer)
        self._edit.setVisible(not is_answer)
        self._copy.setVisible(bool(message.text))
        for button in (self._copy, self._again, self._delete):
            button.setEnabled(not message.is_writing)

    def show_progress(self, progress: tuple[int, int] | None) -> None:
        """Show how much of the prompt has been read."""
        self._waiting.show_progress(progress)

    def copy(self) -> None:
        """Put the message's Markdown on the clipboard."""
        QGuiApplication.clipboard().setText(self.message.text)
        self._copy.set_icon("check")
        self._timer.start(COPIED_MS)

    def begin_edit(self) -> None:
        """Turn the person's message into an editor."""
        if self._editor is not None:
            return
        self._editor = MessageEditor(self.message.text)
        self._editor.sent.connect(self._end_edit)
        self._editor.cancelled.connect(self._end_edit)
        self._content.hide()
        self._actions.hide()
        self._column.insertWidget(0, self._editor)
        self._editor.focus()

    def _end_edit(self, text: str | None = None) -> None:
        if self._editor is None:
            return
        self._editor.hide()
        self._editor.deleteLater()
        self._editor = None
        self._content.show()
        self._actions.show()
        self._edit.setFocus()
        if text is not None:
            self.edited.emit(self.message.id, text)

    def _want(self, action: MessageAction) -> None:
        self.action_wanted.emit(self.message.id, action)

    def _bubble(self) -> QWidget:
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(BUBBLE_INSET_PX, 0, 0, 0)
        bubble = QFrame()
        bubble.setProperty("role", "bubble")
        inner = QVBoxLayout(bubble)
        # Less below: the line height puts its share under each line.
        inner.setContentsMargins(SPACE.l, 10, SPACE.l, 6)
        inner.addWidget(self._body)
        bubble.setSizePolicy(QSizePolicy.Policy.Maximum, QSizePolicy.Policy.Preferred)
        layout.addStretch(1)
        layout.addWidget(bubble)
        return row

    def _build_actions(self, *, is_user: bool) -> QWidget:
        row = QWidget()
        layout = QHBoxLayout(row)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(2)
        if is_user:
            layout.addStretch()
        for button in (self._copy, self._again, self._edit, self._delete):
            layout.addWidget(button)
        if not is_user:
            layout.addSpacing(SPACE.s)
            layout.addWidget(self._counts)
            layout.addStretch()
        return row


class _Waiting(QWidget):
    """Stands where the answer will: the prompt is being read."""

    def __init__(self) -> None:
        super().__init__()
        self._label = QLabel("Waiting for the first word…")
        self._label.setProperty("role", "muted")
        self._bar = QProgressBar()
        self._bar.setAccessibleName("Prompt read")
        self._bar.setTextVisible(False)
        self._bar.setMaximumWidth(320)
        keeps = self._bar.sizePolicy()
        keeps.setRetainSizeWhenHidden(True)
        self._bar.setSizePolicy(keeps)
        self._bar.hide()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, SPACE.xs, 0, SPACE.xs)
        layout.setSpacing(SPACE.s)
        layout.addWidget(self._label)
        layout.addWidget(self._bar)

    def show_progress(self, progress: tuple[int, int] | None) -> None:
        self._bar.setVisible(progress is not None)
        if progress is None:
            self._label.setText("Waiting for the first word…")
            return
        n_read, n_prompt = progress
        self._bar.setRange(0, max(n_prompt, 1))
        self._bar.setValue(n_read)
        text = f"Reading the conversation: {n_read:,} of {n_prompt:,} tokens"
        self._label.setText(text)
        self._bar.setAccessibleDescription(text)


class _Notice(QFrame):
    """Says what went wrong or why an answer ended early, and offers what can be done."""

    action_wanted = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._text = QLabel()
        self._text.setWordWrap(True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self._actions: tuple[MessageAction, ...] = ()
        self._buttons = QHBoxLayout()
        self._buttons.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE.m, SPACE.s, SPACE.m, SPACE.s)
        layout.setSpacing(SPACE.xs)
        self._buttons.setSpacing(SPACE.m)
        layout.addWidget(self._text)
        layout.addLayout(self._buttons)

    def show_notice(self, text: str, actions: tuple[MessageAction, ...], *, is_error: bool) -> None:
        role = "banner-error" if is_error else "banner-warning"
        if self.property("role") != role:
            self.setProperty("role", role)
            self.style().polish(self)
        self._text.setText(text)
        self._text.setAccessibleName(text)
        if actions == self._actions:
            return
        self._actions = actions
        while self._buttons.count() > 1:
            old = self._buttons.takeAt(0).widget()
            if old is not None:
                old.deleteLater()
        for number, action in enumerate(actions):
            button = QPushButton(action.value)
            button.setProperty("kind", "link")
            button.setAccessibleName(action.value)
            button.clicked.connect(lambda _=False, a=action: self.action_wanted.emit(a))
            self._buttons.insertWidget(number, button)
