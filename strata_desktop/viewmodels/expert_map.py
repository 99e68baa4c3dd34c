"""State of the expert map: how often the router picked each expert, layer by layer.

It keeps the counts that status snapshots carry once a second, orders and groups them; drawing is
left to `views.expert_map`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from strata_desktop.viewmodels.memory_text import count_text, percent_text, plural

if TYPE_CHECKING:
    from engine.stats import ExpertPicks, StatusSnapshot

WAITING = "No token was computed yet. Send a message, and the map fills."


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertCell:
    """One cell of the map: an expert of a layer, or neighbours where there is no room for each.

    Attributes:
        layer: its layer, from 0.
        first_place: its first place in the row, from 0.
        experts: their numbers, in the order of the row.
        n_picks: picks of all of them.
        share: part of the layer's picks that one of them got on average, 0 to 1.
    """

    layer: int
    first_place: int
    experts: tuple[int, ...]
    n_picks: int
    share: float


class ExpertMapModel(QObject):
    """The router's picks as rows of cells.

    Attributes:
        picks: the newest counts, None for a model without experts or while there is no model.
        is_sorted: whether the most picked experts of each layer come first, else by number.

    Signals:
        changed: counts or order changed.
    """

    changed = Signal()

    def __init__(self, feed: QObject, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.picks: ExpertPicks | None = None
        self.is_sorted = True
        self._orders: tuple[tuple[int, ...], ...] = ()
        feed.status.connect(self.take)
        feed.offline.connect(lambda _reason: self._set(None))
        if feed.latest is not None:
            self.take(feed.latest)

    def take(self, status: StatusSnapshot) -> None:
        """Take the counts of a snapshot; most snapshots carry none, since none are due."""
        picks = status.experts.picks
        if picks is None or picks.counts is not None:
            self._set(picks)

    def set_sorted(self, *, is_sorted: bool) -> None:
        """Choose the order of each row."""
        if is_sorted != self.is_sorted:
            self.is_sorted = is_sorted
            self._order()
            self.changed.emit()

    def rows(self, n_columns: int) -> tuple[tuple[ExpertCell, ...], ...]:
        """Return the map, a row a layer, with `n_columns` cells a row at most."""
        picks = self.picks
        if picks is None or picks.counts is None or picks.n_experts == 0:
            return ()
        n_each = -(-picks.n_experts // max(1, min(n_columns, picks.n_experts)))
        return tuple(self._row(layer, counts, n_each) for layer, counts in enumerate(picks.counts))

    def _row(self, layer: int, counts: tuple[int, ...], n_each: int) -> tuple[ExpertCell, ...]:
        total = sum(counts)
        order = self._orders[layer]
        cells = []
        for first in range(0, len(order), n_each):
            experts = order[first : first + n_each]
            n_picks = sum(counts[expert] for expert in experts)
            share = n_picks / (total * len(experts)) if total else 0.0
            cells.append(
                ExpertCell(
                    layer=layer, first_place=first, experts=experts, n_picks=n_picks, share=share
                )
            )
        return tuple(cells)

    # Words

    @property
    def facts(self) -> str:
        """What kind of mixture this is, and how much was counted."""
        picks = self.picks
        if picks is None:
            return ""
        return (
            f"{plural(picks.n_layers, 'layer')} of {plural(picks.n_experts, 'expert')}, "
            f"{picks.n_experts_used} for each token"
        )

    @property
    def profile(self) -> str:
        """How uneven the picks are: what the most picked third of each layer got."""
        picks = self.picks
        if picks is None or picks.counts is None:
            return ""
        if not picks.n_picks:
            return WAITING
        n_third = max(1, round(picks.n_experts / 3))
        n_top = sum(sum(sorted(row, reverse=True)[:n_third]) for row in picks.counts)
        return (
            f"{count_text(picks.n_picks)} picks. The {n_third} most picked of {picks.n_experts} "
            f"in each layer got {percent_text(n_top, picks.n_picks)} of them."
        )

    @property
    def summary(self) -> str:
        """The map in words, for those who do not see it."""
        return f"{self.facts}. {self.profile}" if self.picks is not None else ""

    def describe(self, cell: ExpertCell) -> str:
        """Return a cell in one line."""
        picks = self.picks
        if picks is None:
            return ""
        even = percent_text(1, picks.n_experts)
        share = percent_text(cell.share, 1) if cell.n_picks else "0 %"
        n_picks = plural(cell.n_picks, "pick")
        if len(cell.experts) == 1:
            place = f", place {cell.first_place + 1}" if self.is_sorted else ""
            return (
                f"Layer {cell.layer}, expert {cell.experts[0]}{place} · {n_picks} · {share} of the "
                f"layer (an even share is {even})"
            )
        first, last = cell.first_place, cell.first_place + len(cell.experts) - 1
        which = f"places {first + 1} to {last + 1}" if self.is_sorted else f"experts {first}–{last}"
        return (
            f"Layer {cell.layer}, {which} · {n_picks} · on average {share} of the layer each (an "
            f"even share is {even})"
        )

    # News

    def _set(self, picks: ExpertPicks | None) -> None:
        if picks != self.picks:
            self.picks = picks
            self._order()
            self.changed.emit()

    def _order(self) -> None:
        counts = () if self.picks is None else self.picks.counts or ()
        self._orders = tuple(
            tuple(sorted(range(len(row)), key=row.__getitem__, reverse=True))
            if self.is_sorted
            else tuple(range(len(row)))
            for row in counts
        )
