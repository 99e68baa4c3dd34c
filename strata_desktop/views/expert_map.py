"""The map of experts: a row a layer, a cell an expert, the deeper the colour the more picks.

It draws and points; counts, order and words are `viewmodels.expert_map`'s.
"""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFocusEvent,
    QHideEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from strata_desktop.viewmodels.expert_map import ExpertCell, ExpertMapModel
from strata_desktop.views.meter_paint import mix
from strata_desktop.views.theme import colors

LEAST_CELL_PX = 3
MOST_CELL_PX = 10
MAP_HEIGHT_PX = 192
"""Height that the layers share, unless their rows would be too thin or too thick."""
MARK_PX = 2
LEAST_PART = 0.14
"""How much of the colour an expert shows that was picked at all: never is another thing."""
BEND = 0.7
"""Exponent of the colours: a few experts with much shall not make all others look alike."""
DEEPEST_TIMES = 8
"""Times the even share from which on the colour gets no deeper, for the same reason."""
N_COLORS = 128


def cell_color(part: float, *, never: QColor, most: QColor) -> QColor:
    """Return the colour of a part, 0 to 1, of the share that has the deepest colour."""
    if part <= 0:
        return never
    return mix(most, never, LEAST_PART + (1 - LEAST_PART) * min(1.0, part) ** BEND)


class ExpertMap(QWidget):
    """All experts of all layers.

    Arrow keys, Home and End move a mark from cell to cell.

    Signals:
        pointed: the `ExpertCell` under the pointer or the mark, None when there is none.
        arranged: counts, order or room changed, so the cells did.
    """

    pointed = Signal(object)
    arranged = Signal()

    def __init__(self, model: ExpertMapModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._rows: tuple[tuple[ExpertCell, ...], ...] = ()
        self._drawn: QPixmap | None = None
        self._hovered: tuple[int, int] | None = None
        self._marked = (0, 0)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Expert map")
        model.changed.connect(self._refresh)
        self._refresh()

    @property
    def rows(self) -> tuple[tuple[ExpertCell, ...], ...]:
        """What is drawn."""
        return self._rows

    @property
    def largest_share(self) -> float:
        """The largest share on the map."""
        return max((cell.share for row in self._rows for cell in row), default=0.0)

    @property
    def deepest_share(self) -> float:
        """The share from which on a cell has the deepest colour."""
        picks = self._model.picks
        limit = 0.0 if picks is None else DEEPEST_TIMES / max(1, picks.n_experts)
        return min(self.largest_share, limit)

    def sizeHint(self) -> QSize:
        """Ask for the height of all rows."""
        n_layers = 0 if self._model.picks is None else self._model.picks.n_layers
        return QSize(160, n_layers * self._row_height(n_layers) + 2 * MARK_PX)

    def minimumSizeHint(self) -> QSize:
        """Ask for the height of all rows."""
        return self.sizeHint()

    # Places

    def _row_height(self, n_layers: int) -> int:
        return max(LEAST_CELL_PX, min(MOST_CELL_PX, MAP_HEIGHT_PX // max(1, n_layers)))

    def cell_rect(self, row: int, column: int) -> QRect:
        """Return where a cell lies in this widget, the gap to its neighbours left out."""
        n_columns = len(self._rows[row])
        room = self.width() - 2 * MARK_PX
        height = self._row_height(len(self._rows))
        left, right = (MARK_PX + room * at // n_columns for at in (column, column + 1))
        gap = 1 if height > 2 * LEAST_CELL_PX and room >= 2 * LEAST_CELL_PX * n_columns else 0
        return QRect(left, MARK_PX + row * height, right - left - gap, height - gap)

    def cell_at(self, point: QPoint) -> tuple[int, int] | None:
        """Return row and column of the cell under a point of this widget."""
        row = (point.y() - MARK_PX) // self._row_height(len(self._rows))
        if not 0 <= row < len(self._rows):
            return None
        room = max(1, self.width() - 2 * MARK_PX)
        across = point.x() - MARK_PX
        if not 0 <= across < room:
            return None
        n_columns = len(self._rows[row])
        # The last column that begins at this pixel or left of it.
        return row, min(n_columns - 1, ((across + 1) * n_columns - 1) // room)

    # Following the model

    def _refresh(self) -> None:
        n_before = len(self._rows)
        room = self.width() - 2 * MARK_PX
        self._rows = self._model.rows(max(1, room // LEAST_CELL_PX))
        if len(self._rows) != n_before:
            self._hovered, self._marked = None, (0, 0)
            self.updateGeometry()
        self._drawn = None
        self._marked = self._clamped(*self._marked)
        if self._hovered is not None:
            self._hovered = self._clamped(*self._hovered)
        if (summary := self._model.summary) != self.accessibleDescription():
            self.setAccessibleDescription(summary)
        self.update()
        self.arranged.emit()
        self._tell_pointed()

    def _clamped(self, row: int, column: int) -> tuple[int, int]:
        if not self._rows:
            return 0, 0
        row = max(0, min(row, len(self._rows) - 1))
        return row, max(0, min(column, len(self._rows[row]) - 1))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Group the experts anew where the room changes."""
        super().resizeEvent(event)
        self._refresh()

    def changeEvent(self, event: QEvent) -> None:
        """Draw anew when the theme changes."""
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.StyleChange):
            self._drawn = None
            self.update()
        super().changeEvent(event)

    # Painting

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the cells, which are kept as a picture, and the marks over them."""
        c = colors(self)
        ratio = self.devicePixelRatioF()
        if self._drawn is None or self._drawn.devicePixelRatioF() != ratio:
            self._drawn = self._draw_cells(ratio)
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._drawn)
        if self._rows:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            if self._hovered is not None:
                painter.setPen(QPen(QColor(c.text), 1))
                painter.drawRect(self.cell_rect(*self._hovered).adjusted(-1, -1, 0, 0))
            if self.hasFocus():
                painter.setPen(QPen(QColor(c.text), 2))
                painter.drawRect(self.cell_rect(*self._marked).adjusted(-1, -1, 1, 1))
        painter.end()

    def _draw_cells(self, ratio: float) -> QPixmap:
        """Draw every cell; a large model has some thousands of them."""
        c = colors(self)
        never, most = QColor(c.sunken), QColor(c.accent)
        shades = [
            cell_color(step / N_COLORS, never=never, most=most) for step in range(N_COLORS + 1)
        ]
        deepest = self.deepest_share or 1.0
        picture = QPixmap(self.size() * ratio)
        picture.setDevicePixelRatio(ratio)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        # All rows have the same columns, so where those lie is asked once.
        n_columns = len(self._rows[0]) if self._rows else 0
        across = [self.cell_rect(0, column) for column in range(n_columns)]
        edges = [(rect.x(), rect.width()) for rect in across]
        for row, cells in enumerate(self._rows):
            line = self.cell_rect(row, 0)
            top, height = line.y(), line.height()
            for (left, width), cell in zip(edges, cells, strict=True):
                # Rounded up, so that a single pick shows.
                shade = min(N_COLORS, math.ceil(N_COLORS * cell.share / deepest))
                painter.fillRect(left, top, width, height, shades[shade])
        painter.end()
        return picture

    # Pointer and keys

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Point at the cell under the pointer."""
        self._point(self.cell_at(event.position().toPoint()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        """Take the mark of the keys along."""
        place = self.cell_at(event.position().toPoint())
        if place is not None:
            self._mark(*place)

    def leaveEvent(self, event: QEvent) -> None:
        """Point at nothing."""
        self._point(None)
        super().leaveEvent(event)

    def hideEvent(self, event: QHideEvent) -> None:
        """Point at nothing."""
        self._point(None)
        super().hideEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Move the mark."""
        row, column = self._marked
        places = {
            Qt.Key.Key_Left: (row, column - 1),
            Qt.Key.Key_Right: (row, column + 1),
            Qt.Key.Key_Up: (row - 1, column),
            Qt.Key.Key_Down: (row + 1, column),
            Qt.Key.Key_Home: (row, 0),
            Qt.Key.Key_End: (row, 1 << 20),
        }
        if self._rows and event.key() in places:
            self._mark(*self._clamped(*places[Qt.Key(event.key())]))
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Show the mark."""
        super().focusInEvent(event)
        if self._rows:
            self._mark(*self._marked)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Hide the mark."""
        super().focusOutEvent(event)
        self.update()
        self._tell_pointed()

    def _point(self, place: tuple[int, int] | None) -> None:
        if place != self._hovered:
            self._hovered = place
            self.update()
            self._tell_pointed()

    def _mark(self, row: int, column: int) -> None:
        self._marked = (row, column)
        self.setAccessibleName(f"Expert map. {self._model.describe(self._rows[row][column])}")
        self.update()
        self._tell_pointed()

    def _tell_pointed(self) -> None:
        place = self._hovered
        if place is None and self.hasFocus():
            place = self._marked
        has_cell = place is not None and bool(self._rows)
        self.pointed.emit(self._rows[place[0]][place[1]] if has_cell else None)
