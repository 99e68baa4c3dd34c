"""The list of models: name, a line about it, and whether it is loaded."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import (
    QEvent,
    QItemSelection,
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QSize,
    Qt,
)
from PySide6.QtGui import QColor, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from strata_desktop.viewmodels.models import ModelsModel
from strata_desktop.viewmodels.models_list import MARK_ROLE, PATH_ROLE, SUBLINE_ROLE
from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import RADIUS, SPACE, TYPE, colors

ROW_HEIGHT_PX = 48
MARK_WORDS = {"loaded": "loaded", "loading": "loading"}


class ModelDelegate(QStyledItemDelegate):
    """Draws a model in two lines; what cannot be loaded is faint."""

    def __init__(self, view: QWidget) -> None:
        super().__init__(view)
        self._view = view

    def sizeHint(
        self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> QSize:
        """All rows are equally high."""
        return QSize(120, ROW_HEIGHT_PX)

    def paint(
        self,
        painter: QPainter,
        option: QStyleOptionViewItem,
        index: QModelIndex | QPersistentModelIndex,
    ) -> None:
        """Draw a row."""
        c = colors(self._view)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        area: QRect = option.rect.adjusted(1, 1, -1, -1)
        is_selected = bool(option.state & QStyle.StateFlag.State_Selected)
        is_hovered = bool(option.state & QStyle.StateFlag.State_MouseOver)
        if is_selected or is_hovered:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(c.accent_soft if is_selected else c.hover))
            painter.drawRoundedRect(area, RADIUS.m, RADIUS.m)
        if is_selected and self._view.hasFocus():
            painter.setPen(QColor(c.accent))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(area, RADIUS.m, RADIUS.m)
        mark = index.data(MARK_ROLE)
        line = area.adjusted(SPACE.m, 6, -SPACE.m, 0)
        line.setHeight(18)
        word = MARK_WORDS.get(mark, "")
        room = line.width()
        if word:
            painter.setFont(tabular(option.font, height_px=TYPE.caption, is_strong=True))
            painter.setPen(QColor(c.success if mark == "loaded" else c.accent))
            painter.drawText(
                line, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, word
            )
            room -= painter.fontMetrics().horizontalAdvance(word) + SPACE.s
        painter.setFont(tabular(option.font, height_px=TYPE.body, is_strong=is_selected))
        painter.setPen(QColor(c.text_faint if mark in ("unsupported", "unreadable") else c.text))
        name = painter.fontMetrics().elidedText(
            index.data(Qt.ItemDataRole.DisplayRole), Qt.TextElideMode.ElideRight, room
        )
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, name)
        line.translate(0, 18)
        painter.setFont(tabular(option.font, height_px=TYPE.caption))
        painter.setPen(QColor(c.text_muted))
        below = painter.fontMetrics().elidedText(
            index.data(SUBLINE_ROLE), Qt.TextElideMode.ElideRight, line.width()
        )
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, below)
        painter.restore()


class ModelsView(QListView):
    """The list; its selection and the model's are one. Enter loads, Delete takes off the list."""

    def __init__(self, model: ModelsModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._is_following = False
        self.setModel(model.list)
        self.setItemDelegate(ModelDelegate(self))
        self.setAccessibleName("Models on this computer")
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setMouseTracking(True)
        self.setUniformItemSizes(True)
        self.selectionModel().selectionChanged.connect(self._on_selected)
        self.doubleClicked.connect(lambda _: model.load())
        model.selection_changed.connect(self._follow)
        model.scanned.connect(self._follow)
        self._follow()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Load, or take off the list."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._model.load()
        elif event.key() == Qt.Key.Key_Delete:
            self._model.remove_selected()
        else:
            super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        """Draw anew when the theme changes."""
        if event.type() is QEvent.Type.PaletteChange:
            self.viewport().update()
        super().changeEvent(event)

    def _on_selected(self, selected: QItemSelection, deselected: QItemSelection) -> None:
        if self._is_following:
            return
        rows = self.selectionModel().selectedIndexes()
        if rows:
            self._model.select(rows[0].data(PATH_ROLE))

    def _follow(self) -> None:
        entry = self._model.selected
        path: Path | None = None if entry is None else entry.path
        row = None if path is None else self._model.list.row_of(path)
        self._is_following = True
        try:
            if row is None:
                self.clearSelection()
            elif self.currentIndex().row() != row or not self.selectedIndexes():
                self.setCurrentIndex(self._model.list.index(row))
        finally:
            self._is_following = False
