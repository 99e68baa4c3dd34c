from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QAbstractButton, QLabel, QPushButton, QToolButton, QWidget
from pytestqt.qtbot import QtBot

from strata_desktop.viewmodels.engine_state import EnginePhase, EngineState
from strata_desktop.viewmodels.messages import MessageState, Role
from strata_desktop.views.chat_page import ChatPage
from strata_desktop.views.code_view import CodeText, CodeView
from strata_desktop.views.message_editor import MessageEditor
from strata_desktop.views.message_view import MessageView
from tests.desktop.fake_engine import FakeEngine, Reply, echo

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")

LEFT = Qt.MouseButton.LeftButton


def buttons(root: QWidget, name: str) -> list[QAbstractButton]:
    """The visible buttons of that accessible name."""
    return [
        one
        for kind in (QPushButton, QToolButton)
        for one in root.findChildren(kind)
        if one.accessibleName() == name and one.isVisible()
    ]


def button(root: QWidget, name: str) -> QAbstractButton:
    """The one visible button of that accessible name."""
    found = buttons(root, name)
    assert len(found) == 1, f"{len(found)} buttons named {name!r}"
    return found[0]


def click(qtbot: QtBot, root: QWidget, name: str) -> None:
    """Click a button once it is there (a new one is shown by the next layout)."""
    qtbot.waitUntil(lambda: len(buttons(root, name)) == 1)
    qtbot.mouseClick(button(root, name), LEFT)


def say(qtbot: QtBot, page: ChatPage, text: str) -> None:
    qtbot.keyClicks(page.composer.edit, text)
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not page._model.current.is_writing)


def views(page: ChatPage) -> list[MessageView]:
    return page.transcript.views


def texts(page: ChatPage) -> list[str]:
    return [view.message.text.strip() for view in views(page)]


def words(view: QWidget) -> str:
    return " ".join(one.text() for one in view.findChildren(QLabel) if one.isVisible())


def hold(engine: FakeEngine, *parts: str) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        for part in parts:
            reply.text(part)
        engine.released.wait(10)
        reply.end()

    engine.on_chat = script


def test_enter_sends_and_the_answer_appears(qtbot: QtBot, page: ChatPage) -> None:
    assert page.welcome.isVisible()
    say(qtbot, page, "hello world")
    assert page.transcript.isVisible()
    assert texts(page) == ["hello world", "hello world"]
    assert page.composer.text == ""
    assert "3 tokens · 20.0 tokens/s" in words(views(page)[1])
    assert page._title.text() == "hello world"


def test_a_bubble_is_as_small_as_its_text(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "hello world")
    text = views(page)[0]._body
    qtbot.waitUntil(lambda: 0 < text.parentWidget().height() < 50)
    assert text.parentWidget().width() < 160
    assert text.height() >= text.document().size().height()
    say(qtbot, page, "long words " * 60)
    text = views(page)[2]._body
    qtbot.waitUntil(lambda: text.height() >= text.document().size().height() > 60)
    assert text.parentWidget().width() <= page.transcript.viewport().width() - 72


def test_thoughts_are_folded_and_can_be_read(
    qtbot: QtBot, page: ChatPage, engine: FakeEngine
) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.thought("Let me see.")
        engine.released.wait(10)
        reply.text("Yes.")
        reply.end()

    engine.on_chat = script
    page._model.current.send("Is it?")
    qtbot.waitUntil(lambda: len(views(page)) == 2 and bool(views(page)[1].message.thoughts))
    answer = views(page)[1]
    fold = button(answer, "Thinking…")
    assert "Waiting" not in words(answer)
    assert not answer._thoughts._body.isVisible()
    fold.click()
    assert answer._thoughts._body.isVisible()
    assert answer._thoughts._body.toPlainText() == "Let me see."
    engine.released.set()
    qtbot.waitUntil(lambda: not page._model.current.is_writing)
    assert fold.text() == "Thoughts"
    assert answer._thoughts._body.isVisible()


def test_code_keeps_room_below_its_last_line(
    qtbot: QtBot, page: ChatPage, engine: FakeEngine
) -> None:
    """Also with letters that the code's font does not have, whose lines are higher."""

    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text("```python\n" + "x = '😀 你 é'  # 注\n" * 40 + "```\n")
        reply.end()

    engine.on_chat = script
    page._model.current.send("code")
    qtbot.waitUntil(lambda: not page._model.current.is_writing)
    text = page.transcript.findChild(CodeText)
    last = text.blockBoundingGeometry(text.document().lastBlock()).translated(text.contentOffset())
    assert text.height() - last.bottom() >= 14


def test_shift_enter_begins_a_line(qtbot: QtBot, page: ChatPage) -> None:
    edit = page.composer.edit
    one_line = edit.height()
    qtbot.keyClicks(edit, "a")
    qtbot.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(edit, "b")
    assert page.composer.text == "a\nb"
    assert edit.height() > one_line
    for _ in range(30):
        qtbot.keyClick(edit, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert edit.height() < 300


def test_tab_leaves_the_prompt(qtbot: QtBot, page: ChatPage) -> None:
    page.activateWindow()
    page.composer.focus()
    qtbot.waitUntil(page.composer.edit.hasFocus)
    qtbot.keyClicks(page.composer.edit, "x")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Tab)
    assert not page.composer.edit.hasFocus()
    assert page.composer.text == "x"


def test_esc_stops_and_keeps_the_part(qtbot: QtBot, page: ChatPage, engine: FakeEngine) -> None:
    hold(engine, "some ", "text")
    qtbot.keyClicks(page.composer.edit, "go")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: texts(page)[1:] == ["some text"])
    assert button(page, "Stop the answer (Esc)").isEnabled()
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Escape)
    assert not page._model.current.is_writing
    assert views(page)[1].message.state is MessageState.STOPPED
    assert "stopped" in words(views(page)[1])
    qtbot.waitUntil(lambda: not button(page, "Send message").isEnabled())


def test_reading_progress_is_shown(qtbot: QtBot, page: ChatPage, engine: FakeEngine) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.event({"choices": [], "progress": {"n_read": 1024, "n_prompt": 4096}})
        engine.released.wait(10)
        reply.end()

    engine.on_chat = script
    qtbot.keyClicks(page.composer.edit, "go")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: "1,024 of 4,096 tokens" in words(views(page)[1]))


def test_pool_full_is_said_beside_the_message_and_retried(
    qtbot: QtBot, page: ChatPage, engine: FakeEngine
) -> None:
    engine.on_chat = lambda body, reply: reply.error(503, "kv_pool_full", "Full.", 10)
    say(qtbot, page, "hi")
    answer = views(page)[1]
    assert "memory shared by all conversations is full" in words(answer)
    wanted: list[str] = []
    page.page_wanted.connect(wanted.append)
    click(qtbot, answer, "Show memory")
    assert wanted == ["memory"]
    engine.on_chat = echo
    click(qtbot, answer, "Try again")
    qtbot.waitUntil(lambda: texts(page) == ["hi", "hi"])
    assert not page.toast.isVisible()


@pytest.mark.parametrize(
    ("code", "said", "offered"),
    [
        ("context_length_exceeded", "longer than the model's context", "Start a new chat"),
        ("model_not_loaded", "No model is loaded", "Choose a model"),
        ("other", "The exact words.", "Try again"),
    ],
)
def test_failures_are_said_in_words(
    qtbot: QtBot, page: ChatPage, engine: FakeEngine, code: str, said: str, offered: str
) -> None:
    engine.on_chat = lambda body, reply: reply.error(400, code, "The exact words.")
    say(qtbot, page, "hi")
    assert said in words(views(page)[1])
    qtbot.waitUntil(lambda: len(buttons(views(page)[1], offered)) == 1)


def test_engine_gone_is_said(qtbot: QtBot, page: ChatPage, engine: FakeEngine) -> None:
    engine.close()
    say(qtbot, page, "hi")
    assert "The engine does not answer" in words(views(page)[1])
    assert texts(page)[0] == "hi"


def test_edit_and_undo(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "first")
    click(qtbot, views(page)[0], "Edit and send again")
    editor = page.findChild(MessageEditor)
    assert editor is not None
    editor._edit.setPlainText("second")
    click(qtbot, editor, "Send changed message")
    qtbot.waitUntil(lambda: texts(page) == ["second", "second"])
    click(qtbot, page.toast, "Undo")
    assert texts(page) == ["first", "first"]


def test_edit_can_be_left(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "first")
    click(qtbot, views(page)[0], "Edit and send again")
    editor = page.findChild(MessageEditor)
    assert editor is not None
    qtbot.keyClick(editor._edit, Qt.Key.Key_Escape)
    assert not editor.isVisible()
    assert texts(page) == ["first", "first"]
    assert button(views(page)[0], "Edit and send again").isVisible()


def test_answer_again_and_undo(qtbot: QtBot, page: ChatPage, engine: FakeEngine) -> None:
    say(qtbot, page, "x")
    old = views(page)[1].message
    click(qtbot, views(page)[1], "Answer again")
    qtbot.waitUntil(lambda: not page._model.current.is_writing)
    assert views(page)[1].message.id != old.id
    click(qtbot, page.toast, "Undo")
    assert views(page)[1].message == old


def test_delete_message_and_undo(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "x")
    click(qtbot, views(page)[0], "Delete message")
    assert texts(page) == ["x"]
    click(qtbot, page.toast, "Undo")
    assert texts(page) == ["x", "x"]


def test_copy_message(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "copy **me**")
    click(qtbot, views(page)[1], "Copy message")
    assert QGuiApplication.clipboard().text().strip() == "copy **me**"


def test_keys_in_the_list_lose_nothing(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "precious")
    rows = page.sidebar.list
    page.activateWindow()
    rows.setFocus()
    for key in (Qt.Key.Key_Backspace, Qt.Key.Key_Backspace):
        qtbot.keyClick(rows, key)
    assert page._model.conversations.n_conversations == 1
    assert not page.toast.isVisible()
    qtbot.keyClick(rows, Qt.Key.Key_Delete)
    assert page._model.conversations.n_conversations == 0
    assert len(page._model.trash()) == 1
    click(qtbot, page.toast, "Undo")
    assert page._model.conversations.n_conversations == 1
    assert texts(page) == ["precious", "precious"]


def test_undo_by_key(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "precious")
    rows = page.sidebar.list
    page.activateWindow()
    rows.setFocus()
    qtbot.waitUntil(rows.hasFocus)
    qtbot.keyClick(rows, Qt.Key.Key_Delete)
    rows.setFocus()
    qtbot.keyClick(rows, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert page._model.conversations.n_conversations == 1


def test_search_narrows_the_list(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "apples")
    page._model.new_chat()
    say(qtbot, page, "pears")
    page.sidebar.focus_search()
    qtbot.keyClicks(page.sidebar._search, "APPL")
    assert page._model.conversations.n_conversations == 1
    assert texts(page) == ["pears", "pears"]
    qtbot.keyClicks(page.sidebar._search, "zzz")
    assert page.sidebar._empty.text() == "No chat contains this."


def test_click_in_the_list_shows_a_conversation(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "one")
    page._model.new_chat()
    assert page.welcome.isVisible()
    rows = page.sidebar.list
    place = rows.visualRect(page._model.conversations.index(1)).center()
    qtbot.mouseClick(rows.viewport(), LEFT, pos=place)
    assert texts(page) == ["one", "one"]
    assert page.transcript.isVisible()


def test_draft_follows_its_conversation(qtbot: QtBot, page: ChatPage) -> None:
    say(qtbot, page, "one")
    first = page._model.current.id
    qtbot.keyClicks(page.composer.edit, "half")
    page._model.new_chat()
    assert page.composer.text == ""
    page._model.select(first)
    assert page.composer.text == "half"


def test_streaming_costs_the_last_block_only(
    qtbot: QtBot, page: ChatPage, engine: FakeEngine
) -> None:
    hold(engine, "para one\n\npara two\n\n```python\nx = 1\n```\n\npara three\n\n", "four")
    qtbot.keyClicks(page.composer.edit, "go")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: texts(page)[1].endswith("four"))
    body = views(page)[1]._body
    conversation = page._model.current
    conversation._on_delta(" more")
    qtbot.waitUntil(lambda: views(page)[1].message.text.endswith("more"))
    assert body.n_changed == 1


def test_code_has_its_own_bar_and_copy(qtbot: QtBot, page: ChatPage, engine: FakeEngine) -> None:
    long = "x = '" + "y" * 500 + "'"

    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text(f"Look:\n\n```python\n{long}\nz = 2\n```\n")
        reply.end()

    engine.on_chat = script
    say(qtbot, page, "go")
    code = page.findChild(CodeView)
    assert code is not None
    click(qtbot, code, "Copy python code")
    assert QGuiApplication.clipboard().text() == f"{long}\nz = 2"
    assert code._text.horizontalScrollBar().maximum() > 0
    assert page.transcript.horizontalScrollBar().maximum() == 0
    assert code.width() <= page.transcript.viewport().width()


def test_scrolls_along_only_at_the_end(qtbot: QtBot, page: ChatPage, engine: FakeEngine) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text("line\n\n" * 60)
        engine.released.wait(10)
        reply.text("more\n\n" * 20)
        reply.end()

    engine.on_chat = script
    qtbot.keyClicks(page.composer.edit, "go")
    qtbot.keyClick(page.composer.edit, Qt.Key.Key_Return)
    bar = page.transcript.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 500 and bar.value() == bar.maximum())
    bar.setValue(100)
    assert button(page.transcript, "Jump to the latest message").isVisible()
    engine.released.set()
    qtbot.waitUntil(lambda: not page._model.current.is_writing)
    qtbot.wait(50)
    assert bar.value() == 100
    click(qtbot, page.transcript, "Jump to the latest message")
    assert bar.value() == bar.maximum()
    assert page.transcript.is_following


def test_long_chat_opens_with_its_end_and_shows_earlier_on_the_way_up(
    qtbot: QtBot, page: ChatPage
) -> None:
    model = page._model
    say(qtbot, page, "start")
    model._store.add_messages(
        model.current.id,
        [(Role.USER, f"message {n}", MessageState.COMPLETE) for n in range(100)],
    )
    model.current.reload()
    page.transcript.follow()
    qtbot.waitUntil(lambda: texts(page)[-1] == "message 99")
    n_shown = len(views(page))
    assert n_shown < 60
    bar = page.transcript.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 1000)
    first = views(page)[0]
    bar.setValue(50)
    qtbot.waitUntil(lambda: len(views(page)) > n_shown)
    qtbot.waitUntil(lambda: -100 < first.mapTo(page.transcript.viewport(), QPoint(0, 0)).y() < 100)


def test_settings_drawer_changes_the_conversation(qtbot: QtBot, page: ChatPage) -> None:
    click(qtbot, page, "Chat settings")
    assert page.drawer.isVisible()
    assert not page.sidebar.isVisible()
    drawer = page.drawer
    drawer._system.setPlainText("Be brief")
    drawer._fields["temperature"]._box.setValue(0.25)
    drawer._fields["top_k"]._slider.setValue(7)
    drawer._seed._edit.setText("1x2")
    settings = page._model.current.head.settings
    assert settings.system_prompt == "Be brief"
    assert settings.temperature == 0.25
    assert settings.top_k == 7
    assert settings.seed == 12
    click(qtbot, drawer, "Close chat settings")
    assert page.sidebar.isVisible()


def test_welcome_follows_the_engine(
    qtbot: QtBot, page: ChatPage, state: EngineState, engine: FakeEngine
) -> None:
    click(qtbot, page, "Example: Explain how a hash table works, with a small example.")
    assert page.composer.text.startswith("Explain")
    state._set(EnginePhase.NO_MODEL)
    assert button(page, "Open a model file").isVisible()
    assert not button(page, "Send message").isEnabled()
    state.models_dir.mkdir(parents=True)
    (state.models_dir / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF")
    page.welcome.refresh()
    engine.replies["/v1/inspect"] = {"models": [{"context_tokens": 8192}], "errors": []}
    click(qtbot, page, "Load SmolLM2")
    assert state.phase is EnginePhase.LOADING
    qtbot.waitUntil(lambda: [path for path, _ in engine.posts] == ["/v1/inspect", "/v1/load"])
    body = engine.posts[1][1]
    assert body["path"].endswith("SmolLM2-135M-Instruct.Q4_1.gguf")
    assert (body["context_tokens"], body["pool_tokens"], body["n_lanes"]) == (8192, 32768, 4)


def test_refused_model_is_said(
    qtbot: QtBot, page: ChatPage, state: EngineState, engine: FakeEngine
) -> None:
    engine.replies["/v1/inspect"] = {
        "models": [],
        "errors": [{"path": "x", "message": "x.gguf is not a GGUF file."}],
    }
    state.load(state.models_dir / "x.gguf")
    qtbot.waitUntil(lambda: state.phase is EnginePhase.FAILED)
    assert "x.gguf is not a GGUF file." in words(page.welcome)


def test_offline_engine_offers_a_restart(qtbot: QtBot, page: ChatPage, state: EngineState) -> None:
    state._set(EnginePhase.OFFLINE, detail="It is gone.")
    assert "It is gone." in words(page.welcome)
    click(qtbot, page, "Start the engine again")
    assert state.phase is EnginePhase.STARTING
