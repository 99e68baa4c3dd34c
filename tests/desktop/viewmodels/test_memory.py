from __future__ import annotations

import dataclasses

import pytest

from strata_desktop.viewmodels.memory import MemoryModel
from tests.desktop.fake_engine import FakeEngine
from tests.desktop.manual_clock import ManualClock
from tests.desktop.snapshots import HOST, Held, make_pool, make_status

pytest_plugins = ("tests.desktop.panel_fixtures",)

BUSY = Held(id="s1", n_tokens=9000, state="writing", lane=0, key="talk-1", tokens_per_s=20.0)
IDLE = Held(id="s2", n_tokens=5000, state="idle", idle_s=60.0, key="talk-2")


@pytest.fixture
def model(memory: MemoryModel) -> MemoryModel:
    return memory


def test_before_the_first_report(model: MemoryModel) -> None:
    assert model.pool is None
    assert model.tiles == ()
    assert model.ram is None
    assert model.pool_gap
    assert model.sessions_gap
    assert not model.can_forget


def test_a_report_fills_everything(model: MemoryModel, show) -> None:
    show(BUSY, IDLE)
    assert len(model.tiles) == 16
    assert [row.id for row in model.table.rows] == ["s1", "s2"]
    assert model.pool_gap == ""
    assert model.sessions_gap == ""
    assert model.experts_reason
    assert model.vram_reason
    assert len(model.history.samples) == 1


def test_hundred_reports_a_second_change_it_ten_times(model, feed, clock) -> None:
    changes: list[int] = []
    model.changed.connect(lambda: changes.append(len(changes)))
    for number in range(100):
        held = dataclasses.replace(BUSY, n_tokens=9000 + number)
        feed.status.emit(make_status(make_pool(16, [held]), time_s=1000 + clock()))
        clock.advance(0.01)
    clock.advance(1)
    assert 10 <= len(changes) <= 11
    assert model.table.rows[0].n_tokens == 9099


def test_it_is_still_when_nothing_comes(model, show, clock) -> None:
    show(IDLE)
    changes: list[int] = []
    model.changed.connect(lambda: changes.append(1))
    clock.advance(60)
    assert changes == []
    assert clock.due == []


def test_names_are_the_conversations_titles(model: MemoryModel, show) -> None:
    model.title_of = {"talk-1": "Plans"}.get
    show(BUSY, IDLE)
    assert [row.name for row in model.table.rows] == ["Plans", "s2"]
    assert "Plans" in model.describe(model.tiles[0])


def test_a_new_title_shows_after_refresh(model: MemoryModel, show, clock: ManualClock) -> None:
    titles = {"talk-1": "Plans"}
    model.title_of = titles.get
    show(BUSY)
    titles["talk-1"] = "Better plans"
    model.refresh_names()
    clock.advance(1)
    assert model.table.rows[0].name == "Better plans"


def test_titles_are_looked_up_every_other_second(model: MemoryModel, feed, clock) -> None:
    asked: list[str] = []

    def title_of(key: str) -> str | None:
        asked.append(key)
        return None

    model.title_of = title_of
    for tick in range(41):
        feed.status.emit(make_status(make_pool(16, [BUSY]), time_s=1000 + 0.1 * tick))
        clock.advance(0.1)
    assert len(asked) == 3
    assert model.table.rows[0].name == "s1"


def test_colors_stay_while_sessions_come_and_go(model: MemoryModel, show) -> None:
    show(BUSY, IDLE)
    color = {row.id: row.color for row in model.table.rows}
    show(IDLE, Held(id="s3", n_tokens=10))
    show(IDLE, Held(id="s3", n_tokens=10), Held(id="s4", n_tokens=10))
    after = {row.id: row.color for row in model.table.rows}
    assert after["s2"] == color["s2"]
    assert len(set(after.values())) == 3


def test_hover_lifts_out_over_selection(model: MemoryModel, show) -> None:
    show(BUSY, IDLE)
    told: list[str | None] = []
    model.highlight_changed.connect(lambda: told.append(model.highlighted))
    model.select("s1")
    model.hover("s2")
    model.hover("s2")
    model.hover(None)
    assert told == ["s1", "s2", "s1"]
    assert model.selected == "s1"


def test_a_session_gone_is_selected_no_more(model: MemoryModel, show) -> None:
    show(BUSY, IDLE)
    model.select("s1")
    model.hover("s1")
    show(IDLE)
    assert model.selected is None
    assert model.highlighted is None


def test_a_lost_engine_says_so_and_shows_no_stale_numbers(model, feed, show, clock) -> None:
    show(BUSY)
    feed.offline.emit("The engine at http://127.0.0.1:1 does not answer.")
    clock.advance(1)
    assert "does not answer" in model.pool_gap
    assert model.tiles == ()
    assert model.table.rows == ()
    show(BUSY)
    assert model.pool_gap == ""


def test_forget_says_what_it_would_do(model: MemoryModel, show) -> None:
    show(BUSY)
    assert not model.can_forget
    assert model.forget_text == "No idle conversation holds memory."
    show(BUSY, IDLE)
    assert model.can_forget
    assert "90.0 MiB of 1 idle conversation" in model.forget_text
    assert "messages stay" in model.forget_text


def test_forget_asks_the_engine_once(model, show, engine: FakeEngine, qtbot) -> None:
    show(BUSY, IDLE)
    with qtbot.waitSignal(model.notice, timeout=5000) as told:
        model.forget_idle()
        assert not model.can_forget
        model.forget_idle()
    assert engine.posts == [("/v1/sessions/forget", {"ids": None})]
    assert told.args[0].startswith("1 idle conversation forgotten.")
    assert model.can_forget


def test_a_failed_forget_says_why(model, show, engine: FakeEngine, qtbot) -> None:
    show(BUSY, IDLE)
    engine.close()
    with qtbot.waitSignal(model.notice, timeout=10000) as told:
        model.forget_idle()
    assert told.args[0].startswith("Nothing was forgotten: The engine at")
    assert model.can_forget


def test_no_sample_where_the_system_tells_nothing(model, feed, clock) -> None:
    untold = dataclasses.replace(HOST, ram_total_bytes=0, ram_used_bytes=0)
    feed.status.emit(make_status(memory=untold))
    clock.advance(1)
    assert model.history.samples == ()
