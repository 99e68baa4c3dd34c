"""A themed application, and a chat page over a staged engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.engine_host import EngineHost
from strata_desktop.client.status_feed import StatusFeed
from strata_desktop.viewmodels.chat import ChatModel
from strata_desktop.viewmodels.engine_state import EnginePhase, EngineState
from strata_desktop.viewmodels.store import ConversationStore
from strata_desktop.views.chat_page import ChatPage
from strata_desktop.views.theme import Theme, ThemeMode
from tests.desktop.fake_engine import FakeEngine


@pytest.fixture
def theme(qapp: QApplication) -> Iterator[Theme]:
    """The light theme; the application is bare again afterwards."""
    made = Theme(qapp, ThemeMode.LIGHT)
    yield made
    qapp.setStyleSheet("")
    made.setParent(None)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    """An empty store."""
    made = ConversationStore(tmp_path / "chats.sqlite3")
    yield made
    made.close()


@pytest.fixture
def state(engine: FakeEngine, client: ApiClient, tmp_path: Path) -> EngineState:
    """An engine that is ready."""
    feed = StatusFeed(client)
    host = EngineHost(client, attach_url=engine.address)
    made = EngineState(feed, host, models_dir=tmp_path / "models")
    made._kept = (feed, host)  # type: ignore[attr-defined]
    made._set(EnginePhase.READY, name="tiny", model_id="tiny")
    return made


@pytest.fixture
def page(
    qtbot: QtBot, theme: Theme, store: ConversationStore, client: ApiClient, state: EngineState
) -> ChatPage:
    """A chat page on the screen."""
    chat = ChatModel(store, client)
    made = ChatPage(chat, state)
    qtbot.addWidget(made)
    made.resize(900, 600)
    with qtbot.waitExposed(made):
        made.show()
    return made
