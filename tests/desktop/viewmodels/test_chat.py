from __future__ import annotations

import datetime
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QModelIndex, Qt
from pytestqt.qtbot import QtBot

from strata_desktop.client.api_client import ApiClient
from strata_desktop.viewmodels.chat import ChatModel
from strata_desktop.viewmodels.conversation import Conversation, Undo
from strata_desktop.viewmodels.conversations import ConversationList, ListRole, day_group
from strata_desktop.viewmodels.messages import ChatSettings, MessageState, Role
from strata_desktop.viewmodels.store import ConversationStore
from tests.desktop.fake_engine import FakeEngine, Reply, echo


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ConversationStore]:
    made = ConversationStore(tmp_path / "chats.sqlite3")
    yield made
    made.close()


@pytest.fixture
def chat(store: ConversationStore, client: ApiClient) -> ChatModel:
    return ChatModel(store, client, model_id=lambda: "tiny")


@pytest.fixture
def undos(chat: ChatModel) -> list[Undo]:
    offered: list[Undo] = []
    chat.undo_offered.connect(offered.append)
    return offered


def idle(qtbot: QtBot, conversation: Conversation) -> None:
    qtbot.waitUntil(lambda: not conversation.is_writing)


def texts(conversation: Conversation) -> list[str]:
    return [m.text.strip() for m in conversation.messages]


def stored(store: ConversationStore, conversation: Conversation) -> list[str]:
    return [m.text.strip() for m in store.messages(conversation.id)]


def hold(engine: FakeEngine, first: str = "part ") -> None:
    """Answers begin and then wait until released."""

    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text(first)
        engine.released.wait(10)
        reply.text("rest")
        reply.end()

    engine.on_chat = script


def test_message_is_stored_before_it_is_sent(
    qtbot: QtBot, engine: FakeEngine, store: ConversationStore, chat: ChatModel, tmp_path: Path
) -> None:
    seen: list[list[str]] = []

    def script(body: dict[str, Any], reply: Reply) -> None:
        db = sqlite3.connect(tmp_path / "chats.sqlite3")
        seen.append([row[0] for row in db.execute("SELECT text FROM messages ORDER BY id")])
        db.close()
        reply.begin()
        reply.text("ok")
        reply.end()

    engine.on_chat = script
    assert chat.current.send("  hello there ")
    idle(qtbot, chat.current)
    assert seen == [["hello there", ""]]
    assert stored(store, chat.current) == ["hello there", "ok"]


def test_request_carries_everything(qtbot: QtBot, engine: FakeEngine, chat: ChatModel) -> None:
    chat.current.set_settings(ChatSettings(system_prompt="Be kind", temperature=0.0, seed=3))
    chat.current.send("one")
    idle(qtbot, chat.current)
    chat.current.send("two")
    idle(qtbot, chat.current)
    body = engine.chats[1]
    assert [(m["role"], m["content"].strip()) for m in body["messages"]] == [
        ("system", "Be kind"),
        ("user", "one"),
        ("assistant", "one"),
        ("user", "two"),
    ]
    assert body["prompt_cache_key"] == chat.current.id
    assert body["model"] == "tiny"
    assert body["temperature"] == 0.0
    assert body["seed"] == 3


def test_counts_and_title(qtbot: QtBot, chat: ChatModel) -> None:
    chat.current.send("What is a monad?\nBe brief.")
    idle(qtbot, chat.current)
    answer = chat.current.messages[1]
    assert (answer.state, answer.n_tokens, answer.tokens_per_s) == (MessageState.COMPLETE, 3, 20.0)
    assert chat.current.head.title == "What is a monad?"
    assert chat.conversations.n_conversations == 1


def test_empty_message_and_second_send_are_refused(
    qtbot: QtBot, engine: FakeEngine, chat: ChatModel
) -> None:
    hold(engine)
    assert not chat.current.send("  \n")
    assert chat.current.send("a")
    assert not chat.current.send("b")
    assert texts(chat.current)[0] == "a"
    assert len(chat.current.messages) == 2


def test_partial_answer_is_stored_while_it_is_written(
    qtbot: QtBot, engine: FakeEngine, store: ConversationStore, chat: ChatModel
) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        for number in range(1000):
            reply.text(f"{number} ")
            if engine.released.wait(0.01):
                return

    engine.on_chat = script
    chat.current.send("count")
    qtbot.waitUntil(lambda: len(chat.current.messages[1].text.split()) > 5)
    for _ in range(3):
        shown = len(chat.current.messages[1].text.split())
        qtbot.waitUntil(lambda n=shown: len(store.messages(chat.current.id)[1].text.split()) >= n)
        assert chat.current.is_writing
    assert store.messages(chat.current.id)[1].state is MessageState.WRITING
    chat.current.stop()


def test_thoughts_are_kept_apart_from_the_answer_and_not_sent_again(
    qtbot: QtBot, engine: FakeEngine, store: ConversationStore, chat: ChatModel
) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.thought("Hm, ")
        reply.event({"choices": [{"index": 0, "delta": {"reasoning": "two."}}]})
        reply.text("Four.")
        reply.end()

    engine.on_chat = script
    for question in ("2 + 2?", "Sure?"):
        chat.current.send(question)
        idle(qtbot, chat.current)
    answer = store.messages(chat.current.id)[1]
    assert (answer.thoughts, answer.text) == ("Hm, two.", "Four.")
    assert answer == chat.current.messages[1]
    assert [turn["content"] for turn in engine.chats[1]["messages"]] == [
        "2 + 2?",
        "Four.",
        "Sure?",
    ]


def test_shown_text_is_throttled(qtbot: QtBot, engine: FakeEngine, chat: ChatModel) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        for _ in range(200):
            reply.text("x")
            engine.released.wait(0.002)
        reply.end()

    engine.on_chat = script
    shown: list[float] = []
    chat.current.changed.connect(lambda _id: shown.append(time.monotonic()))
    began = time.monotonic()
    chat.current.send("go")
    idle(qtbot, chat.current)
    elapsed = time.monotonic() - began
    assert chat.current.messages[1].text == "x" * 200
    assert 2 <= len(shown) <= elapsed * 20 + 2


def test_stop_keeps_the_part(
    qtbot: QtBot, engine: FakeEngine, store: ConversationStore, chat: ChatModel
) -> None:
    hold(engine)
    chat.current.send("a")
    qtbot.waitUntil(lambda: texts(chat.current)[1] == "part")
    chat.current.stop()
    assert not chat.current.is_writing
    (_, answer) = store.messages(chat.current.id)
    assert (answer.text, answer.state) == ("part ", MessageState.STOPPED)


def test_close_stores_the_part_as_interrupted(
    qtbot: QtBot, engine: FakeEngine, store: ConversationStore, chat: ChatModel
) -> None:
    hold(engine)
    chat.current.send("a")
    qtbot.waitUntil(lambda: texts(chat.current)[1] == "part")
    chat.close()
    (_, answer) = store.messages(chat.current.id)
    assert (answer.text, answer.state) == ("part ", MessageState.INTERRUPTED)
    assert chat.n_writing == 0


def test_answers_go_on_while_another_conversation_is_shown(
    qtbot: QtBot, engine: FakeEngine, chat: ChatModel
) -> None:
    hold(engine)
    first = chat.current
    first.send("first")
    chat.new_chat()
    second = chat.current
    assert second is not first
    second.send("second")
    qtbot.waitUntil(lambda: texts(first)[1] == texts(second)[1] == "part")
    assert chat.n_writing == 2
    engine.released.set()
    idle(qtbot, first)
    idle(qtbot, second)
    assert texts(first)[1] == texts(second)[1] == "part rest"
    rows = chat.conversations
    row = rows.index(rows.row_of(first.id))
    assert row.data(ListRole.HAS_NEWS)
    assert not rows.index(rows.row_of(second.id)).data(ListRole.HAS_NEWS)
    chat.select(first.id)
    assert chat.current is first
    assert not rows.index(rows.row_of(first.id)).data(ListRole.HAS_NEWS)


def test_regenerate_replaces_and_undo_brings_back(
    qtbot: QtBot, store: ConversationStore, chat: ChatModel, undos: list[Undo], engine: FakeEngine
) -> None:
    chat.current.send("a")
    idle(qtbot, chat.current)
    old = chat.current.messages[1]

    def other(body: dict[str, Any], reply: Reply) -> None:
        assert [m["content"] for m in body["messages"]] == ["a"]
        reply.begin()
        reply.text("other")
        reply.end()

    engine.on_chat = other
    chat.current.regenerate(old.id)
    idle(qtbot, chat.current)
    assert texts(chat.current) == ["a", "other"]
    undos.pop().restore()
    assert texts(chat.current) == ["a", "a"]
    assert stored(store, chat.current) == ["a", "a"]
    assert chat.current.messages[1].id == old.id


def test_edit_replaces_from_there_on_and_undo_brings_all_back(
    qtbot: QtBot, chat: ChatModel, undos: list[Undo], engine: FakeEngine
) -> None:
    for text in ("one", "two"):
        chat.current.send(text)
        idle(qtbot, chat.current)
    before = list(chat.current.messages)
    chat.current.edit(before[0].id, "uno")
    assert texts(chat.current)[0] == "uno"
    undo = undos.pop()
    idle(qtbot, chat.current)
    assert texts(chat.current) == ["uno", "uno"]
    undo.restore()
    assert chat.current.messages == before


def test_undo_while_the_new_answer_is_written_stops_it(
    qtbot: QtBot, chat: ChatModel, undos: list[Undo], engine: FakeEngine
) -> None:
    chat.current.send("one")
    idle(qtbot, chat.current)
    before = list(chat.current.messages)
    hold(engine)
    chat.current.edit(before[0].id, "uno")
    qtbot.waitUntil(lambda: texts(chat.current)[1] == "part")
    undos.pop().restore()
    assert not chat.current.is_writing
    assert chat.current.messages == before


def test_delete_message_can_be_undone_after_switching(
    qtbot: QtBot, chat: ChatModel, undos: list[Undo]
) -> None:
    conversation = chat.current
    conversation.send("one")
    idle(qtbot, conversation)
    conversation.delete(conversation.messages[0].id)
    assert texts(conversation) == ["one"]
    assert conversation.messages[0].role is Role.ASSISTANT
    chat.new_chat()
    undos.pop().restore()
    chat.select(conversation.id)
    assert texts(chat.current) == ["one", "one"]


def test_delete_conversation_and_undo(
    qtbot: QtBot, chat: ChatModel, undos: list[Undo], engine: FakeEngine
) -> None:
    hold(engine)
    conversation = chat.current
    conversation.send("keep me")
    qtbot.waitUntil(lambda: texts(conversation)[1] == "part")
    chat.delete(conversation.id)
    assert chat.conversations.n_conversations == 0
    assert chat.current is not conversation
    assert not conversation.is_writing
    undos.pop().restore()
    assert chat.conversations.n_conversations == 1
    assert chat.current is conversation
    assert texts(chat.current) == ["keep me", "part"]


def test_trash_lists_and_restores(qtbot: QtBot, chat: ChatModel) -> None:
    conversation = chat.current
    conversation.send("one")
    idle(qtbot, conversation)
    conversation.delete(conversation.messages[1].id)
    (item,) = chat.trash()
    chat.restore(item)
    assert texts(conversation) == ["one", "one"]
    chat.delete(conversation.id)
    (item,) = chat.trash()
    chat.restore(item)
    assert chat.trash() == []
    assert chat.conversations.n_conversations == 1


def test_refusal_is_beside_the_answer_and_retry_works(
    qtbot: QtBot, chat: ChatModel, undos: list[Undo], engine: FakeEngine
) -> None:
    engine.on_chat = lambda body, reply: reply.error(503, "kv_pool_full", "Full.", 10)
    chat.current.send("hi")
    idle(qtbot, chat.current)
    answer = chat.current.messages[1]
    assert (answer.state, answer.error_code) == (MessageState.FAILED, "kv_pool_full")
    engine.on_chat = echo
    chat.current.retry()
    idle(qtbot, chat.current)
    assert texts(chat.current) == ["hi", "hi"]
    assert undos == []


def test_broken_connection_keeps_the_part(
    qtbot: QtBot, chat: ChatModel, engine: FakeEngine
) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text("half")

    engine.on_chat = script
    chat.current.send("hi")
    idle(qtbot, chat.current)
    answer = chat.current.messages[1]
    assert (answer.text, answer.state) == ("half", MessageState.INTERRUPTED)


def test_finish_reasons(qtbot: QtBot, chat: ChatModel, engine: FakeEngine) -> None:
    for reason, is_truncated, state in (
        ("length", False, MessageState.LENGTH),
        ("length", True, MessageState.POOL),
    ):

        def script(
            body: dict[str, Any], reply: Reply, r: str = reason, t: bool = is_truncated
        ) -> None:
            reply.begin()
            reply.text("x")
            reply.end(r, truncated=t)

        engine.on_chat = script
        chat.current.send("hi")
        idle(qtbot, chat.current)
        assert chat.current.messages[-1].state is state


def test_continue_asks_for_the_rest(qtbot: QtBot, chat: ChatModel, engine: FakeEngine) -> None:
    hold(engine)
    chat.current.send("story")
    qtbot.waitUntil(lambda: texts(chat.current)[1] == "part")
    chat.current.stop()
    engine.released.set()
    chat.current.continue_answer()
    idle(qtbot, chat.current)
    contents = [m["content"] for m in engine.chats[1]["messages"]]
    assert contents[:2] == ["story", "part "]
    assert "continue" in contents[2]


def test_progress_comes_and_goes(qtbot: QtBot, chat: ChatModel, engine: FakeEngine) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.event({"choices": [], "progress": {"n_read": 2, "n_prompt": 9}})
        engine.released.wait(10)
        reply.text("x")
        reply.end()

    engine.on_chat = script
    chat.current.send("hi")
    qtbot.waitUntil(lambda: chat.current.progress == (2, 9))
    engine.released.set()
    idle(qtbot, chat.current)
    assert chat.current.progress is None


def test_draft_is_kept_with_the_conversation(
    qtbot: QtBot, chat: ChatModel, store: ConversationStore
) -> None:
    chat.current.send("hi")
    idle(qtbot, chat.current)
    chat.current.set_draft("half a")
    head = store.conversation(chat.current.id)
    assert head is not None
    assert head.draft == "half a"
    chat.new_chat()
    chat.current.set_draft("new one")
    assert chat.new_draft == "new one"
    chat.new_chat()
    assert chat.current.head.draft == "new one"


def test_new_chat_keeps_sampling_but_not_the_system_prompt(qtbot: QtBot, chat: ChatModel) -> None:
    chat.current.set_settings(ChatSettings(system_prompt="Pirate", temperature=0.1))
    chat.current.send("hi")
    idle(qtbot, chat.current)
    chat.new_chat()
    assert chat.current.head.settings == ChatSettings(temperature=0.1)


def test_day_groups() -> None:
    today = datetime.date(2026, 3, 15)

    def group(days: int) -> str:
        day = datetime.datetime(2026, 3, 15, 12) - datetime.timedelta(days=days)
        return day_group(day.timestamp(), today)

    assert [group(days) for days in (-1, 0, 1, 2, 6, 7, 29, 30, 70)] == [
        "Today",
        "Today",
        "Yesterday",
        "Previous 7 days",
        "Previous 7 days",
        "Previous 30 days",
        "Previous 30 days",
        "February 2026",
        "January 2026",
    ]


def test_list_rows_headings_and_no_reset_without_need(
    qtbot: QtBot, chat: ChatModel, store: ConversationStore
) -> None:
    chat.current.send("hi")
    idle(qtbot, chat.current)
    rows: ConversationList = chat.conversations
    titles = [rows.index(i).data() for i in range(rows.rowCount(QModelIndex()))]
    assert titles == ["Today", "hi"]
    assert rows.flags(rows.index(0)) == Qt.ItemFlag.NoItemFlags
    resets: list[None] = []
    rows.modelReset.connect(lambda: resets.append(None))
    rows.refresh()
    chat.rename(chat.current.id, "  new   title ")
    assert resets == []
    assert rows.index(1).data() == "new title"
    rows.set_search("nothing like it")
    assert rows.n_conversations == 0
    rows.set_search("")
    assert rows.n_conversations == 1
