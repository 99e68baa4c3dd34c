"""The headline row: seven figures that never change places."""

from __future__ import annotations

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QSizePolicy, QWidget

from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.memory_figures import Figure
from strata_desktop.viewmodels.memory_text import NOTHING
from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import SPACE, TYPE, colors

STRETCHES = (10, 10, 14, 10, 10, 9, 9)


class FigureTile(QWidget):
    """Label, number with its unit, and two small lines.

    It is drawn rather than put together from labels: a label that changes its text has the whole
    page laid out anew, ten times a second.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._figure: Figure | None = None
        self._small = tabular(self.font(), height_px=TYPE.caption)
        self._large = tabular(self.font(), height_px=TYPE.title, is_strong=True)
        self._line_px = QFontMetrics(self._small).lineSpacing()
        self._value_px = QFontMetrics(self._large).lineSpacing()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(3 * self._line_px + self._value_px + 4)

    def sizeHint(self) -> QSize:
        """Ask for the usual width of a figure."""
        return QSize(100, self.minimumHeight())

    def set_figure(self, figure: Figure) -> None:
        """Show a figure; the same one again costs nothing."""
        if figure == self._figure:
            return
        self._figure = figure
        self.setToolTip(figure.explanation)
        self.setAccessibleName(f"{figure.label}: {figure.value} {figure.unit}".strip())
        self.setAccessibleDescription(figure.detail.replace("\n", ", "))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the lines from top to bottom."""
        figure = self._figure
        if figure is None:
            return
        c = colors(self)
        painter = QPainter(self)
        line = QRect(0, 0, self.width(), self._line_px)
        painter.setFont(self._small)
        painter.setPen(QColor(c.text_faint))
        painter.drawText(line, Qt.AlignmentFlag.AlignLeft, figure.label)
        line = QRect(0, line.bottom() + 2, self.width(), self._value_px)
        painter.setFont(self._large)
        painter.setPen(QColor(c.text))
        painter.drawText(line, Qt.AlignmentFlag.AlignLeft, figure.value)
        if figure.value != NOTHING:
            baseline = line.top() + painter.fontMetrics().ascent()
            left = painter.fontMetrics().horizontalAdvance(figure.value) + 4
            painter.setFont(self._small)
            painter.setPen(QColor(c.text_muted))
            painter.drawText(left, baseline, figure.unit)
        painter.setFont(self._small)
        painter.setPen(QColor(c.text_faint))
        metrics = painter.fontMetrics()
        top = line.bottom() + 2
        for text in figure.detail.split("\n"):
            shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, self.width())
            place = QRect(0, top, self.width(), self._line_px)
            painter.drawText(place, Qt.AlignmentFlag.AlignLeft, shown)
            top += self._line_px
        painter.end()


class Headline(QFrame):
    """The figures of the pool, of speed and of headroom, side by side."""

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self.setProperty("role", "card")
        self.setAccessibleName("Memory at a glance")
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(SPACE.l, SPACE.s + 2, SPACE.s, SPACE.s)
        self._grid.setSpacing(SPACE.s)
        self._tiles = [FigureTile(self) for _ in STRETCHES]
        self._is_folded: bool | None = None
        self.fold(is_folded=False)
        model.changed.connect(self._refresh)
        self._refresh()

    def fold(self, *, is_folded: bool) -> None:
        """Lay the figures in two rows where one is too narrow."""
        if is_folded == self._is_folded:
            return
        self._is_folded = is_folded
        n_columns = -(-len(self._tiles) // 2) if is_folded else len(self._tiles)
        for number, tile in enumerate(self._tiles):
            self._grid.addWidget(tile, *divmod(number, n_columns))
        for column, stretch in enumerate(STRETCHES):
            used = 1 if is_folded else stretch
            self._grid.setColumnStretch(column, used if column < n_columns else 0)

    def _refresh(self) -> None:
        for tile, figure in zip(self._tiles, self._model.figures, strict=True):
            tile.set_figure(figure)
