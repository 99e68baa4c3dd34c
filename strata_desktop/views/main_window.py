"""The window: rail, pages, shortcuts, the error bar; what it remembers; how it ends."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QCloseEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QHBoxLayout, QMainWindow, QStackedWidget, QVBoxLayout, QWidget

from engine.paths import bundled_model
from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.engine_host import EngineHost
from strata_desktop.client.status_feed import StatusFeed
from strata_desktop.viewmodels.chat import ChatModel
from strata_desktop.viewmodels.engine_state import EngineState
from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.settings import WindowSettings
from strata_desktop.viewmodels.store import ConversationStore
from strata_desktop.views.chat_page import ChatPage
from strata_desktop.views.error_bar import ErrorBar
from strata_desktop.views.navigation import PAGES, Navigation
from strata_desktop.views.theme import Theme, ThemeMode

logger = logging.getLogger(__name__)

FIRST_SIZE_PX = (1180, 780)
LEAST_SIZE_PX = (720, 480)


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowParts:
    """Everything the window shows or owns, made in `strata_desktop.app`."""

    host: EngineHost
    client: ApiClient
    feed: StatusFeed
    store: ConversationStore
    chat: ChatModel
    engine: EngineState
    settings: WindowSettings
    theme: Theme


class MainWindow(QMainWindow):
    """The program's one window.

    Attributes:
        chat_page: the chat page.
        memory: state of the memory page; it remembers from the start on, shown or not.
        error_bar: says what went wrong and belongs to no message.
    """

    def __init__(self, parts: WindowParts) -> None:
        super().__init__()
        self._parts = parts
        self._pages: dict[str, QWidget] = {}
        self._is_ended = False
        self.memory = MemoryModel(parts.feed, parts.client)
        self.memory.title_of = self._title_of
        for told in (parts.chat.conversations.dataChanged, parts.chat.conversations.modelReset):
            told.connect(self.memory.refresh_names)
        self.setWindowTitle("Strata")
        self.setAccessibleName("Strata")
        self.setMinimumSize(*LEAST_SIZE_PX)
        self.error_bar = ErrorBar()
        self.navigation = Navigation(parts.theme)
        self.chat_page = ChatPage(parts.chat, parts.engine)
        self._stack = QStackedWidget()
        self._add_page("chat", self.chat_page)
        column = QVBoxLayout()
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.error_bar)
        column.addWidget(self._stack, 1)
        center = QWidget()
        row = QHBoxLayout(center)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.navigation)
        row.addLayout(column, 1)
        self.setCentralWidget(center)
        self.navigation.page_chosen.connect(self.show_page)
        self.navigation.mode_chosen.connect(self._on_mode)
        self.chat_page.page_wanted.connect(self.show_page)
        parts.chat.current_changed.connect(lambda: self.show_page("chat"))
        self._add_shortcuts()
        self._restore()
        # At once: the process may be killed.
        parts.chat.current_changed.connect(self._remember_chat)
        parts.chat.writing_changed.connect(self._remember_chat)

    @property
    def page(self) -> str:
        """The page shown."""
        return next(
            name for name, page in self._pages.items() if page is self._stack.currentWidget()
        )

    def show_page(self, name: str) -> None:
        """Show a page; it is made when first shown."""
        if name not in self._pages:
            self._add_page(name, self._make_page(name))
        self._stack.setCurrentWidget(self._pages[name])
        self.navigation.show_page(name)
        if name == "chat":
            self.chat_page.focus_prompt()

    def is_quiet(self) -> bool:
        """Whether no answer is being written."""
        return self._parts.chat.n_writing == 0

    def say_error(self, text: str) -> None:
        """Show what went wrong above the page."""
        self.error_bar.say(text)

    def end(self) -> None:
        """Keep everything, stop the engine. May be called more than once."""
        if self._is_ended:
            return
        self._is_ended = True
        parts = self._parts
        self._remember()
        parts.chat.close()
        # The page may still be drawn; there is no store to ask any more.
        self.memory.title_of = None
        parts.feed.stop()
        parts.client.close()
        parts.host.stop()
        parts.store.close()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Disappear at once, then wind up."""
        super().closeEvent(event)
        if event.isAccepted():
            self._remember()
            self.hide()
            self.end()

    def _make_page(self, name: str) -> QWidget:
        # Imported when first shown: plots take a while, and most starts only want to chat.
        parts = self._parts
        if name == "memory":
            from strata_desktop.views.memory_page import MemoryPage

            return MemoryPage(self.memory)
        if name == "models":
            from strata_desktop.viewmodels.models import ModelsModel
            from strata_desktop.views.models_page import ModelsPage

            model = ModelsModel(parts.client, parts.host, feed=parts.feed, built_in=bundled_model())
            return ModelsPage(model)
        from strata_desktop.viewmodels.server import ServerModel
        from strata_desktop.views.server_page import ServerPage

        return ServerPage(ServerModel(parts.client, parts.host, parts.feed))

    def _title_of(self, conversation_id: str) -> str | None:
        head = self._parts.store.conversation(conversation_id)
        return None if head is None else head.title

    def _add_page(self, name: str, page: QWidget) -> None:
        page.setProperty("role", "page")
        page.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._pages[name] = page
        self._stack.addWidget(page)

    def _add_shortcuts(self) -> None:
        keys: list[tuple[str, Callable[[], None]]] = [
            ("Ctrl+N", self._new_chat),
            ("Ctrl+F", self._search),
            ("Ctrl+K", self._search),
            ("Ctrl+,", self._toggle_drawer),
        ]
        for number, page in enumerate(PAGES, 1):
            keys.append((f"Ctrl+{number}", lambda p=page: self.show_page(p)))
        for sequence, slot in keys:
            QShortcut(QKeySequence(sequence), self, slot)

    def _new_chat(self) -> None:
        self._parts.chat.new_chat()

    def _search(self) -> None:
        self.show_page("chat")
        self.chat_page.search()

    def _toggle_drawer(self) -> None:
        self.show_page("chat")
        self.chat_page.set_drawer_open(is_open=not self.chat_page.is_drawer_open)

    def _on_mode(self, mode: ThemeMode) -> None:
        self._parts.theme.set_mode(mode)
        self._parts.settings.set_text("theme", mode.value)

    def _restore(self) -> None:
        settings, chat = self._parts.settings, self._parts.chat
        self.resize(*FIRST_SIZE_PX)
        if not (geometry := settings.geometry()).isEmpty():
            self.restoreGeometry(geometry)
        chat.current.set_draft(settings.text("chat/new_draft"))
        if conversation_id := settings.text("chat/current"):
            chat.select(conversation_id)
        self.chat_page.show_draft()
        self.chat_page.set_drawer_open(is_open=settings.flag("chat/drawer", default=False))
        page = settings.text("page", "chat")
        self.show_page(page if page in PAGES else "chat")

    def _remember(self) -> None:
        settings = self._parts.settings
        settings.set_geometry(self.saveGeometry())
        settings.set_text("page", self.page)
        settings.set_flag("chat/drawer", is_on=self.chat_page.is_drawer_open)
        self._remember_chat()

    def _remember_chat(self) -> None:
        settings, chat = self._parts.settings, self._parts.chat
        settings.set_text("chat/current", chat.current.id if chat.current.is_stored else "")
        settings.set_text("chat/new_draft", chat.new_draft)
        settings.save()
