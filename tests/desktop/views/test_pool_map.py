from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor, QImage

from strata_desktop.views.pool_map import PoolMap
from strata_desktop.views.theme import session_color
from tests.desktop.paints import PaintCount, settle
from tests.desktop.snapshots import Held, make_pool, make_status

pytest_plugins = ("tests.desktop.panel_fixtures",)

# A window of its own has a least size, which the offscreen platform cannot tell a desktop.
pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")

A = Held(id="s1", n_tokens=4096 * 2 + 2048, state="writing", lane=0)
B = Held(id="s2", n_tokens=4096 * 2, state="idle", n_shared=1)


def shown_map(qtbot, memory, show, *held: Held, n_chunks: int = 16) -> PoolMap:
    show(*held, n_chunks=n_chunks)
    made = PoolMap(memory)
    qtbot.addWidget(made)
    made.resize(500, 160)
    with qtbot.waitExposed(made):
        made.show()
    return made


def picture(widget: PoolMap) -> QImage:
    return widget.grab().toImage()


def color_at(widget: PoolMap, number: int, across: float, down: float) -> QColor:
    area = widget.tile_rect(number)
    image = picture(widget)
    ratio = image.devicePixelRatio()
    x = area.x() + area.width() * across
    y = area.y() + area.height() * down
    return QColor(image.pixel(int(x * ratio), int(y * ratio)))


def test_tiles_are_filled_as_far_as_they_are_used(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A)
    full = session_color(memory.table.rows[0].color)
    assert color_at(widget, 0, 0.5, 0.1) == full
    assert color_at(widget, 2, 0.5, 0.9) == full
    pale = color_at(widget, 2, 0.5, 0.2)
    assert pale != full
    assert color_at(widget, 5, 0.5, 0.5) not in (full, pale)


def test_a_shared_tile_shows_both_colors(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A, B)
    first, second = (session_color(row.color) for row in memory.table.rows)
    assert color_at(widget, 0, 0.25, 0.5) == first
    assert color_at(widget, 0, 0.75, 0.5) == second


def test_the_highlighted_session_stands_out(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A, B)
    own = session_color(memory.table.rows[0].color)
    other = color_at(widget, 3, 0.5, 0.5)
    memory.select("s1")
    assert color_at(widget, 1, 0.5, 0.5) == own
    assert color_at(widget, 3, 0.5, 0.5) != other


def test_point_and_tile(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A, n_chunks=64)
    for number in (0, 9, 63):
        assert widget.tile_at(widget.tile_rect(number).center()) == number
    assert widget.tile_at(QPoint(0, 0)) is None
    assert widget.tile_at(QPoint(widget.width() - 1, widget.height() - 1)) is None


def test_pointer_highlights_and_explains(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A, B)
    pointed = []
    widget.pointed.connect(pointed.append)
    qtbot.mouseMove(widget, widget.tile_rect(3).center())
    assert memory.highlighted == "s2"
    assert pointed[-1].id == 3
    assert "Chunk 3 · s2" in widget.toolTip()
    qtbot.mouseMove(widget, widget.tile_rect(10).center())
    assert memory.highlighted is None
    assert "free" in widget.toolTip()


def test_click_selects_and_goes_through_the_holders_of_a_shared_tile(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A, B)
    click = widget.tile_rect(0).center()
    chosen = []
    for _ in range(3):
        qtbot.mouseClick(widget, Qt.MouseButton.LeftButton, pos=click)
        chosen.append(memory.selected)
    assert chosen == ["s1", "s2", None]


def test_keys_walk_the_map(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A, B, n_chunks=64)
    columns = widget.grid.n_columns
    walk = [
        (Qt.Key.Key_Right, 1),
        (Qt.Key.Key_Down, 1 + columns),
        (Qt.Key.Key_Left, columns),
        (Qt.Key.Key_Up, 0),
        (Qt.Key.Key_Left, 0),
        (Qt.Key.Key_End, 63),
        (Qt.Key.Key_Right, 63),
        (Qt.Key.Key_Home, 0),
    ]
    for key, place in walk:
        qtbot.keyClick(widget, key)
        assert widget.marked == place
    qtbot.keyClick(widget, Qt.Key.Key_Right)
    assert widget.accessibleName().startswith("Pool map. Chunk 1 · s1 · 4,096 of 4,096")
    qtbot.keyClick(widget, Qt.Key.Key_Return)
    assert memory.selected == "s1"
    qtbot.keyClick(widget, Qt.Key.Key_Escape)
    assert memory.selected is None


def test_only_changed_tiles_are_painted(qtbot, memory, feed, clock, show) -> None:
    widget = shown_map(qtbot, memory, show, A, n_chunks=1024)
    settle(qtbot, PaintCount(widget))
    before = widget.n_tiles_painted
    grown = Held(id="s1", n_tokens=A.n_tokens + 900, state="writing", lane=0)
    feed.status.emit(make_status(make_pool(1024, [grown]), time_s=2000))
    clock.advance(1)
    qtbot.waitUntil(lambda: widget.n_tiles_painted > before, timeout=2000)
    # The tile and what its mark overlaps of its neighbours.
    assert widget.n_tiles_painted - before <= 9


def test_nothing_is_painted_when_nothing_changed(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A, n_chunks=64)
    settle(qtbot, PaintCount(widget))
    before = widget.n_tiles_painted
    show(A, n_chunks=64)
    qtbot.wait(20)
    assert widget.n_tiles_painted == before


def test_the_summary_is_told_to_screen_readers(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A, B)
    assert widget.accessibleDescription() == "16 chunks, 4 held, 1 shared, 12 free; 2 sessions."


def test_another_pool_is_laid_out_anew(qtbot, memory, show) -> None:
    widget = shown_map(qtbot, memory, show, A, n_chunks=64)
    qtbot.keyClick(widget, Qt.Key.Key_End)
    show(A, n_chunks=6)
    assert widget.marked == 5
    assert widget.grid.n_tiles == 6
    assert widget.grid.label_height > 0
