from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QLabel, QWidget

from engine.stats import VramSnapshot, WorkCounts
from strata_desktop.views.memory_page import MemoryPage
from strata_desktop.views.meter_curve import MemoryCurve
from tests.desktop.fake_engine import FakeEngine
from tests.desktop.paints import PaintCount, settle
from tests.desktop.snapshots import GIB, HOST, Held, make_pool, make_status

pytest_plugins = ("tests.desktop.panel_fixtures",)

BUSY = Held(id="s1", n_tokens=9000, state="writing", lane=0, tokens_per_s=20.0)
IDLE = Held(id="s2", n_tokens=5000, state="idle", idle_s=60.0)


@pytest.fixture
def page(qtbot, memory) -> MemoryPage:
    made = MemoryPage(memory)
    qtbot.addWidget(made)
    made.resize(900, 700)
    with qtbot.waitExposed(made):
        made.show()
    return made


def texts(widget: QWidget) -> str:
    labels = [label for label in widget.findChildren(QLabel) if label.isVisible()]
    return "\n".join(label.text() for label in labels)


def test_before_the_first_report_it_says_so(page) -> None:
    assert "Waiting for the engine's first report." in texts(page)


def test_without_a_model_it_says_why_it_is_empty(page, feed, clock) -> None:
    feed.status.emit(make_status())
    clock.advance(1)
    told = texts(page)
    assert "No model is loaded, so no memory is set aside for conversations." in told
    assert "appear here once a model is loaded" in told
    assert "No NVIDIA driver answered" in told
    assert "The expert cache comes with the CUDA backend" in told
    assert not page.sessions.forget.isEnabled()


def test_a_pool_without_conversations_says_what_to_do(page, show) -> None:
    show()
    assert "Send a message and it appears here." in texts(page)
    assert page.pool.map.isVisible()


def test_a_report_fills_the_page(page, show) -> None:
    show(BUSY, IDLE)
    assert page.sessions.table.isVisible()
    assert page.sessions.table.model().rowCount() == 2
    assert page.sessions.forget.isEnabled()
    assert "messages stay" in page.sessions.forget.toolTip()
    assert "16 chunks of 4,096 cells · 45.0 MiB each" in texts(page)


def test_a_card_shows_its_memory(page, feed, clock) -> None:
    card = VramSnapshot(
        is_present=True,
        reason="This version keeps nothing on the card.",
        name="A card of 24 GiB",
        total_bytes=24 * GIB,
        used_bytes=3 * GIB,
    )
    feed.status.emit(make_status(make_pool(4), vram=card))
    clock.advance(1)
    names = [child.accessibleName() for child in page.findChildren(QWidget)]
    assert "A card of 24 GiB: 3.0 of 24.0 GiB · 21.0 left." in names
    assert "This version keeps nothing on the card." in texts(page)


def test_the_chunk_under_the_pointer_is_explained_below_the_map(page, show, qtbot) -> None:
    show(BUSY)
    qtbot.mouseMove(page.pool.map, page.pool.map.tile_rect(2).center())
    assert "Chunk 2 · s1 · 808 of 4,096 cells used · 45.0 MiB" in texts(page)


def test_forget_button_asks_and_tells(page, show, engine: FakeEngine, qtbot) -> None:
    show(IDLE)
    page.sessions.forget.click()
    qtbot.waitUntil(lambda: "1 idle conversation forgotten." in texts(page), timeout=5000)
    assert engine.posts == [("/v1/sessions/forget", {"ids": None})]


def test_hundred_reports_a_second_repaint_ten_times(page, feed, clock, show, qtbot) -> None:
    show(BUSY, n_chunks=64)
    watched = {
        "map": PaintCount(page.pool.map),
        "table": PaintCount(page.sessions.table.viewport()),
    }
    settle(qtbot, *watched.values())
    for number in range(100):
        held = dataclasses.replace(BUSY, n_tokens=9000 + 40 * number)
        work = WorkCounts(decode_tokens_per_s=20.0 + number)
        feed.status.emit(make_status(make_pool(64, [held]), time_s=2000 + clock(), work=work))
        clock.advance(0.01)
        # Paint whatever is due now, as the event loop would.
        qtbot.wait(1)
    for name, count in watched.items():
        assert 5 <= count.n <= 11, name


def test_nothing_runs_while_nothing_comes(page, show, clock, qtbot) -> None:
    count = PaintCount(page.pool.map)
    show(BUSY)
    qtbot.waitUntil(lambda: count.n > 0)
    settle(qtbot, count)
    timers = [timer for timer in page.findChildren(QTimer) if timer.isActive()]
    assert [timer for timer in timers if not timer.isSingleShot()] == []
    qtbot.wait(150)
    assert count.n == 0
    assert clock.due == []


def test_layout_stays_while_numbers_change(page, show, qtbot) -> None:
    show(BUSY, IDLE)
    settle(qtbot, PaintCount(page.pool.map), PaintCount(page.sessions))
    places = [(child.objectName(), child.geometry()) for child in (page.pool, page.sessions)]
    show(dataclasses.replace(BUSY, n_tokens=30_000, tokens_per_s=123.4), IDLE)
    settle(qtbot, PaintCount(page.pool.map), PaintCount(page.sessions))
    assert [
        (child.objectName(), child.geometry()) for child in (page.pool, page.sessions)
    ] == places


def test_the_curve_draws_what_was_told_and_says_a_moment_of_it(page, feed, clock) -> None:
    curve = page.findChild(MemoryCurve)
    for number in range(5):
        memory = dataclasses.replace(HOST, ram_used_bytes=(8 + number) * GIB)
        feed.status.emit(make_status(memory=memory, time_s=1000 + 10 * number))
        clock.advance(1)
    times, used = curve._lines["ram"].getData()
    assert list(times) == [-40, -30, -20, -10, 0]
    assert list(used) == [8, 9, 10, 11, 12]
    box = curve._plot.getPlotItem().vb
    from PySide6.QtCore import QPointF

    curve._on_moved(box.mapViewToScene(QPointF(-20, 5)))
    assert "RAM 10.0" in texts(curve)
    assert "20 s ago" in texts(curve)
    curve._leave()
    assert "RAM 12.0" in texts(curve)


def test_a_narrow_window_puts_the_columns_one_below_the_other(page, show, qtbot) -> None:
    show(BUSY)
    page.resize(660, 480)
    assert page._columns.is_stacked
    page.resize(1200, 800)
    assert not page._columns.is_stacked
