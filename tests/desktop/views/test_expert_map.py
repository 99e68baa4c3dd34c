"""The map of experts: colours, pointer, keys, words, and the card around it."""

from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel

from strata_desktop.views.expert_map import ExpertMap, cell_color
from strata_desktop.views.memory_page import MemoryPage
from strata_desktop.views.theme import DARK, LIGHT, Theme, ThemeMode
from tests.desktop.viewmodels.test_expert_map import make_picks, with_picks

pytest_plugins = ("tests.desktop.panel_fixtures",)

PICKS = make_picks((8, 0, 2, 6), (4, 4, 4, 4), (1, 9, 3, 3))


@pytest.fixture
def page(qtbot, theme, memory) -> MemoryPage:
    made = MemoryPage(memory)
    qtbot.addWidget(made)
    made.resize(1000, 800)
    with qtbot.waitExposed(made):
        made.show()
    return made


@pytest.fixture
def emit(feed, clock):
    def send(picks) -> None:
        feed.status.emit(with_picks(picks))
        clock.advance(1)

    return send


def color_of(widget: ExpertMap, row: int, column: int) -> QColor:
    return widget.grab().toImage().pixelColor(widget.cell_rect(row, column).center())


def words(page: MemoryPage) -> str:
    return "\n".join(label.text() for label in page.findChildren(QLabel) if label.isVisibleTo(page))


def test_only_a_model_with_experts_has_the_card(page, emit) -> None:
    emit(None)
    assert not page.experts.isVisibleTo(page)
    assert "Expert slots" in words(page)
    emit(PICKS)
    assert page.experts.isVisibleTo(page)
    assert "Expert slots" not in words(page)
    assert "3 layers of 4 experts, 2 for each token" in words(page)
    told = "48 picks. The 1 most picked of 4 in each layer got 44 % of them. All on the CPU."
    assert told in words(page)
    emit(None)
    assert not page.experts.isVisibleTo(page)


@pytest.mark.parametrize("mode", [ThemeMode.LIGHT, ThemeMode.DARK])
def test_the_deeper_the_colour_the_more_picks(page, emit, theme: Theme, mode: ThemeMode) -> None:
    emit(PICKS)
    theme.set_mode(mode)
    c = LIGHT if mode is ThemeMode.LIGHT else DARK
    widget = page.experts.map
    row = [color_of(widget, 0, column) for column in range(4)]
    last = color_of(widget, 2, 0)
    # 9 of 16 is the largest share on the map, 0 is never.
    assert last == QColor(c.accent)
    assert row[3] == QColor(c.sunken)
    lightness = [color.lightness() for color in (last, *row)]
    assert lightness == sorted(lightness, reverse=c.is_dark)
    assert len({color.name() for color in (last, *row)}) == 5


def test_an_expert_picked_once_looks_other_than_one_never_picked() -> None:
    for c in (LIGHT, DARK):
        never, most = QColor(c.sunken), QColor(c.accent)
        once = cell_color(1e-6, never=never, most=most)
        assert abs(once.lightness() - never.lightness()) >= 8
        assert cell_color(0, never=never, most=most) == never


def test_the_order_is_chosen_by_the_box(page, emit, qtbot) -> None:
    emit(PICKS)
    widget = page.experts.map
    assert [cell.experts for cell in widget.rows[2]] == [(1,), (2,), (3,), (0,)]
    page.experts.order.click()
    assert [cell.experts for cell in widget.rows[2]] == [(0,), (1,), (2,), (3,)]
    assert color_of(widget, 2, 1) == QColor(LIGHT.accent)


def test_the_pointer_tells_numbers(page, emit, qtbot) -> None:
    emit(PICKS)
    qtbot.mouseMove(page.experts.map, page.experts.map.cell_rect(2, 0).center())
    told = "Layer 2, expert 1, place 1 · 9 picks · 56 % of the layer (an even share is 25 %)"
    assert told in words(page)
    emit(make_picks((8, 0, 2, 6), (4, 4, 4, 4), (1, 11, 3, 5)))
    assert "Layer 2, expert 1, place 1 · 11 picks" in words(page)
    qtbot.mouseMove(page.experts.map, QPoint(1, 0))
    assert "Point at a cell" in words(page)


def test_keys_move_a_mark_and_tell_it(page, emit, qtbot) -> None:
    emit(PICKS)
    widget = page.experts.map
    page.activateWindow()
    widget.setFocus()
    for key, name in (
        (Qt.Key.Key_Down, "Layer 1, expert 0"),
        (Qt.Key.Key_Down, "Layer 2, expert 1"),
        (Qt.Key.Key_Down, "Layer 2, expert 1"),
        (Qt.Key.Key_Right, "Layer 2, expert 2"),
        (Qt.Key.Key_End, "Layer 2, expert 0"),
        (Qt.Key.Key_Up, "Layer 1, expert 3"),
        (Qt.Key.Key_Home, "Layer 1, expert 0"),
        (Qt.Key.Key_Left, "Layer 1, expert 0"),
    ):
        QTest.keyClick(widget, key)
        assert widget.accessibleName().startswith(f"Expert map. {name}, place")
    assert widget.accessibleDescription().startswith("3 layers of 4 experts")


@pytest.mark.parametrize(("n_layers", "n_experts"), [(1, 2), (8, 20), (48, 128), (48, 512)])
@pytest.mark.parametrize("width", [640, 701, 1303])
def test_every_pixel_belongs_to_the_cell_that_is_drawn_there(
    page, emit, n_layers: int, n_experts: int, width: int
) -> None:
    row = tuple(range(n_experts))
    emit(make_picks(*([row] * n_layers)))
    page.resize(width, 700)
    widget = page.experts.map
    assert len(widget.rows) == n_layers
    assert sum(len(cell.experts) for cell in widget.rows[0]) == n_experts
    assert widget.height() >= n_layers * 3
    last = n_layers - 1
    for column in range(len(widget.rows[last])):
        rect = widget.cell_rect(last, column)
        assert rect.width() >= 2
        for point in (rect.topLeft(), rect.center(), rect.bottomRight()):
            assert widget.rect().contains(point)
            assert widget.cell_at(point) == (last, column)
    assert widget.cell_at(QPoint(-1, 5)) is None
    assert widget.cell_at(QPoint(5, widget.height() + 20)) is None


def test_one_expert_with_most_picks_does_not_make_the_others_look_alike(page, emit) -> None:
    """The colour is deepest from 8 times the even share on."""
    emit(make_picks((700, 20, 10, 9, *(5,) * 36)))
    widget = page.experts.map
    assert widget.deepest_share == 8 / 40
    told = "Colours from 0 % to 20 % or more of a layer's picks"
    assert page.experts.scale.accessibleName() == told
    shades = [color_of(widget, 0, column).lightness() for column in (0, 1, 2, 4)]
    assert shades == sorted(set(shades))


def test_pointing_draws_no_cell_anew(page, emit, qtbot) -> None:
    emit(PICKS)
    widget = page.experts.map
    widget.grab()
    drawn = widget._drawn
    qtbot.mouseMove(widget, widget.cell_rect(1, 1).center())
    widget.grab()
    assert widget._drawn is drawn
    emit(make_picks((8, 0, 2, 6), (4, 4, 4, 4), (1, 11, 3, 5)))
    widget.grab()
    assert widget._drawn is not drawn


def test_the_scale_names_the_largest_share(page, emit) -> None:
    emit(PICKS)
    assert page.experts.scale.accessibleName() == "Colours from 0 % to 56 % of a layer's picks"
    emit(dataclasses.replace(PICKS, n_picks=0, counts=((0,) * 4,) * 3))
    assert page.experts.scale.accessibleName() == ""
    assert "No token was computed yet." in words(page)
