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
from PySide6.QtGui import QColor, QFontMetrics, QKeyEvent, QPainter, QPalette, QResizeEvent
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
    COLOR_ROLE,
    HEADERS,
    ID_ROLE,
    SessionColumn,
)
from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import SPACE, colors, session_color

ROW_HEIGHT_PX = 28
CHIP_PX = 10
NAME_MIN_WIDTH_PX = 150
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
    """Draws a chip before the name, and lifts the highlighted session's row out."""

    def __init__(self, model: MemoryModel, parent: QWidget) -> None:
        super().__init__(parent)
        self._model = model
        self._view = parent

    def initStyleOption(
        self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        """Set figures of equal width, quiet idle rows and the highlight."""
        super().initStyleOption(option, index)
        c = colors(self._view)
        option.font = tabular(option.font)
        state = index.siblingAtColumn(SessionColumn.STATE).data()
        if state == "idle" and index.column() != SessionColumn.NAME:
            option.palette.setColor(QPalette.ColorRole.Text, QColor(c.text_muted))
        is_selected = bool(option.state & QStyle.StateFlag.State_Selected)
        if index.data(ID_ROLE) == self._model.highlighted and not is_selected:
            option.backgroundBrush = QColor(c.hover)
        # One mark for the row is enough; the focus frame of a cell would say too much.
        option.state &= ~QStyle.StateFlag.State_HasFocus

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        """Draw a cell; the name gets its chip."""
        if index.column() != SessionColumn.NAME:
            super().paint(painter, option, index)
            return
        ready = QStyleOptionViewItem(option)
        self.initStyleOption(ready, index)
        text, ready.text = ready.text, ""
        style = self._view.style()
        style.drawControl(QStyle.ControlElement.CE_ItemViewItem, ready, painter, self._view)
        area: QRect = option.rect
        chip = QRect(area.x() + SPACE.s, area.center().y() - CHIP_PX // 2 + 1, CHIP_PX, CHIP_PX)
        painter.fillRect(chip, session_color(index.data(COLOR_ROLE)))
        line = area.adjusted(2 * SPACE.s + CHIP_PX, 0, -SPACE.xs, 0)
        painter.setFont(ready.font)
        painter.setPen(ready.palette.color(QPalette.ColorRole.Text))
        shown = QFontMetrics(ready.font).elidedText(text, Qt.TextElideMode.ElideRight, line.width())
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, shown)


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
        self.setItemDelegate(SessionDelegate(model, self))
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
            heading = metrics.horizontalAdvance(HEADERS[column]) + 24
            self._widths[column] = max(heading, metrics.horizontalAdvance(sample) + 14)
            header.resizeSection(column, self._widths[column])

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Leave out the least needed columns where there is no room, instead of scrolling."""
        room = self.viewport().width() - NAME_MIN_WIDTH_PX
        total = sum(self._widths.values())
        for column in DISPENSABLE:
            self.setColumnHidden(column, total > room)
            if total > room:
                total -= self._widths[column]
        widening = min(1.7, max(1.0, 1 + 0.4 * (room - total) / total))
        for column, width in self._widths.items():
            self.horizontalHeader().resizeSection(column, round(width * widening))
        super().resizeEvent(event)

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
