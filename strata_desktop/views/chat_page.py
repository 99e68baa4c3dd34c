"""The chat page: conversations, messages, prompt, and the settings drawer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, Signal, SignalInstance
from PySide6.QtGui import QKeySequence, QResizeEvent, QShortcut
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QInputDialog,
    QLabel,
    QSizePolicy,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.viewmodels.chat import ChatModel
from strata_desktop.viewmodels.conversation import Conversation
from strata_desktop.viewmodels.engine_state import EnginePhase, EngineState
from strata_desktop.viewmodels.message_words import MessageAction
from strata_desktop.views.chat_welcome import ChatWelcome
from strata_desktop.views.composer import Composer
from strata_desktop.views.conversation_list import Sidebar
from strata_desktop.views.icons import IconButton
from strata_desktop.views.settings_drawer import SettingsDrawer
from strata_desktop.views.theme import SPACE
from strata_desktop.views.toast import Toast
from strata_desktop.views.transcript import Transcript
from strata_desktop.views.trash_dialog import TrashDialog

ROOM_FOR_BOTH_PX = 980
"""Below this width the list makes room for the drawer while that is open."""


class ChatPage(QWidget):
    """Everything about chatting.

    Signals:
        page_wanted: another page is to be shown ("memory", "models").
    """

    page_wanted = Signal(str)

    def __init__(
        self, model: ChatModel, engine: EngineState, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setProperty("role", "page")
        self._model = model
        self._engine = engine
        self._shown: Conversation | None = None
        self.sidebar = Sidebar(model)
        self.transcript = Transcript()
        self.welcome = ChatWelcome(engine)
        self.composer = Composer()
        self.drawer = SettingsDrawer()
        self.drawer.hide()
        self._title = QLabel()
        self._title.setProperty("role", "strong")
        self._title.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.drawer_button = IconButton("sliders", "Chat settings")
        self.drawer_button.setCheckable(True)
        self.drawer_button.toggled.connect(self._on_drawer)
        self._stack = QStackedWidget()
        self._stack.addWidget(self.welcome)
        self._stack.addWidget(self.transcript)
        self._build()
        self.toast = Toast(self, self._stack)
        self._connect()
        self._on_current()
        self._on_engine()

    @property
    def is_drawer_open(self) -> bool:
        """Whether the settings drawer is open."""
        return self.drawer_button.isChecked()

    def set_drawer_open(self, *, is_open: bool) -> None:
        """Open or close the settings drawer."""
        self.drawer_button.setChecked(is_open)

    def focus_prompt(self) -> None:
        """Begin to write."""
        self.composer.focus()

    def show_draft(self) -> None:
        """Show what was typed and not sent."""
        self.composer.set_text(self._model.current.head.draft)

    def search(self) -> None:
        """Begin to search the conversations."""
        if not self.sidebar.isVisible():
            self.set_drawer_open(is_open=False)
        self.sidebar.focus_search()

    def pick_model(self) -> None:
        """Ask for a model file and load it."""
        folder = self._engine.models_dir
        name, _ = QFileDialog.getOpenFileName(
            self,
            "Open a model",
            str(folder if folder.is_dir() else Path.home()),
            "GGUF models (*.gguf)",
        )
        if name:
            self._engine.load(Path(name))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Make room where it is narrow."""
        super().resizeEvent(event)
        self._share_width()

    def _build(self) -> None:
        header = QHBoxLayout()
        header.setContentsMargins(SPACE.xl, SPACE.s, SPACE.m, SPACE.s)
        header.addWidget(self._title, 1)
        header.addWidget(self.drawer_button)
        middle = QVBoxLayout()
        middle.setContentsMargins(0, 0, 0, 0)
        middle.setSpacing(0)
        middle.addLayout(header)
        middle.addWidget(self._stack, 1)
        middle.addWidget(self.composer)
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.sidebar)
        layout.addLayout(middle, 1)
        layout.addWidget(self.drawer)

    def _connect(self) -> None:
        self._model.current_changed.connect(self._on_current)
        self._model.undo_offered.connect(self.toast.offer)
        self._engine.changed.connect(self._on_engine)
        self.sidebar.chosen.connect(self.focus_prompt)
        self.sidebar.rename_wanted.connect(self._rename)
        self.sidebar.trash_wanted.connect(self._open_trash)
        self.transcript.action_wanted.connect(self._act)
        self.transcript.edited.connect(self._edit)
        self.composer.sent.connect(self._send)
        self.composer.stopped.connect(self._stop)
        self.composer.draft_changed.connect(lambda text: self._model.current.set_draft(text))
        self.welcome.prompt_chosen.connect(self._try_prompt)
        self.welcome.model_wanted.connect(self._engine.load)
        self.welcome.file_wanted.connect(self.pick_model)
        self.welcome.restart_wanted.connect(self._engine.restart)
        self.drawer.changed.connect(lambda settings: self._model.current.set_settings(settings))
        for key, slot in (
            (Qt.Key.Key_Escape, self._stop),
            (QKeySequence.StandardKey.Undo, self.toast.undo),
        ):
            shortcut = QShortcut(QKeySequence(key), self, slot)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.drawer.closed.connect(lambda: self.drawer_button.setChecked(False))

    def _on_current(self) -> None:
        if self._shown is not None:
            for signal, slot in self._followed(self._shown):
                signal.disconnect(slot)
        conversation = self._shown = self._model.current
        for signal, slot in self._followed(conversation):
            signal.connect(slot)
        self.transcript.show_conversation(conversation)
        self.composer.set_text(conversation.head.draft)
        self.drawer.show_settings(conversation.head.settings)
        self._on_head()
        self._on_writing()
        self._choose_view()

    def _followed(
        self, conversation: Conversation
    ) -> tuple[tuple[SignalInstance, Callable[[], None]], ...]:
        return (
            (conversation.writing_changed, self._on_writing),
            (conversation.head_changed, self._on_head),
            (conversation.reset, self._choose_view),
            (conversation.added, self._choose_view),
        )

    def _on_head(self) -> None:
        head = self._model.current.head
        self._title.setText(head.title if self._model.current.is_stored else "New chat")
        self._title.setToolTip(head.title)

    def _on_writing(self) -> None:
        self.composer.set_writing(is_writing=self._model.current.is_writing)

    def _on_engine(self) -> None:
        engine = self._engine
        status = {
            EnginePhase.STARTING: "Starting the engine…",
            EnginePhase.OFFLINE: "Engine not running",
            EnginePhase.NO_MODEL: "No model loaded. Choose one on the Models page.",
            EnginePhase.LOADING: f"Loading {engine.model_name}…",
            EnginePhase.READY: engine.model_name,
            EnginePhase.FAILED: "No model loaded. Choose one on the Models page.",
        }[engine.phase]
        self.composer.set_status(status, can_send=engine.phase is EnginePhase.READY)

    def _choose_view(self) -> None:
        is_empty = not self._model.current.messages
        self._stack.setCurrentWidget(self.welcome if is_empty else self.transcript)

    def _send(self, text: str) -> None:
        if self._model.current.send(text):
            self.composer.set_text("")
            self.transcript.follow()

    def _stop(self) -> None:
        self._model.current.stop()

    def _try_prompt(self, text: str) -> None:
        self.composer.set_text(text)
        self.composer.focus()

    def _edit(self, message_id: int, text: str) -> None:
        self._model.current.edit(message_id, text)
        self.transcript.follow()

    def _act(self, message_id: int, action: MessageAction) -> None:
        conversation = self._model.current
        if action is MessageAction.RETRY:
            conversation.retry()
        elif action is MessageAction.REGENERATE:
            conversation.regenerate(message_id)
        elif action is MessageAction.CONTINUE:
            conversation.continue_answer()
        elif action is MessageAction.DELETE:
            conversation.delete(message_id)
        elif action is MessageAction.NEW_CHAT:
            self._model.new_chat()
        elif action is MessageAction.OPEN_MODELS:
            self.page_wanted.emit("models")
        elif action is MessageAction.OPEN_MEMORY:
            self.page_wanted.emit("memory")

    def _rename(self, conversation_id: str) -> None:
        row = self._model.conversations.row_of(conversation_id)
        old = str(self._model.conversations.index(row).data() or "")
        title, is_ok = QInputDialog.getText(self, "Rename chat", "Title:", text=old)
        if is_ok:
            self._model.rename(conversation_id, title)

    def _open_trash(self) -> None:
        TrashDialog(self._model, self).exec()

    def _on_drawer(self, is_open: bool) -> None:  # noqa: FBT001 - a slot
        self.drawer.setVisible(is_open)
        self._share_width()
        if is_open and self.isVisible():
            self.drawer.focus()

    def _share_width(self) -> None:
        fits_both = self.width() >= ROOM_FOR_BOTH_PX
        self.sidebar.setVisible(fits_both or not self.is_drawer_open)
