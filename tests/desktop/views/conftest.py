"""A themed application, and a chat page over a staged engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent
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
def theme(qapp: QApplication) -> Theme:
    """The light theme. The style sheet stays: taking it off widgets that are about to be deleted
    leaves Qt with pointers to them."""
    return Theme(qapp, ThemeMode.LIGHT)


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
) -> Iterator[ChatPage]:
    """A chat page on the screen."""
    chat = ChatModel(store, client)
    made = ChatPage(chat, state)
    made.resize(900, 600)
    with qtbot.waitExposed(made):
        made.show()
    yield made
    chat.close()
    made.close()
    made.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
