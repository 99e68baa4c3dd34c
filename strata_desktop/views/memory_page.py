"""The memory page: headline, pool map, sessions, RAM and commit, and why the rest is empty."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import (
    QHBoxLayout,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.memory_text import bytes_text, count_text, plural
from strata_desktop.viewmodels.memory_tiles import Tile
from strata_desktop.views.expert_card import ExpertCard
from strata_desktop.views.memory_card import Card, Columns, LineLabel, Stack, make_label
from strata_desktop.views.memory_headline import Headline
from strata_desktop.views.meter import Meter
from strata_desktop.views.meter_curve import MemoryCurve
from strata_desktop.views.pool_bar import HoldingsBar
from strata_desktop.views.pool_legend import PoolLegend
from strata_desktop.views.pool_map import PoolMap
from strata_desktop.views.sessions_table import SessionsView
from strata_desktop.views.theme import SPACE

NARROW_PX = 760
SIDE_WIDTH_PX = 236
POINT_HINT = "Point at a chunk, or move through the map with the arrow keys."


class PoolCard(Card):
    """Title, legend, map and the line about the chunk pointed at."""

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__("Pool", parent)
        self._model = model
        self.map = PoolMap(model)
        self._title = make_label("Pool", role="heading")
        self._facts = LineLabel()
        self._legend = PoolLegend()
        self._line = LineLabel(POINT_HINT, role="muted")
        top = QHBoxLayout()
        top.setSpacing(SPACE.m)
        top.addWidget(self._title)
        top.addWidget(self._facts, 1)
        top.addWidget(self._legend)
        shown = QWidget()
        inner = QVBoxLayout(shown)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.setSpacing(SPACE.xs)
        inner.addWidget(self.map, 1)
        inner.addWidget(self._line)
        place = QWidget(self)
        self._stack = Stack(place, shown)
        box = self.box
        box.addLayout(top)
        box.addWidget(place, 1)
        model.changed.connect(self._refresh)
        self.map.pointed.connect(self._point)
        self._refresh()

    def _refresh(self) -> None:
        pool = self._model.pool
        gap = self._model.pool_gap
        self._stack.say(gap)
        self._legend.setVisible(not gap)
        if pool is None or gap:
            self._facts.setText("")
            return
        n_bytes = bytes_text(pool.chunk_cells * pool.bytes_per_cell)
        kind = "shared by all lanes" if pool.is_pooled else "a fixed part for each lane"
        self._facts.setText(
            f"{plural(len(pool.chunks), 'chunk')} of {count_text(pool.chunk_cells)} cells · "
            f"{n_bytes} each"
        )
        self._facts.setToolTip(
            f"One pool in {pool.backing.upper()}, {kind}. A cell keeps one token's K and V, "
            f"{bytes_text(pool.bytes_per_cell)}."
        )

    def _point(self, tile: Tile | None) -> None:
        self._line.setText(POINT_HINT if tile is None else self._model.describe(tile))


class SessionsCard(Card):
    """Title, forget button, the bar that adds up to the pool, the table."""

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__("Sessions", parent)
        self._model = model
        self.table = SessionsView(model)
        self.forget = QPushButton("Forget idle conversations")
        self.forget.setAccessibleName("Forget idle conversations")
        self.forget.clicked.connect(model.forget_idle)
        self._notice = LineLabel()
        top = QHBoxLayout()
        top.setSpacing(SPACE.m)
        top.addWidget(make_label("Sessions", role="heading"))
        top.addWidget(self._notice, 1)
        top.addWidget(self.forget)
        shown = QWidget()
        inner = QVBoxLayout(shown)
        inner.setContentsMargins(0, 0, 0, 0)
        inner.setSpacing(SPACE.s)
        inner.addWidget(HoldingsBar(model))
        inner.addWidget(self.table, 1)
        place = QWidget(self)
        self._stack = Stack(place, shown)
        box = self.box
        box.addLayout(top)
        box.addWidget(place, 1)
        model.changed.connect(self._refresh)
        model.can_forget_changed.connect(self._refresh)
        model.notice.connect(self._say)
        self._refresh()

    def _refresh(self) -> None:
        gap = self._model.sessions_gap
        self._stack.say(gap)
        self.forget.setEnabled(self._model.can_forget)
        text = self._model.forget_text
        self.forget.setToolTip(text)
        self.forget.setAccessibleDescription(text)

    def _say(self, text: str) -> None:
        self._notice.setText(text)


class HostCard(Card):
    """RAM and commit: two meters and the curve."""

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__("RAM and commit", parent)
        self._model = model
        self.setMinimumWidth(SIDE_WIDTH_PX)
        self._ram = Meter()
        self._commit = Meter()
        box = self.box
        box.setSpacing(SPACE.xs)
        box.addWidget(make_label("This computer", role="heading"))
        box.addWidget(self._ram)
        box.addWidget(self._commit)
        box.addWidget(MemoryCurve(model), 1)
        model.changed.connect(self._refresh)
        self._refresh()

    def _refresh(self) -> None:
        self._ram.set_gauge(self._model.ram)
        self._commit.set_gauge(self._model.commit)


class CardMemoryCard(Card):
    """VRAM and expert slots, or why there are none."""

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__("Graphics card and expert slots", parent)
        self._model = model
        self._meter = Meter()
        self._vram = make_label(role="muted")
        self._heading = make_label("Expert slots", role="heading")
        self._experts = make_label(role="muted")
        box = self.box
        box.setSpacing(SPACE.xs)
        box.addWidget(make_label("Graphics card", role="heading"))
        box.addWidget(self._meter)
        box.addWidget(self._vram)
        box.addSpacing(SPACE.s)
        box.addWidget(self._heading)
        box.addWidget(self._experts)
        for label in (self._vram, self._experts):
            label.setWordWrap(True)
            label.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        model.changed.connect(self._refresh)
        model.expert_map.changed.connect(self._refresh)
        self._refresh()

    def _refresh(self) -> None:
        model = self._model
        # A model with experts has a card of its own for them.
        for label in (self._heading, self._experts):
            label.setVisible(model.expert_map.picks is None)
        self._meter.set_gauge(model.vram)
        self._meter.setVisible(model.vram is not None)
        waiting = "Waiting for the engine's first report."
        self._vram.setText(model.vram_reason if model.status is not None else waiting)
        self._experts.setText(model.experts_reason if model.status is not None else waiting)


class MemoryPage(QScrollArea):
    """Everything about memory on one page."""

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Memory")
        self.setProperty("role", "page")
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.pool = PoolCard(model)
        self.sessions = SessionsCard(model)
        self.experts = ExpertCard(model)
        page = QWidget()
        page.setProperty("role", "page")
        column = QVBoxLayout(page)
        column.setContentsMargins(SPACE.l, SPACE.l, SPACE.l, SPACE.l)
        column.setSpacing(SPACE.m)
        self._headline = Headline(model)
        self._columns = Columns()
        main, side = QVBoxLayout(), QVBoxLayout()
        main.addWidget(self.pool, 2)
        main.addWidget(self.experts)
        main.addWidget(self.sessions, 3)
        side.addWidget(HostCard(model))
        side.addWidget(CardMemoryCard(model))
        side.addStretch(1)
        for part, stretch in ((main, 5), (side, 2)):
            part.setSpacing(SPACE.m)
            self._columns.addLayout(part, stretch)
        column.addWidget(self._headline)
        column.addLayout(self._columns, 1)
        self.setWidget(page)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the columns one below the other in a narrow window."""
        is_narrow = event.size().width() < NARROW_PX
        self._columns.stack(is_stacked=is_narrow)
        self._headline.fold(is_folded=is_narrow)
        super().resizeEvent(event)
