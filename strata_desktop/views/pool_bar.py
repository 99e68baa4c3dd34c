"""One bar that adds up to the pool: each session's stretch, then what is free."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPoint, QRect, QSize
from PySide6.QtGui import QMouseEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.memory_text import bytes_text, count_text, percent_text
from strata_desktop.viewmodels.memory_tiles import Holding
from strata_desktop.views.meter_paint import TilePaints

HEIGHT_PX = 14


class HoldingsBar(QWidget):
    """Holdings as stretches of one bar; chunks held by several are divided among them."""

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._holdings: tuple[Holding, ...] = ()
        self._highlighted: str | None = None
        self._paints = TilePaints(self)
        self.setMouseTracking(True)
        self.setFixedHeight(HEIGHT_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Holdings of all sessions as parts of the pool")
        model.changed.connect(self._refresh)
        model.highlight_changed.connect(self.update)
        self._refresh()

    def sizeHint(self) -> QSize:
        """Ask for width."""
        return QSize(320, HEIGHT_PX)

    def _refresh(self) -> None:
        if self._model.holdings != self._holdings:
            self._holdings = self._model.holdings
            self.setAccessibleDescription("; ".join(self.line(part) for part in self._holdings))
            self.update()

    def changeEvent(self, event: QEvent) -> None:
        """Mix the colours anew when the theme changes."""
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.StyleChange):
            self._paints = TilePaints(self)
            self.update()
        super().changeEvent(event)

    def line(self, holding: Holding) -> str:
        """Return one stretch in words."""
        pool = self._model.pool
        if pool is None:
            return ""
        return (
            f"{holding.name}: {count_text(holding.cells)} cells, "
            f"{bytes_text(holding.cells * pool.bytes_per_cell)}, "
            f"{percent_text(holding.cells, pool.cells)} of the pool"
        )

    def stretches(self) -> list[tuple[Holding, QRect]]:
        """Return each holding and where it lies; neighbours meet exactly."""
        total = sum(holding.cells for holding in self._holdings)
        if total <= 0:
            return []
        placed = []
        done = 0.0
        for holding in self._holdings:
            left = round(done / total * self.width())
            done += holding.cells
            right = round(done / total * self.width())
            if holding.session and right == left and left < self.width():
                right = left + 1
            placed.append((holding, QRect(left, 0, right - left, self.height())))
        return placed

    def holding_at(self, point: QPoint) -> Holding | None:
        """Return the holding under a point."""
        for holding, rect in self.stretches():
            if rect.contains(point):
                return holding
        return None

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the stretches with a hairline between neighbours."""
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._paints.free)
        highlighted = self._model.highlighted
        for holding, rect in self.stretches():
            if holding.session:
                is_dim = highlighted is not None and highlighted != holding.session
                _, used = self._paints.pair(holding.color, is_dim=is_dim)
                is_wide = rect.width() > 3
                painter.fillRect(rect.adjusted(0, 0, -1 if is_wide else 0, 0), used)
        painter.end()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Highlight the session under the pointer."""
        holding = self.holding_at(event.position().toPoint())
        self.setToolTip("" if holding is None else self.line(holding))
        self._model.hover(holding.session or None if holding is not None else None)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Select the session under the pointer."""
        holding = self.holding_at(event.position().toPoint())
        self._model.select(holding.session or None if holding is not None else None)

    def leaveEvent(self, event: QEvent) -> None:
        """Highlight nothing."""
        self._model.hover(None)
        super().leaveEvent(event)
