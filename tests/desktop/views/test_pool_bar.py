from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt

from strata_desktop.views.pool_bar import HoldingsBar
from tests.desktop.snapshots import Held

pytest_plugins = ("tests.desktop.panel_fixtures",)

A = Held(id="s1", n_tokens=4096 * 4)
B = Held(id="s2", n_tokens=4096 * 4)


@pytest.fixture
def bar(qtbot, memory, show) -> HoldingsBar:
    show(A, B)
    made = HoldingsBar(memory)
    qtbot.addWidget(made)
    made.resize(400, 14)
    with qtbot.waitExposed(made):
        made.show()
    return made


def test_stretches_meet_and_fill_the_bar(bar) -> None:
    rects = [(holding.name, rect.x(), rect.width()) for holding, rect in bar.stretches()]
    assert rects == [("s1", 0, 100), ("s2", 100, 100), ("free", 200, 200)]


def test_point_and_stretch(bar) -> None:
    assert bar.holding_at(QPoint(99, 5)).name == "s1"
    assert bar.holding_at(QPoint(100, 5)).name == "s2"
    assert bar.holding_at(QPoint(399, 5)).name == "free"
    assert bar.holding_at(QPoint(400, 5)) is None


def test_pointer_and_click(bar, memory, qtbot) -> None:
    qtbot.mouseMove(bar, QPoint(150, 5))
    assert memory.highlighted == "s2"
    assert "16,384 cells, 180 MiB, 25 % of the pool" in bar.toolTip()
    qtbot.mouseClick(bar, Qt.MouseButton.LeftButton, pos=QPoint(50, 5))
    assert memory.selected == "s1"
    qtbot.mouseClick(bar, Qt.MouseButton.LeftButton, pos=QPoint(300, 5))
    assert memory.selected is None


def test_a_small_holding_can_still_be_seen(bar, show) -> None:
    show(Held(id="s1", n_tokens=1), n_chunks=4096)
    holding, rect = bar.stretches()[0]
    assert holding.name == "s1"
    assert rect.width() >= 1


def test_it_tells_itself(bar) -> None:
    assert bar.accessibleDescription().count("of the pool") == 3
