from __future__ import annotations

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strata_desktop.viewmodels.messages import ChatSettings, MessageState, Role, title_from
from strata_desktop.viewmodels.store import (
    MIGRATIONS,
    ConversationHead,
    ConversationStore,
    StoreError,
)

DAY_S = 86400.0
REPO = Path(__file__).resolve().parents[3]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "Тест é 模型" / "chats.sqlite3"


@pytest.fixture
def store(path: Path, clock: Clock) -> Iterator[ConversationStore]:
    made = ConversationStore(path, now=clock)
    yield made
    made.close()


def head(name: str = "a", **values: object) -> ConversationHead:
    values = {"title": f"Title {name}", "updated_s": 0.0, "settings": ChatSettings(), **values}
    return ConversationHead(id=name, **values)  # type: ignore[arg-type]


ASK = (Role.USER, "Question", MessageState.COMPLETE)
ANSWER = (Role.ASSISTANT, "Answer", MessageState.COMPLETE)


def test_everything_comes_back_after_reopening(
    store: ConversationStore, path: Path, clock: Clock
) -> None:
    settings = ChatSettings(system_prompt="Be brief", temperature=0.0, seed=7, max_tokens=5)
    store.save_conversation(head(settings=settings, draft="half a tho"))
    _, answer = store.add_messages("a", [ASK, ANSWER])
    store.save_message(dataclasses.replace(answer, text="**x**", n_tokens=3, tokens_per_s=1.5))
    before = (store.conversations(), store.messages("a"))
    store.close()
    again = ConversationStore(path, now=clock)
    assert (again.conversations(), again.messages("a")) == before
    assert again.conversations()[0].settings == settings
    assert again.messages("a")[1].text == "**x**"
    again.close()


def test_newest_conversation_first(store: ConversationStore, clock: Clock) -> None:
    for name in "abc":
        clock.now_s += 1
        store.save_conversation(head(name))
        store.add_messages(name, [ASK])
    clock.now_s += 1
    store.add_messages("a", [ANSWER])
    store.save_conversation(head("b", title="renamed"))
    assert [one.id for one in store.conversations()] == ["a", "c", "b"]


def test_search_finds_titles_and_messages_in_any_case(store: ConversationStore) -> None:
    store.save_conversation(head("a", title="Äpfel 100%"))
    store.save_conversation(head("b"))
    store.add_messages("b", [(Role.USER, "Straße under_score", MessageState.COMPLETE)])
    found = {
        text: [one.id for one in store.conversations(text)]
        for text in ("äPFEL", "STRASSE", "100%", "%", "_", "zzz", " ")
    }
    assert found["äPFEL"] == found["100%"] == found["%"] == ["a"]
    assert found["STRASSE"] == found["_"] == ["b"]
    assert found["zzz"] == []
    assert len(found[" "]) == 2


def test_search_does_not_see_deleted_messages(store: ConversationStore) -> None:
    store.save_conversation(head())
    first, _ = store.add_messages("a", [(Role.USER, "secret", MessageState.COMPLETE), ANSWER])
    store.trash_messages([first.id])
    assert store.conversations("secret") == []


def test_deleted_conversation_comes_back_whole(store: ConversationStore) -> None:
    store.save_conversation(head())
    store.add_messages("a", [ASK, ANSWER])
    store.trash_conversation("a")
    assert store.conversations() == []
    assert store.conversation("a") is None
    assert [(item.conversation_id, item.message_ids) for item in store.trash()] == [("a", ())]
    store.restore_conversation("a")
    assert [m.text for m in store.messages("a")] == ["Question", "Answer"]
    assert store.trash() == []


def test_deleted_messages_come_back_at_their_place(store: ConversationStore) -> None:
    store.save_conversation(head())
    first, second = store.add_messages("a", [ASK, ANSWER])
    store.add_messages("a", [ASK])
    store.trash_messages([first.id, second.id])
    assert len(store.messages("a")) == 1
    (item,) = store.trash()
    assert item.message_ids == (first.id, second.id)
    assert item.excerpt == "Question"
    store.restore_messages(item.message_ids)
    assert [m.text for m in store.messages("a")] == ["Question", "Answer", "Question"]


def test_replacing_is_one_step_and_can_be_taken_back(store: ConversationStore) -> None:
    store.save_conversation(head())
    old = [m.id for m in store.add_messages("a", [ASK, ANSWER])]
    new = [m.id for m in store.add_messages("a", [ANSWER], replacing=old)]
    assert [m.id for m in store.messages("a")] == new
    store.restore_messages(old, instead_of=new)
    assert [m.id for m in store.messages("a")] == old


def test_trash_is_kept_thirty_days(store: ConversationStore, path: Path, clock: Clock) -> None:
    for name in ("a", "b"):
        store.save_conversation(head(name))
    ids = [m.id for m in store.add_messages("b", [ASK, ANSWER])]
    store.trash_conversation("a")
    store.trash_messages(ids[:1])
    store.close()
    clock.now_s += 29.9 * DAY_S
    again = ConversationStore(path, now=clock)
    assert len(again.trash()) == 2
    again.close()
    clock.now_s += 0.2 * DAY_S
    last = ConversationStore(path, now=clock)
    assert last.trash() == []
    assert [m.id for m in last.messages("b")] == ids[1:]
    last.restore_conversation("a")
    assert last.conversation("a") is None
    last.close()


def test_failed_step_changes_nothing(store: ConversationStore) -> None:
    store.save_conversation(head())
    (kept,) = store.add_messages("a", [ASK])
    with pytest.raises(sqlite3.IntegrityError):
        store.add_messages("nowhere", [ASK], replacing=[kept.id])
    assert store.messages("a") == [kept]


def test_file_of_the_first_version_is_carried_on(path: Path) -> None:
    path.parent.mkdir(parents=True)
    db = sqlite3.connect(path)
    db.executescript(MIGRATIONS[0])
    db.execute("INSERT INTO conversations VALUES ('a', 'Old', '', '', 1, 1, NULL)")
    db.execute(
        "INSERT INTO messages (conversation_id, role, text, state, created_s) "
        "VALUES ('a', 'user', 'kept', 'complete', 1)"
    )
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    store = ConversationStore(path)
    (message,) = store.messages("a")
    store.close()
    assert (message.text, message.thoughts) == ("kept", "")


def test_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(StoreError, match="newer version"):
        ConversationStore(path)
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS) + 1,)
    db.close()


def test_damaged_file_is_set_aside_and_said(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    path.write_bytes(b"this is not a database" * 100)
    store = ConversationStore(path)
    assert "could not be read" in store.notice
    store.save_conversation(head())
    store.close()
    (aside,) = tmp_path.glob("*.damaged-*")
    assert aside.read_bytes().startswith(b"this is not")


WRITER = """
import dataclasses, sys, time
from pathlib import Path
from strata_desktop.viewmodels.messages import *
from strata_desktop.viewmodels.store import *
store = ConversationStore(Path(sys.argv[1]))
store.save_conversation(
    ConversationHead(id="a", title="t", updated_s=0, settings=ChatSettings()))
_, answer = store.add_messages("a", [
    (Role.USER, "the question", MessageState.COMPLETE),
    (Role.ASSISTANT, "", MessageState.WRITING)])
n = 0
while True:
    n += 1
    answer = dataclasses.replace(answer, text=answer.text + f"{n} ")
    store.save_message(answer)
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
def test_survives_the_death_of_the_process_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "chats.sqlite3"
    for round_number in range(3):
        path.unlink(missing_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPO,
        )
        assert process.stdout is not None
        n_said = 0
        for line in process.stdout:
            n_said = int(line)
            if n_said >= 20 + 7 * round_number:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()
        store = ConversationStore(path)
        question, answer = store.messages("a")
        store.close()
        assert question.text == "the question"
        assert answer.state is MessageState.INTERRUPTED
        assert len(answer.text.split()) >= n_said
        assert store.notice == ""


def test_titles() -> None:
    assert title_from("\n  ## What is *this*?\nmore") == "What is *this*?"
    assert title_from("") == "New chat"
    long = title_from("word " * 40)
    assert long.endswith("word…")
    assert len(long) <= 61
    assert title_from("x" * 100) == "x" * 60 + "…"


def test_settings_of_another_version_are_read() -> None:
    text = '{"temperature": 0.3, "mirostat": 2}'
    assert ChatSettings.from_json(text) == ChatSettings(temperature=0.3)
    assert ChatSettings.from_json("") == ChatSettings()


def test_settings_body_leaves_out_what_is_not_set() -> None:
    body = ChatSettings().to_body()
    assert "seed" not in body
    assert "max_tokens" not in body
    assert ChatSettings(seed=0, max_tokens=9).to_body() == {**body, "seed": 0, "max_tokens": 9}
