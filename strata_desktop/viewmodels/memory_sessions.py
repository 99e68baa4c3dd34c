"""The table of what each session holds, updated in place so that sort and selection survive.

It holds rows and their sorting; chips, fonts and colours are drawn by `views.sessions_table`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
)

from strata_desktop.viewmodels.memory_text import (
    NOTHING,
    age_text,
    count_text,
    mib_text,
    percent_text,
    rate_text,
)

AnyIndex = QModelIndex | QPersistentModelIndex

SORT_ROLE = Qt.ItemDataRole.UserRole + 1
COLOR_ROLE = Qt.ItemDataRole.UserRole + 2
"""Palette place of the row's session."""
ID_ROLE = Qt.ItemDataRole.UserRole + 3
"""Session id of the row."""
ROW_ROLE = Qt.ItemDataRole.UserRole + 4
"""The whole `SessionRow`, so that a cell is drawn from one question."""

STATE_ORDER = ("writing", "reading", "waiting", "idle")


class SessionColumn(enum.IntEnum):
    """Columns from left to right."""

    NAME = 0
    LANE = 1
    STATE = 2
    TOKENS = 3
    CELLS = 4
    MIB = 5
    SHARE = 6
    RATE = 7
    IDLE = 8


HEADERS = ("Session", "Lane", "State", "Tokens", "Cells", "MiB", "Share", "tok/s", "Idle")
EXPLANATIONS = (
    "The conversation's title, or the session's id where it has none",
    "Row of the running batch; – means parked: its K/V is kept, but it holds no row",
    "reading a prompt, writing an answer, waiting for its turn, or idle",
    "Tokens whose K/V is known and need not be read again",
    "Cells held, in whole chunks",
    "Memory held; a chunk shared with another session counts in full for both",
    "Part of the whole pool",
    "Decode speed of the running request, or of the last one",
    "Time since the last answer ended; the longest idle one gives way first",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRow:
    """One session as the table shows it.

    Attributes:
        id: session id.
        key: what its client calls it, "" if nothing.
        order: its number, for a steady order of equals.
        name: title of its conversation, or the id.
        color: palette place.
        lane: its lane, None while parked.
        state: reading, writing, waiting or idle.
        n_tokens: tokens known.
        cells: cells held.
        n_chunks, n_shared_chunks: chunks held, and those another session holds too.
        n_bytes: memory held.
        pool_cells: cells of the whole pool.
        tokens_per_s: decode speed.
        idle_s: seconds since the last request ended.
    """

    id: str
    key: str = ""
    order: int
    name: str
    color: int
    lane: int | None
    state: str
    n_tokens: int
    cells: int
    n_chunks: int
    n_shared_chunks: int
    n_bytes: int
    pool_cells: int
    tokens_per_s: float
    idle_s: float

    def text(self, column: SessionColumn) -> str:
        """Return what the cell shows."""
        match column:
            case SessionColumn.NAME:
                return self.name
            case SessionColumn.LANE:
                return NOTHING if self.lane is None else str(self.lane)
            case SessionColumn.STATE:
                return self.state
            case SessionColumn.TOKENS:
                return count_text(self.n_tokens)
            case SessionColumn.CELLS:
                return count_text(self.cells)
            case SessionColumn.MIB:
                return mib_text(self.n_bytes)
            case SessionColumn.SHARE:
                return percent_text(self.cells, self.pool_cells)
            case SessionColumn.RATE:
                return rate_text(self.tokens_per_s)
            case SessionColumn.IDLE:
                return age_text(self.idle_s) if self.state == "idle" else NOTHING

    def sort_key(self, column: SessionColumn) -> tuple[float | str, int]:
        """Return what the row is sorted by; equals keep the order of their ids."""
        key: float | str
        match column:
            case SessionColumn.NAME:
                key = self.name.casefold()
            case SessionColumn.LANE:
                key = 1e9 if self.lane is None else self.lane
            case SessionColumn.STATE:
                key = STATE_ORDER.index(self.state) if self.state in STATE_ORDER else 9
            case SessionColumn.TOKENS:
                key = self.n_tokens
            case SessionColumn.CELLS | SessionColumn.SHARE:
                key = self.cells
            case SessionColumn.MIB:
                key = self.n_bytes
            case SessionColumn.RATE:
                key = self.tokens_per_s if self.tokens_per_s == self.tokens_per_s else 0.0
            case SessionColumn.IDLE:
                key = self.idle_s
        return key, self.order

    def explanation(self) -> str:
        """Return the row in one sentence, for tooltips and screen readers."""
        where = "parked" if self.lane is None else f"in lane {self.lane}"
        shared = (
            f", {self.n_shared_chunks} of them shared with another session"
            if self.n_shared_chunks
            else ""
        )
        return (
            f"{self.name}, {self.state}, {where}: {count_text(self.n_tokens)} tokens in "
            f"{self.n_chunks} chunks{shared}, {mib_text(self.n_bytes)} MiB. {self._identity()}"
        )

    def _identity(self) -> str:
        """Return what the engine and its client call the session."""
        return f"Session {self.id}, key {self.key}." if self.key else f"Session {self.id}."


def cell_alignment(column: SessionColumn) -> Qt.AlignmentFlag:
    """Return where a column's texts stand: words left, numbers right, the lane in the middle."""
    if column is SessionColumn.LANE:
        return Qt.AlignmentFlag.AlignCenter
    is_text = column in (SessionColumn.NAME, SessionColumn.STATE)
    side = Qt.AlignmentFlag.AlignLeft if is_text else Qt.AlignmentFlag.AlignRight
    return side | Qt.AlignmentFlag.AlignVCenter


class SessionTable(QAbstractTableModel):
    """Rows in the order they appeared; changes are told cell by cell."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rows: list[SessionRow] = []

    @property
    def rows(self) -> tuple[SessionRow, ...]:
        """All rows as they stand."""
        return tuple(self._rows)

    def row_of(self, session_id: str) -> int | None:
        """Return the row number of a session, None if it is not there."""
        for number, row in enumerate(self._rows):
            if row.id == session_id:
                return number
        return None

    def update_rows(self, rows: Sequence[SessionRow]) -> None:
        """Bring the table to `rows`: remove the gone, change the changed, append the new."""
        wanted: Mapping[str, SessionRow] = {row.id: row for row in rows}
        for number in reversed(range(len(self._rows))):
            if self._rows[number].id not in wanted:
                self.beginRemoveRows(QModelIndex(), number, number)
                del self._rows[number]
                self.endRemoveRows()
        known = set()
        for number, old in enumerate(self._rows):
            known.add(old.id)
            if (new := wanted[old.id]) != old:
                self._rows[number] = new
                self._tell_changes(number, old, new)
        added = [row for row in rows if row.id not in known]
        if added:
            first = len(self._rows)
            self.beginInsertRows(QModelIndex(), first, first + len(added) - 1)
            self._rows.extend(added)
            self.endInsertRows()

    def _tell_changes(self, number: int, old: SessionRow, new: SessionRow) -> None:
        changed = [
            column
            for column in SessionColumn
            if old.text(column) != new.text(column)
            or old.sort_key(column) != new.sort_key(column)
            or (column is SessionColumn.NAME and old.color != new.color)
        ]
        if changed:
            self.dataChanged.emit(self.index(number, changed[0]), self.index(number, changed[-1]))

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:
        """Return the number of sessions."""
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: AnyIndex = QModelIndex()) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else len(SessionColumn)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return text, alignment, colour place, sort key or explanation of a cell."""
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        row = self._rows[index.row()]
        column = SessionColumn(index.column())
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return row.text(column)
            case Qt.ItemDataRole.TextAlignmentRole:
                return cell_alignment(column)
            case Qt.ItemDataRole.ToolTipRole | Qt.ItemDataRole.AccessibleDescriptionRole:
                return row.explanation()
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{HEADERS[column]}: {row.text(column)}"
            case _ if role == SORT_ROLE:
                return row.sort_key(column)
            case _ if role == COLOR_ROLE:
                return row.color
            case _ if role == ID_ROLE:
                return row.id
            case _ if role == ROW_ROLE:
                return row
        return None

    def headerData(
        self,
        section: int,
        orientation: Qt.Orientation,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> Any:
        """Return the heading of a column, its explanation or its alignment."""
        if orientation is not Qt.Orientation.Horizontal or section not in range(len(HEADERS)):
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return HEADERS[section]
            case Qt.ItemDataRole.ToolTipRole:
                return EXPLANATIONS[section]
            case Qt.ItemDataRole.TextAlignmentRole:
                return cell_alignment(SessionColumn(section))
        return None


class SortedSessions(QSortFilterProxyModel):
    """The table in the order the person chose; equals stay in the order of their ids."""

    def __init__(self, source: SessionTable, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.setSortRole(SORT_ROLE)
        self.setDynamicSortFilter(True)
        self.setSourceModel(source)

    def lessThan(self, left: AnyIndex, right: AnyIndex) -> bool:
        """Compare two rows by their sort keys."""
        return bool(left.data(SORT_ROLE) < right.data(SORT_ROLE))
