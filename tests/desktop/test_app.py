"""The whole program in one process: built, used, ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.paths import bundled_model, demo_model
from strata_desktop.app import STORE_FILE, ErrorReport, build_app, parse_arguments
from strata_desktop.client.engine_host import EngineHost
from strata_desktop.viewmodels.engine_state import EnginePhase
from strata_desktop.viewmodels.messages import MessageState
from strata_desktop.viewmodels.store import ConversationStore
from strata_desktop.views.main_window import MainWindow
from tests.desktop.fake_engine import FakeEngine, Reply
from tests.desktop.snapshots import Held, make_pool, make_status

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


class Program:
    """A built program with its window shown."""

    def __init__(self, qtbot: QtBot, home: Path, *argv: str) -> None:
        self.app, self.window, self.host = build_app(argv, home)
        self.page = self.window.chat_page
        self.chat = self.page._model
        with qtbot.waitExposed(self.window):
            self.window.show()

    def end(self) -> None:
        self.window.close()
        self.window.deleteLater()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "Тест 模型"
    monkeypatch.setenv("STRATA_HOME", str(path))
    return path


@pytest.fixture
def attached(qtbot: QtBot, engine: FakeEngine, home: Path) -> Iterator[Program]:
    program = Program(qtbot, home, "--attach", engine.address, "--theme", "light")
    program.host.start()
    program.page._engine._set(EnginePhase.READY, name="tiny", model_id="tiny")
    yield program
    program.end()


def hold(engine: FakeEngine) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text("part")
        engine.released.wait(250)
        reply.end()

    engine.on_chat = script


def test_arguments() -> None:
    arguments = parse_arguments(
        ["m.gguf", "--port", "0", "--kv-pool-tokens", "9", "--batch", "2", "--theme", "dark"]
    )
    assert arguments.model == Path("m.gguf")
    assert (arguments.port, arguments.kv_pool_tokens, arguments.batch) == (0, 9, 2)
    assert parse_arguments([]).model is None
    for argv in (["bard"], ["--model", "Bard"], ["--model=bard", "--theme", "dark"]):
        assert parse_arguments(argv).model == bundled_model()
    assert parse_arguments(["smollm2"]).model == demo_model()
    with pytest.raises(SystemExit):
        parse_arguments(["--theme", "pink"])


def test_ending_in_the_middle_of_an_answer_keeps_the_part(
    qtbot: QtBot, engine: FakeEngine, home: Path
) -> None:
    hold(engine)
    program = Program(qtbot, home, "--attach", engine.address)
    program.host.start()
    conversation = program.chat.current
    conversation.send("question")
    qtbot.waitUntil(lambda: conversation.messages[-1].text == "part")
    program.end()
    assert not engine.released.is_set(), "it waited for the answer"
    store = ConversationStore(home / STORE_FILE)
    question, answer = store.messages(conversation.id)
    store.close()
    assert question.text == "question"
    assert (answer.text, answer.state) == ("part", MessageState.INTERRUPTED)


def test_everything_is_where_it_was_after_a_restart(
    qtbot: QtBot, engine: FakeEngine, home: Path
) -> None:
    first = Program(qtbot, home, "--attach", engine.address)
    first.host.start()
    first.chat.current.send("remember me")
    qtbot.waitUntil(lambda: not first.chat.current.is_writing)
    first.page.composer.set_text("half a tho")
    first.page.set_drawer_open(is_open=True)
    # The offscreen screen is 800 pixels wide; a larger window would be made to fit.
    first.window.resize(770, 620)
    kept_id, kept_size = first.chat.current.id, first.window.size()
    first.end()
    again = Program(qtbot, home, "--attach", engine.address)
    assert again.chat.current.id == kept_id
    assert again.page.composer.text == "half a tho"
    assert again.page.is_drawer_open
    assert again.window.size() == kept_size
    again.chat.new_chat()
    again.page.composer.set_text("unsent")
    again.window.show_page("memory")
    again.end()
    last = Program(qtbot, home, "--attach", engine.address)
    assert last.window.page == "memory"
    assert last.page.composer.text == "unsent"
    last.end()


def test_pages_by_key_and_shortcuts(qtbot: QtBot, attached: Program) -> None:
    window, ctrl = attached.window, Qt.KeyboardModifier.ControlModifier
    window.activateWindow()
    for key, page in (
        (Qt.Key.Key_2, "memory"),
        (Qt.Key.Key_3, "models"),
        (Qt.Key.Key_4, "server"),
        (Qt.Key.Key_1, "chat"),
    ):
        qtbot.keyClick(window, key, ctrl)
        assert window.page == page
    qtbot.keyClick(window, Qt.Key.Key_2, ctrl)
    qtbot.keyClick(window, Qt.Key.Key_K, ctrl)
    assert window.page == "chat"
    qtbot.waitUntil(lambda: attached.page.sidebar._search.hasFocus())
    attached.chat.current.send("one")
    old = attached.chat.current
    qtbot.keyClick(window, Qt.Key.Key_N, ctrl)
    assert attached.chat.current is not old
    qtbot.waitUntil(lambda: attached.page.composer.edit.hasFocus())


def test_errors_nobody_caught_are_shown_and_the_program_goes_on(
    qtbot: QtBot, attached: Program, caplog: pytest.LogCaptureFixture
) -> None:
    report = ErrorReport(attached.window.say_error)
    try:
        raise OSError("disk full")
    except OSError:
        report.report(*sys.exc_info())
    bar = attached.window.error_bar
    qtbot.waitUntil(bar.isVisible)
    assert "disk full" in bar.text
    assert "Something went wrong." in caplog.text
    attached.chat.current.send("still here")
    qtbot.waitUntil(lambda: not attached.chat.current.is_writing)
    assert attached.chat.current.messages[1].text.strip() == "still here"


def test_theme_choice_is_kept(qtbot: QtBot, engine: FakeEngine, home: Path) -> None:
    from strata_desktop.views.theme import ThemeMode

    first = Program(qtbot, home, "--attach", engine.address)
    first.window.navigation.mode_chosen.emit(ThemeMode.DARK)
    first.end()
    again = Program(qtbot, home, "--attach", engine.address)
    assert again.window._parts.theme.mode is ThemeMode.DARK
    again.end()


def test_engine_that_cannot_be_reached_is_said(
    qtbot: QtBot, engine: FakeEngine, home: Path
) -> None:
    engine.close()
    program = Program(qtbot, home, "--attach", engine.address)
    program.host.start()
    state = program.page._engine
    qtbot.waitUntil(lambda: state.phase is EnginePhase.OFFLINE)
    assert "does not answer" in state.detail
    state.restart()
    assert state.phase is EnginePhase.STARTING
    qtbot.waitUntil(lambda: state.phase is EnginePhase.OFFLINE)
    program.end()


def test_status_stream_drives_the_state(qtbot: QtBot, engine: FakeEngine, home: Path) -> None:
    """The snapshots of a real service, replayed."""
    from engine.api.schema import format_status
    from engine.config import ApiConfig
    from engine.service import EngineService

    service = EngineService(ApiConfig(port=0))
    engine.statuses = [format_status(service.status()).decode()]
    service.stop()
    program = Program(qtbot, home, "--attach", engine.address)
    program.host.start()
    state = program.page._engine
    qtbot.waitUntil(lambda: state.phase is EnginePhase.NO_MODEL)
    phases: list[EnginePhase] = []
    state.changed.connect(lambda: phases.append(state.phase))
    engine.released.set()
    qtbot.waitUntil(lambda: len(phases) >= 2)
    assert phases[:2] == [EnginePhase.OFFLINE, EnginePhase.NO_MODEL]
    program.end()


def test_all_pages_share_one_status_stream(
    qtbot: QtBot, attached: Program, engine: FakeEngine
) -> None:
    for page in ("memory", "models", "server"):
        attached.window.show_page(page)
    # What is asked for after the pages were made is answered after their streams would have begun.
    attached.chat.current.send("one")
    qtbot.waitUntil(lambda: not attached.chat.current.is_writing)
    assert engine.n_status_streams == 1


def test_sessions_carry_the_titles_of_their_chats(
    qtbot: QtBot, engine: FakeEngine, home: Path
) -> None:
    """The memory page's state lives from the start, before the page is shown."""
    program = Program(qtbot, home, "--attach", engine.address)
    conversation = program.chat.current
    program.host.start()
    conversation.send("Plans for the summer")
    qtbot.waitUntil(lambda: not conversation.is_writing)
    own = Held(id="s1", n_tokens=100, key=conversation.id)
    strange = Held(id="s2", n_tokens=100, key="an editor")
    feed, memory = program.window._parts.feed, program.window.memory
    feed.status.emit(make_status(make_pool(8, [own, strange])))
    qtbot.waitUntil(lambda: len(memory.table.rows) == 2)
    assert [row.name for row in memory.table.rows] == ["Plans for the summer", "s2"]
    told = memory.table.index(0, 0).data(Qt.ItemDataRole.ToolTipRole)
    assert told.endswith(f"Session s1, key {conversation.id}.")
    assert len(memory.history.samples) == 1
    program.chat.rename(conversation.id, "Summer")
    qtbot.waitUntil(lambda: memory.table.rows[0].name == "Summer")
    program.end()
    feed.status.emit(make_status(make_pool(8, [strange])))
    qtbot.waitUntil(lambda: [row.name for row in memory.table.rows] == ["s2"])


def test_starting_does_not_load_the_plots(home: Path) -> None:
    code = (
        "import sys; from strata_desktop.app import build_app; "
        "app, window, host = build_app([]); window.end(); print('pyqtgraph' in sys.modules)"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert made.stdout.strip() == "False"


@pytest.mark.model
def test_the_real_thing(qtbot: QtBot, home: Path, smollm2_path: Path) -> None:
    """Start, load the demo model, chat, switch, stop, end in the middle, start again."""
    program = Program(qtbot, home, str(smollm2_path), "--port", "0", "--max-context", "1024")
    host: EngineHost = program.host
    with qtbot.waitSignal(host.started, timeout=30_000):
        host.start()
    state = program.page._engine
    qtbot.waitUntil(lambda: state.phase is EnginePhase.READY, timeout=60_000)
    chat = program.chat
    chat.current.set_settings(_greedy(chat.current.head.settings, max_tokens=12))
    program.page.composer.set_text("What is the capital of France?")
    program.page._send(program.page.composer.text)
    qtbot.waitUntil(lambda: not chat.current.is_writing, timeout=60_000)
    answer = chat.current.messages[1]
    assert answer.state in (MessageState.COMPLETE, MessageState.LENGTH), answer.error_text
    assert "Paris" in answer.text
    assert answer.n_tokens > 0
    assert answer.tokens_per_s > 0
    first = chat.current
    first.set_settings(_greedy(first.head.settings, max_tokens=None))
    first.send("Tell me a very long story about it.")
    qtbot.waitUntil(lambda: len(first.messages[-1].text) > 20, timeout=60_000)
    window: MainWindow = program.window
    window.show_page("memory")
    qtbot.wait(300)
    chat.new_chat()
    chat.current.send("Say hello.")
    second = chat.current
    qtbot.waitUntil(lambda: bool(second.messages[-1].text), timeout=60_000)
    second.stop()
    assert second.messages[-1].state is MessageState.STOPPED
    assert first.is_writing
    program.end()
    store = ConversationStore(home / STORE_FILE)
    left = store.messages(first.id)[-1]
    store.close()
    assert left.state is MessageState.INTERRUPTED
    assert len(left.text) > 20


def _greedy(settings: Any, *, max_tokens: int | None) -> Any:
    import dataclasses

    return dataclasses.replace(settings, temperature=0.0, max_tokens=max_tokens)
