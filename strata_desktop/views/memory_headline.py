"""The headline row: seven figures that never change places."""

from __future__ import annotations

from html import escape

from PySide6.QtCore import QEvent, Qt
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.memory_figures import Figure
from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import SPACE, TYPE, colors

STRETCHES = (10, 10, 14, 10, 10, 9, 9)


class FigureTile(QWidget):
    """Label, number with its unit, and two small lines."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._figure: Figure | None = None
        self._label = self._line("caption")
        self._value = QLabel()
        self._value.setTextFormat(Qt.TextFormat.RichText)
        self._value.setFont(tabular(self._value.font(), height_px=TYPE.title, is_strong=True))
        self._value.setMinimumWidth(1)
        self._detail = self._line("caption")
        self._detail.setFont(tabular(self._detail.font(), height_px=TYPE.caption))
        self._detail.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._detail.setFixedHeight(2 * self._detail.fontMetrics().lineSpacing() + 2)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(1)
        for part in (self._label, self._value, self._detail):
            box.addWidget(part)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def _line(self, role: str) -> QLabel:
        label = QLabel()
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setProperty("role", role)
        label.setMinimumWidth(1)
        return label

    def set_figure(self, figure: Figure) -> None:
        """Show a figure; the same one again costs nothing."""
        if figure == self._figure:
            return
        self._figure = figure
        self._label.setText(figure.label)
        self._detail.setText(figure.detail)
        self.setToolTip(figure.explanation)
        self.setAccessibleName(f"{figure.label}: {figure.value} {figure.unit}")
        self.setAccessibleDescription(figure.detail.replace("\n", ", "))
        self._show_value()

    def _show_value(self) -> None:
        if self._figure is None:
            return
        muted = colors(self).text_muted
        unit = escape(self._figure.unit) if self._figure.value != "–" else ""
        self._value.setText(
            f"{escape(self._figure.value)}"
            f'<span style="font-size:{TYPE.caption}px;font-weight:400;color:{muted}"> {unit}</span>'
        )

    def changeEvent(self, event: QEvent) -> None:
        """Colour the unit anew when the theme changes."""
        if event.type() is QEvent.Type.PaletteChange:
            self._show_value()
        super().changeEvent(event)


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
