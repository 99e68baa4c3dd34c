"""The list of known models, updated in place, and what is said about one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    Qt,
)

from strata_desktop.viewmodels.memory_text import (
    UNKNOWN,
    bytes_text,
    count_text,
    params_text,
    plural,
)

if TYPE_CHECKING:
    from engine.stats import ModelSummary

AnyIndex = QModelIndex | QPersistentModelIndex

SUBLINE_ROLE = Qt.ItemDataRole.UserRole + 1
PATH_ROLE = Qt.ItemDataRole.UserRole + 2
MARK_ROLE = Qt.ItemDataRole.UserRole + 3
"""`loaded`, `loading`, `unsupported`, `unreadable` or empty."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelEntry:
    """A model file (or the first part of a split one).

    Attributes:
        path: the file.
        summary: what its header says, None if it cannot be read.
        error: why not, "" if it can.
    """

    path: Path
    summary: ModelSummary | None
    error: str = ""

    @property
    def name(self) -> str:
        """Name for people."""
        return self.summary.name if self.summary is not None else self.path.name

    @property
    def can_load(self) -> bool:
        """Whether this version can run it."""
        return self.summary is not None and self.summary.is_supported

    @property
    def subline(self) -> str:
        """Size and make in one line, or what is wrong."""
        if self.summary is None:
            return f"cannot be read · {self.path.name}"
        one = self.summary
        parts = [bytes_text(one.file_bytes), one.quantization, one.architecture]
        if one.n_shards > 1:
            parts.insert(1, plural(one.n_shards, "part"))
        if not one.is_supported:
            parts.append("not supported yet")
        return " · ".join(part for part in parts if part)

    def sort_key(self) -> tuple[bool, bool, str, Path]:
        """Return what the list is sorted by."""
        return not self.can_load, self.summary is None, self.name.casefold(), self.path

    @property
    def problem(self) -> str:
        """Why it cannot be loaded, "" if it can."""
        if self.summary is None:
            return self.error
        return "" if self.summary.is_supported else self.summary.reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One line of a model's details.

    Attributes:
        label: what.
        value: how much.
        explanation: tooltip.
    """

    label: str
    value: str
    explanation: str = ""


def model_facts(summary: ModelSummary) -> tuple[Fact, ...]:
    """Return what a header says, for people, before anything is loaded."""
    types = ", ".join(f"{name} × {n}" for name, n in sorted(summary.tensor_types.items()))
    size = bytes_text(summary.file_bytes)
    if summary.n_shards > 1:
        size += f" in {plural(summary.n_shards, 'part')}"
    experts = "none (dense)"
    if summary.n_experts:
        experts = f"{count_text(summary.n_experts)}, of which {summary.n_experts_used} a token"
    return (
        Fact(label="Architecture", value=summary.architecture or UNKNOWN),
        Fact(label="File size", value=size),
        Fact(
            label="Weights",
            value=f"{params_text(summary.n_params)} · {summary.quantization or UNKNOWN}",
            explanation=f"Tensors by type: {types}" if types else "",
        ),
        Fact(
            label="Trained context",
            value=f"{count_text(summary.context_tokens)} tokens"
            if summary.context_tokens
            else UNKNOWN,
            explanation="Longest conversation the model was trained for.",
        ),
        Fact(
            label="Layers",
            value=f"{summary.n_layers} × {count_text(summary.d_model)} wide",
        ),
        Fact(
            label="Heads",
            value=f"{summary.n_heads}, {summary.n_kv_heads} with K/V",
            explanation="Fewer heads with K/V make conversations cheaper to keep.",
        ),
        Fact(label="Experts", value=experts),
        Fact(
            label="K/V",
            value=f"{bytes_text(summary.kv_bytes_per_token)} a token"
            if summary.kv_bytes_per_token > 0
            else UNKNOWN,
            explanation="Memory each token of a conversation takes, all layers together.",
        ),
        Fact(label="Vocabulary", value=f"{count_text(summary.n_vocab)} tokens"),
        Fact(
            label="Chat template",
            value="in the file" if summary.has_chat_template else "none, a plain one is used",
        ),
        Fact(label="Name in the API", value=summary.id),
    )


class ModelList(QAbstractListModel):
    """Entries by name, those that can be loaded first; selection survives updates."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._entries: list[ModelEntry] = []
        self._marks: dict[Path, str] = {}

    @property
    def entries(self) -> tuple[ModelEntry, ...]:
        """All entries as they stand."""
        return tuple(self._entries)

    def entry(self, path: Path) -> ModelEntry | None:
        """Return the entry of a file, None if it is not in the list."""
        return next((entry for entry in self._entries if entry.path == path), None)

    def row_of(self, path: Path) -> int | None:
        """Return the row of a file, None if it is not in the list."""
        return next((row for row, entry in enumerate(self._entries) if entry.path == path), None)

    def update_entries(self, entries: Sequence[ModelEntry]) -> None:
        """Bring the list to `entries`: remove the gone, change the changed, insert the new."""
        wanted = {entry.path: entry for entry in sorted(entries, key=ModelEntry.sort_key)}
        for row in reversed(range(len(self._entries))):
            if self._entries[row].path not in wanted:
                self.beginRemoveRows(QModelIndex(), row, row)
                del self._entries[row]
                self.endRemoveRows()
        for row, entry in enumerate(wanted.values()):
            place = self.row_of(entry.path)
            if place is not None and place != row:
                self.beginRemoveRows(QModelIndex(), place, place)
                del self._entries[place]
                self.endRemoveRows()
                place = None
            if place is None:
                self.beginInsertRows(QModelIndex(), row, row)
                self._entries.insert(row, entry)
                self.endInsertRows()
            elif self._entries[row] != entry:
                self._entries[row] = entry
                self.dataChanged.emit(self.index(row), self.index(row))

    def set_mark(self, path: Path | None, mark: str) -> None:
        """Mark one file as loaded or loading, and no other."""
        marks = {} if path is None or not mark else {path: mark}
        if marks == self._marks:
            return
        touched = marks.keys() | self._marks.keys()
        self._marks = marks
        for row, entry in enumerate(self._entries):
            if entry.path in touched:
                self.dataChanged.emit(self.index(row), self.index(row))

    def _mark(self, entry: ModelEntry) -> str:
        if mark := self._marks.get(entry.path):
            return mark
        if entry.summary is None:
            return "unreadable"
        return "" if entry.summary.is_supported else "unsupported"

    def rowCount(self, parent: AnyIndex = QModelIndex()) -> int:
        """Return the number of models."""
        return 0 if parent.isValid() else len(self._entries)

    def data(self, index: AnyIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return name, line below, path or mark of a model."""
        if not index.isValid() or index.row() >= len(self._entries):
            return None
        entry = self._entries[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return entry.name
            case Qt.ItemDataRole.ToolTipRole:
                return f"{entry.path}\n{entry.problem}".strip()
            case Qt.ItemDataRole.AccessibleTextRole:
                return ", ".join(
                    part for part in (entry.name, entry.subline, self._mark(entry)) if part
                )
            case _ if role == SUBLINE_ROLE:
                return entry.subline
            case _ if role == PATH_ROLE:
                return entry.path
            case _ if role == MARK_ROLE:
                return self._mark(entry)
        return None
