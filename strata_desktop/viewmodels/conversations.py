"""The list of conversations: grouped by day, searched, one row a conversation or heading."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QObject, Qt

from strata_desktop.viewmodels.store import ConversationHead, ConversationStore

Index = QModelIndex


class ListRole(enum.IntEnum):
    """What the list tells beside the title (DisplayRole)."""

    ID = Qt.ItemDataRole.UserRole + 1
    """Id of the conversation, "" for a heading."""
    IS_WRITING = Qt.ItemDataRole.UserRole + 2
    HAS_NEWS = Qt.ItemDataRole.UserRole + 3
    """An answer ended while another conversation was shown."""


@dataclass(frozen=True, slots=True)
class ListRow:
    """A heading (no id) or a conversation."""

    id: str
    title: str


def day_group(updated_s: float, today: datetime.date) -> str:
    """Return the heading under which a conversation of that time stands."""
    day = datetime.datetime.fromtimestamp(updated_s).date()
    age = (today - day).days
    if age <= 0:
        return "Today"
    if age == 1:
        return "Yesterday"
    if age < 7:
        return "Previous 7 days"
    if age < 30:
        return "Previous 30 days"
    return day.strftime("%B %Y")


class ConversationList(QAbstractListModel):
    """Rows for the list.

    Attributes:
        search: only conversations that contain this; "" = all.
    """

    def __init__(
        self,
        store: ConversationStore,
        parent: QObject | None = None,
        *,
        today: Callable[[], datetime.date] = datetime.date.today,
    ) -> None:
        super().__init__(parent)
        self.search = ""
        self._store = store
        self._today = today
        self._rows: list[ListRow] = []
        self._writing: set[str] = set()
        self._news: set[str] = set()
        self.refresh()

    @property
    def n_conversations(self) -> int:
        """Conversations listed."""
        return sum(1 for row in self._rows if row.id)

    def rowCount(self, parent: QModelIndex | None = None) -> int:
        """Return the number of rows, headings included."""
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def data(self, index: QModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return what a row shows."""
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        row = self._rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return row.title
        if role == Qt.ItemDataRole.AccessibleTextRole:
            extra = ", writing" if row.id in self._writing else ""
            extra += ", new answer" if row.id in self._news else ""
            return row.title + extra
        if role == ListRole.ID:
            return row.id
        if role == ListRole.IS_WRITING:
            return row.id in self._writing
        if role == ListRole.HAS_NEWS:
            return row.id in self._news
        return None

    def flags(self, index: QModelIndex) -> Qt.ItemFlag:
        """Headings cannot be selected."""
        if index.isValid() and self._rows[index.row()].id:
            return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable
        return Qt.ItemFlag.NoItemFlags

    def row_of(self, conversation_id: str) -> int:
        """Return the row of a conversation, -1 if it is not listed."""
        return next((i for i, row in enumerate(self._rows) if row.id == conversation_id), -1)

    def set_search(self, text: str) -> None:
        """List only what contains `text`."""
        if text != self.search:
            self.search = text
            self.refresh()

    def set_writing(self, conversation_id: str, *, is_writing: bool) -> None:
        """Show or hide the mark of a running answer."""
        self._mark(self._writing, conversation_id, is_on=is_writing)

    def set_news(self, conversation_id: str, *, has_news: bool) -> None:
        """Show or hide the mark of an unread answer."""
        self._mark(self._news, conversation_id, is_on=has_news)

    def refresh(self) -> None:
        """Read the store again; rows that stay keep their place and selection."""
        rows = self._group(self._store.conversations(self.search))
        if rows == self._rows:
            return
        if [row.id for row in rows] == [row.id for row in self._rows]:
            self._rows = rows
            self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def _group(self, heads: list[ConversationHead]) -> list[ListRow]:
        rows: list[ListRow] = []
        today, group = self._today(), ""
        for head in heads:
            if (of := day_group(head.updated_s, today)) != group:
                group = of
                rows.append(ListRow("", group))
            rows.append(ListRow(head.id, head.title))
        return rows

    def _mark(self, marked: set[str], conversation_id: str, *, is_on: bool) -> None:
        if (conversation_id in marked) == is_on:
            return
        (marked.add if is_on else marked.discard)(conversation_id)
        if (row := self.row_of(conversation_id)) >= 0:
            self.dataChanged.emit(self.index(row), self.index(row))
