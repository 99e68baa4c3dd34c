"""The table of sessions: chips, tabular figures, columns that keep their width."""

from __future__ import annotations

from PySide6.QtCore import (
    QEvent,
    QItemSelection,
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QSize,
    Qt,
)
from PySide6.QtGui import QColor, QFontMetrics, QKeyEvent, QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.memory_sessions import (
    HEADERS,
    ID_ROLE,
    ROW_ROLE,
    SessionColumn,
    SessionRow,
    cell_alignment,
)
from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import SPACE, colors, session_color

ROW_HEIGHT_PX = 28
CHIP_PX = 10
CELL_PX = 8
"""As the headings have."""
NAME_MIN_WIDTH_PX = 150
NAME_WIDTH_PX = 300
"""Titles get this much before the other columns get more than they need."""
SAMPLES = {
    SessionColumn.LANE: "63",
    SessionColumn.STATE: "reading",
    SessionColumn.TOKENS: "262,144",
    SessionColumn.CELLS: "262,144",
    SessionColumn.MIB: "12,288",
    SessionColumn.SHARE: "99.9 %",
    SessionColumn.RATE: "123.4",
    SessionColumn.IDLE: "59 min",
}
"""The widest text a column usually has; its width follows from it and never from the rows."""


DISPENSABLE = (SessionColumn.CELLS, SessionColumn.LANE, SessionColumn.SHARE)
"""Columns left out first in a narrow window: the others tell as much."""


class SessionDelegate(QStyledItemDelegate):
    """Draws a cell from its row: chip and name, or a figure; lifts the highlighted row out.

    It draws without the style's help: a cell costs one question to the model instead of ten, and
    the table is drawn ten times a second.
    """

    def __init__(self, model: MemoryModel, view: QWidget) -> None:
        super().__init__(view)
        self._model = model
        self._view = view
        self.restyle()

    def restyle(self) -> None:
        """Take fonts and colours anew."""
        c = colors(self._view)
        self._font = tabular(self._view.font())
        self._metrics = QFontMetrics(self._font)
        self._text, self._quiet = QColor(c.text), QColor(c.text_muted)
        self._selected, self._lifted = QColor(c.accent_soft), QColor(c.hover)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        """Draw a cell."""
        row: SessionRow | None = index.data(ROW_ROLE)
        if row is None:
            return
        area: QRect = option.rect
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(area, self._selected)
        elif row.id == self._model.highlighted:
            painter.fillRect(area, self._lifted)
        column = SessionColumn(index.column())
        line = area.adjusted(CELL_PX, 0, -CELL_PX, 0)
        is_quiet = row.state == "idle" and column is not SessionColumn.NAME
        painter.setFont(self._font)
        painter.setPen(self._quiet if is_quiet else self._text)
        text = row.text(column)
        if column is SessionColumn.NAME:
            top = area.center().y() - CHIP_PX // 2 + 1
            painter.fillRect(
                QRect(area.x() + SPACE.s, top, CHIP_PX, CHIP_PX), session_color(row.color)
            )
            line.setLeft(area.x() + 2 * SPACE.s + CHIP_PX)
            text = self._metrics.elidedText(text, Qt.TextElideMode.ElideRight, line.width())
        painter.drawText(line, cell_alignment(column), text)


class SessionsView(QTableView):
    """The sorted table; its selection and the model's are one.

    Up and Down move from session to session; Escape selects none.
    """

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._is_following = False
        self._widths: dict[SessionColumn, int] = {}
        self.setModel(model.sorted_table)
        self._delegate = SessionDelegate(model, self)
        self.setItemDelegate(self._delegate)
        self.setAccessibleName("Sessions and what they hold")
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.setMouseTracking(True)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.verticalHeader().setDefaultSectionSize(ROW_HEIGHT_PX)
        self._set_columns()
        self.setSortingEnabled(True)
        self.sortByColumn(-1, Qt.SortOrder.AscendingOrder)
        self.entered.connect(lambda index: model.hover(index.data(ID_ROLE)))
        self.selectionModel().selectionChanged.connect(self._on_selected)
        model.selection_changed.connect(self._follow_selection)
        model.highlight_changed.connect(self.viewport().update)

    def _set_columns(self) -> None:
        header = self.horizontalHeader()
        header.setHighlightSections(False)
        header.setStretchLastSection(False)
        header.setMinimumSectionSize(30)
        header.setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        header.setSectionResizeMode(SessionColumn.NAME, QHeaderView.ResizeMode.Stretch)
        metrics = QFontMetrics(tabular(self.font(), is_strong=True))
        for column, sample in SAMPLES.items():
            heading = metrics.horizontalAdvance(HEADERS[column]) + 2 * CELL_PX + 4
            self._widths[column] = max(heading, metrics.horizontalAdvance(sample) + 2 * CELL_PX + 2)
            header.resizeSection(column, self._widths[column])

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out the least needed columns where there is no room, instead of scrolling."""
        room = self.viewport().width() - NAME_MIN_WIDTH_PX
        total = sum(self._widths.values())
        for column in DISPENSABLE:
            self.setColumnHidden(column, total > room)
            if total > room:
                total -= self._widths[column]
        spare = self.viewport().width() - NAME_WIDTH_PX - total
        widening = min(1.4, max(1.0, 1 + 0.3 * spare / total))
        for column, width in self._widths.items():
            self.horizontalHeader().resizeSection(column, round(width * widening))
        super().resizeEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        """Draw in the new colours when the theme changes."""
        if event.type() in (QEvent.Type.PaletteChange, QEvent.Type.FontChange):
            self._delegate.restyle()
            self.viewport().update()
        super().changeEvent(event)

    def sizeHint(self) -> QSize:
        """Ask for room for a handful of rows."""
        return QSize(480, 6 * ROW_HEIGHT_PX)

    def minimumSizeHint(self) -> QSize:
        """Insist on a few rows."""
        return QSize(300, 4 * ROW_HEIGHT_PX + 4)

    def leaveEvent(self, event: QEvent) -> None:
        """Highlight nothing."""
        self._model.hover(None)
        super().leaveEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Let Escape select none."""
        if event.key() == Qt.Key.Key_Escape and self._model.selected is not None:
            self._model.select(None)
        else:
            super().keyPressEvent(event)

    def _on_selected(self, selected: QItemSelection, deselected: QItemSelection) -> None:
        if self._is_following:
            return
        rows = self.selectionModel().selectedRows()
        self._model.select(rows[0].data(ID_ROLE) if rows else None)

    def _follow_selection(self) -> None:
        session_id = self._model.selected
        row = None if session_id is None else self._model.table.row_of(session_id)
        self._is_following = True
        try:
            if row is None:
                self.clearSelection()
            else:
                source = self._model.table.index(row, SessionColumn.NAME)
                self.selectRow(self._model.sorted_table.mapFromSource(source).row())
        finally:
            self._is_following = False
