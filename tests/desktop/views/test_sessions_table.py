from __future__ import annotations

import pytest
from PySide6.QtCore import Qt

from strata_desktop.viewmodels.memory_sessions import ID_ROLE, SessionColumn
from strata_desktop.views.sessions_table import SessionsView
from tests.desktop.snapshots import Held

pytest_plugins = ("tests.desktop.panel_fixtures",)

A = Held(id="s1", n_tokens=9000, state="writing", lane=0)
B = Held(id="s2", n_tokens=500, state="idle")
C = Held(id="s3", n_tokens=20_000, state="reading", lane=1)


@pytest.fixture
def table(qtbot, memory, show) -> SessionsView:
    show(A, B, C)
    made = SessionsView(memory)
    qtbot.addWidget(made)
    made.resize(900, 300)
    with qtbot.waitExposed(made):
        made.show()
    return made


def order(table: SessionsView) -> list[str]:
    model = table.model()
    return [model.index(row, 0).data(ID_ROLE) for row in range(model.rowCount())]


def selected(table: SessionsView) -> list[str]:
    return [index.data(ID_ROLE) for index in table.selectionModel().selectedRows()]


def test_sort_and_selection_survive_updates(table, memory, show) -> None:
    table.sortByColumn(SessionColumn.TOKENS, Qt.SortOrder.DescendingOrder)
    table.selectRow(order(table).index("s2"))
    assert memory.selected == "s2"
    show(A, Held(id="s2", n_tokens=90_000, state="writing", lane=2), C, n_chunks=64)
    assert order(table) == ["s2", "s3", "s1"]
    assert selected(table) == ["s2"]
    show(Held(id="s2", n_tokens=90_000), C, n_chunks=64)
    assert order(table) == ["s2", "s3"]
    assert selected(table) == ["s2"]


def test_selection_follows_the_map(table, memory) -> None:
    memory.select("s3")
    assert selected(table) == ["s3"]
    memory.select(None)
    assert selected(table) == []


def test_keys_choose_and_let_go(table, memory, qtbot) -> None:
    table.setFocus()
    table.selectRow(0)
    qtbot.keyClick(table, Qt.Key.Key_Down)
    assert memory.selected == "s2"
    qtbot.keyClick(table, Qt.Key.Key_Escape)
    assert memory.selected is None
    assert selected(table) == []


def test_a_row_under_the_pointer_is_highlighted(table, memory, qtbot) -> None:
    place = table.visualRect(table.model().index(2, 1)).center()
    qtbot.mouseMove(table.viewport(), place)
    assert memory.highlighted == "s3"


def test_columns_keep_their_width_whatever_the_rows_hold(table, show) -> None:
    before = [table.columnWidth(column) for column in range(len(SessionColumn))]
    show(Held(id="s1", n_tokens=4096 * 900), Held(id="s9", n_tokens=1), n_chunks=1024)
    assert [table.columnWidth(column) for column in range(len(SessionColumn))] == before


def test_a_narrow_table_leaves_columns_out_instead_of_cutting_the_name(table) -> None:
    assert not table.isColumnHidden(SessionColumn.CELLS)
    table.resize(480, 300)
    assert table.isColumnHidden(SessionColumn.CELLS)
    assert not table.isColumnHidden(SessionColumn.MIB)
    assert table.columnWidth(SessionColumn.NAME) >= 100
    table.resize(900, 300)
    assert not table.isColumnHidden(SessionColumn.CELLS)
