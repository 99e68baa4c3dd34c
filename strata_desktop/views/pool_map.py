"""The map of the pool: a tile a chunk, coloured by its session, filled as far as it is used.

It draws and points; who is highlighted or selected is state of `viewmodels.memory`.
"""

from __future__ import annotations

from collections import defaultdict

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.memory_tiles import Tile
from strata_desktop.views.meter_paint import TilePaints, tabular
from strata_desktop.views.pool_layout import TileGrid
from strata_desktop.views.theme import TYPE

MARK_PX = 2
"""How far the marks of focus and pointer reach outside a tile."""
MIN_HEIGHT_PX = 88

Look = tuple[int, bool, bool]
"""Palette place, whether it is dimmed, whether the cells are used."""


class PoolMap(QWidget):
    """All chunks as tiles.

    Arrow keys, Home and End move a mark from tile to tile; Enter selects the tile's session,
    Escape selects none.

    Signals:
        pointed: the `Tile` under the pointer or the mark, None when there is none.
    """

    pointed = Signal(object)

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._tiles: tuple[Tile, ...] = ()
        self._grid = TileGrid.fit(1, width=200, height=MIN_HEIGHT_PX)
        self._hovered: int | None = None
        self._marked = 0
        self._paints = TilePaints(self)
        self.n_tiles_painted = 0
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumHeight(MIN_HEIGHT_PX)
        self.setAccessibleName("Pool map")
        model.changed.connect(self._refresh)
        model.highlight_changed.connect(self.update)
        self._refresh()

    @property
    def grid(self) -> TileGrid:
        """Where the tiles lie."""
        return self._grid

    @property
    def marked(self) -> int:
        """Number of the tile that the arrow keys have reached."""
        return self._marked

    def sizeHint(self) -> QSize:
        """Ask for room for a few rows."""
        return QSize(480, 180)

    # Following the model

    def _refresh(self) -> None:
        tiles = self._model.tiles
        before, self._tiles = self._tiles, tiles
        if len(tiles) != len(before):
            self._marked = min(self._marked, max(0, len(tiles) - 1))
            self._hovered = None
            self._arrange()
            self.update()
        else:
            for number, (old, new) in enumerate(zip(before, tiles, strict=True)):
                if old is not new and old != new:
                    self._update_tile(number)
        if (summary := self._model.map_summary) != self.accessibleDescription():
            self.setAccessibleDescription(summary)
        self._tell_pointed()

    def _arrange(self) -> None:
        self._grid = TileGrid.fit(
            max(1, len(self._tiles)), width=self.width() - 2 * MARK_PX, height=self.height() - 4
        )
        needed = self._grid.height + 2 * MARK_PX if len(self._tiles) > 1 else MIN_HEIGHT_PX
        smallest = TileGrid.fit(max(1, len(self._tiles)), width=self.width() - 4, height=0)
        self.setMinimumHeight(max(MIN_HEIGHT_PX, min(needed, smallest.height + 2 * MARK_PX)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fit the tiles to the new room."""
        self._arrange()
        super().resizeEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        """Mix the colours anew when the theme changes."""
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.StyleChange):
            self._paints = TilePaints(self)
            self.update()
        super().changeEvent(event)

    # Places

    def tile_rect(self, number: int) -> QRect:
        """Return where a tile lies in this widget."""
        x, y, width, height = self._grid.tile(number)
        return QRect(x + MARK_PX, y + MARK_PX, width, height)

    def _cell_rect(self, number: int) -> QRect:
        x, y, width, height = self._grid.cell(number)
        return QRect(x, y, width + 2 * MARK_PX, height + 2 * MARK_PX)

    def tile_at(self, point: QPoint) -> int | None:
        """Return the number of the tile under a point of this widget."""
        number = self._grid.tile_at(point.x() - MARK_PX, point.y() - MARK_PX)
        return number if number is not None and number < len(self._tiles) else None

    def _update_tile(self, number: int) -> None:
        self.update(self._cell_rect(number))

    # Painting

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the tiles that the exposed region touches, grouped by colour."""
        if not self._tiles:
            return
        numbers: set[int] = set()
        for rect in event.region():
            numbers.update(
                number
                for number in self._grid.tiles_in(
                    rect.x() - MARK_PX, rect.y() - MARK_PX, rect.width(), rect.height()
                )
                if number < len(self._tiles)
            )
        self.n_tiles_painted += len(numbers)
        rects: dict[Look, list[QRect]] = defaultdict(list)
        outlines: list[QRect] = []
        highlighted = self._model.highlighted
        for number in numbers:
            self._collect(number, highlighted, rects, outlines)
        painter = QPainter(self)
        painter.setPen(Qt.PenStyle.NoPen)
        for (place, is_dim, is_used), group in rects.items():
            painter.setBrush(self._paints.pair(place, is_dim=is_dim)[int(is_used)])
            painter.drawRects(group)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(self._paints.free_outline, 1))
        painter.drawRects(outlines)
        if self._grid.label_height:
            self._paint_labels(painter, numbers)
        self._paint_marks(painter)
        painter.end()

    def _collect(
        self,
        number: int,
        highlighted: str | None,
        rects: dict[Look, list[QRect]],
        outlines: list[QRect],
    ) -> None:
        """Put the rectangles of one tile under their colours."""
        tile = self._tiles[number]
        area = self.tile_rect(number)
        if not tile.colors:
            outlines.append(area.adjusted(0, 0, -1, -1))
            return
        is_dim = highlighted is not None and highlighted not in tile.sessions
        n_stripes = len(tile.colors)
        used_height = round(tile.fill * area.height())
        if tile.n_cells_used:
            used_height = max(1, used_height)
        for stripe, place in enumerate(tile.colors):
            left = area.x() + stripe * area.width() // n_stripes
            right = area.x() + (stripe + 1) * area.width() // n_stripes
            if used_height < area.height():
                height = area.height() - used_height
                rects[place, is_dim, False].append(QRect(left, area.y(), right - left, height))
            if used_height:
                top = area.y() + area.height() - used_height
                rects[place, is_dim, True].append(QRect(left, top, right - left, used_height))

    def _paint_labels(self, painter: QPainter, numbers: set[int]) -> None:
        font = tabular(self.font(), height_px=TYPE.caption - 1)
        painter.setFont(font)
        painter.setPen(self._paints.label)
        height = self._grid.label_height
        for number in numbers:
            tile = self._tiles[number]
            area = self.tile_rect(number)
            line = QRect(area.x(), area.y() - height, area.width(), height)
            painter.drawText(line, Qt.AlignmentFlag.AlignLeft, str(tile.id))
            right = f"{round(100 * tile.fill)} %" if tile.sessions else "free"
            painter.drawText(line, Qt.AlignmentFlag.AlignRight, right)

    def _paint_marks(self, painter: QPainter) -> None:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if self._hovered is not None:
            painter.setPen(QPen(self._paints.mark, 1))
            painter.drawRect(self.tile_rect(self._hovered).adjusted(-1, -1, 0, 0))
        if self.hasFocus():
            painter.setPen(QPen(self._paints.focus, 2))
            painter.drawRect(self.tile_rect(self._marked).adjusted(-1, -1, 1, 1))

    # Pointer

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Point at the tile under the pointer."""
        self._point(self.tile_at(event.position().toPoint()))

    def leaveEvent(self, event: QEvent) -> None:
        """Point at nothing."""
        self._point(None)
        super().leaveEvent(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Select the session of the tile clicked; a free tile or a gap selects none."""
        number = self.tile_at(event.position().toPoint())
        if number is not None:
            self._mark(number)
        self._choose(number)

    def _point(self, number: int | None) -> None:
        if number == self._hovered:
            return
        for changed in (self._hovered, number):
            if changed is not None:
                self._update_tile(changed)
        self._hovered = number
        tile = None if number is None else self._tiles[number]
        self.setToolTip("" if tile is None else self._model.describe(tile))
        self._model.hover(tile.sessions[0] if tile is not None and tile.sessions else None)
        self._tell_pointed()

    def _choose(self, number: int | None) -> None:
        sessions = () if number is None else self._tiles[number].sessions
        selected = self._model.selected
        if selected in sessions:
            # A shared tile hands the selection on to its next holder.
            after = (*sessions, None)[sessions.index(selected) + 1]
            self._model.select(after)
        else:
            self._model.select(sessions[0] if sessions else None)

    def _tell_pointed(self) -> None:
        number = self._hovered
        if number is None and self.hasFocus() and self._tiles:
            number = self._marked
        self.pointed.emit(None if number is None else self._tiles[number])

    # Keys

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the mark, or select."""
        last = len(self._tiles) - 1
        steps = {
            Qt.Key.Key_Left: -1,
            Qt.Key.Key_Right: 1,
            Qt.Key.Key_Up: -self._grid.n_columns,
            Qt.Key.Key_Down: self._grid.n_columns,
        }
        key = event.key()
        if last < 0:
            super().keyPressEvent(event)
        elif key in steps:
            target = self._marked + steps[Qt.Key(key)]
            if 0 <= target <= last:
                self._mark(target)
        elif key == Qt.Key.Key_Home:
            self._mark(0)
        elif key == Qt.Key.Key_End:
            self._mark(last)
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self._choose(self._marked)
        elif key == Qt.Key.Key_Escape and self._model.selected is not None:
            self._model.select(None)
        else:
            super().keyPressEvent(event)

    def _mark(self, number: int) -> None:
        self._update_tile(self._marked)
        self._marked = number
        self._update_tile(number)
        self.setAccessibleName(f"Pool map. {self._model.describe(self._tiles[number])}")
        self._tell_pointed()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the mark."""
        super().focusInEvent(event)
        if self._tiles:
            self._mark(min(self._marked, len(self._tiles) - 1))

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Hide the mark."""
        super().focusOutEvent(event)
        if self._tiles:
            self._update_tile(self._marked)
        self._tell_pointed()
