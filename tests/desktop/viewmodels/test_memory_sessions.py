from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import QPersistentModelIndex, Qt

from strata_desktop.viewmodels.memory_sessions import (
    COLOR_ROLE,
    HEADERS,
    SessionColumn,
    SessionRow,
    SessionTable,
    SortedSessions,
)


def row(number: int, **changes) -> SessionRow:
    made = SessionRow(
        id=f"s{number}",
        order=number,
        name=f"Talk {number}",
        color=number,
        lane=number,
        state="writing",
        n_tokens=1000 * number,
        cells=4096,
        n_chunks=1,
        n_shared_chunks=0,
        n_bytes=47_185_920,
        pool_cells=40_960,
        tokens_per_s=20.0,
        idle_s=0.0,
    )
    return dataclasses.replace(made, **changes)


@pytest.fixture
def table(qapp) -> SessionTable:
    made = SessionTable()
    made.update_rows([row(1), row(2), row(3)])
    return made


def ids(model: SortedSessions | SessionTable) -> list[str]:
    return [model.index(number, 0).data() for number in range(model.rowCount())]


def test_cells_read_as_they_should(table: SessionTable) -> None:
    table.update_rows([row(1, lane=None, state="idle", idle_s=754, tokens_per_s=float("nan"))])
    shown = {
        HEADERS[column]: table.index(0, column).data() for column in range(table.columnCount())
    }
    assert shown == {
        "Session": "Talk 1",
        "Lane": "–",
        "State": "idle",
        "Tokens": "1,000",
        "Cells": "4,096",
        "MiB": "45.0",
        "Share": "10 %",
        "tok/s": "–",
        "Idle": "12 min",
    }


def test_numbers_stand_right_words_left(table: SessionTable) -> None:
    role = Qt.ItemDataRole.TextAlignmentRole
    assert table.index(0, SessionColumn.TOKENS).data(role) & Qt.AlignmentFlag.AlignRight
    assert table.index(0, SessionColumn.NAME).data(role) & Qt.AlignmentFlag.AlignLeft


def test_an_update_touches_only_what_changed(table: SessionTable, qtbot) -> None:
    touched: list[tuple[int, int, int]] = []
    resets: list[int] = []
    table.dataChanged.connect(
        lambda first, last: touched.append((first.row(), first.column(), last.column()))
    )
    table.modelReset.connect(lambda: resets.append(1))
    table.update_rows([row(1), row(2, n_tokens=2001), row(3)])
    assert touched == [(1, SessionColumn.TOKENS, SessionColumn.TOKENS)]
    table.update_rows([row(1), row(2, n_tokens=2001), row(3)])
    assert len(touched) == 1
    assert resets == []


def test_rows_come_and_go_around_those_that_stay(table: SessionTable) -> None:
    kept = QPersistentModelIndex(table.index(1, 0))
    table.update_rows([row(2), row(3), row(4)])
    assert ids(table) == ["Talk 2", "Talk 3", "Talk 4"]
    assert kept.isValid()
    assert kept.row() == 0


def test_sort_survives_updates_and_equals_keep_their_order(table: SessionTable) -> None:
    proxy = SortedSessions(table)
    proxy.sort(SessionColumn.TOKENS, Qt.SortOrder.DescendingOrder)
    assert ids(proxy) == ["Talk 3", "Talk 2", "Talk 1"]
    table.update_rows([row(1, n_tokens=9000), row(2), row(3)])
    assert ids(proxy) == ["Talk 1", "Talk 3", "Talk 2"]
    proxy.sort(SessionColumn.MIB, Qt.SortOrder.AscendingOrder)
    assert ids(proxy) == ["Talk 1", "Talk 2", "Talk 3"]


def test_numbers_sort_as_numbers(table: SessionTable) -> None:
    proxy = SortedSessions(table)
    table.update_rows([row(1, n_tokens=9), row(2, n_tokens=10_000), row(3, n_tokens=200)])
    proxy.sort(SessionColumn.TOKENS, Qt.SortOrder.AscendingOrder)
    assert [proxy.index(n, SessionColumn.TOKENS).data() for n in range(3)] == [
        "9",
        "200",
        "10,000",
    ]


def test_states_sort_by_what_is_busiest(table: SessionTable) -> None:
    proxy = SortedSessions(table)
    table.update_rows([row(1, state="idle"), row(2, state="waiting"), row(3, state="writing")])
    proxy.sort(SessionColumn.STATE, Qt.SortOrder.AscendingOrder)
    assert ids(proxy) == ["Talk 3", "Talk 2", "Talk 1"]


def test_every_row_explains_itself(table: SessionTable) -> None:
    table.update_rows([row(1, n_chunks=2, n_shared_chunks=1)])
    told = table.index(0, 0).data(Qt.ItemDataRole.AccessibleDescriptionRole)
    assert "in lane 1" in told
    assert "1 of them shared" in told
    assert table.index(0, 0).data(COLOR_ROLE) == 1


def test_every_heading_explains_itself(table: SessionTable) -> None:
    for column in range(table.columnCount()):
        told = table.headerData(column, Qt.Orientation.Horizontal, Qt.ItemDataRole.ToolTipRole)
        assert len(told) > 10
