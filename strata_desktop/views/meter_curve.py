"""RAM and commit over five minutes. pyqtgraph is imported when the curve is first shown."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QPointF, QSize
from PySide6.QtGui import QColor, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.memory_history import SPAN_S, MemorySample
from strata_desktop.viewmodels.memory_text import GIB, duration_text
from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import TYPE, colors

HEIGHT_PX = 84
WANTED_HEIGHT_PX = 220


class MemoryCurve(QWidget):
    """Two thin lines and, under the pointer, their values in words."""

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self._plot: Any = None
        self._lines: dict[str, Any] = {}
        self._cursor: Any = None
        self._words = _line("Values of the memory curve")
        self._words.setMinimumWidth(1)
        self._when = _line("Moment of these values")
        head = QHBoxLayout()
        head.addWidget(_line("Unit of the memory curve", "GiB"))
        head.addStretch()
        head.addWidget(self._when)
        self._box = QVBoxLayout(self)
        self._box.setContentsMargins(0, 4, 0, 0)
        self._box.setSpacing(2)
        self._box.addLayout(head)
        self._box.addWidget(self._words)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        self.setMinimumHeight(HEIGHT_PX + 36)
        self.setAccessibleName("RAM and commit over the last five minutes")
        model.history_changed.connect(self._draw)
        self._say(None)

    def sizeHint(self) -> QSize:
        """Ask for a comfortable height; less will do."""
        return QSize(220, WANTED_HEIGHT_PX)

    def showEvent(self, event: QShowEvent) -> None:
        """Make the plot on first sight."""
        if self._plot is None:
            self._make_plot()
            self._draw()
        super().showEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        """Take the theme's colours anew."""
        if event.type() is QEvent.Type.PaletteChange and self._plot is not None:
            self._color()
            self._say(None)
        super().changeEvent(event)

    def _make_plot(self) -> None:
        import pyqtgraph

        plot = pyqtgraph.PlotWidget(self)
        plot.setAccessibleName("Memory curve")
        plot.setMenuEnabled(False)
        plot.setMouseEnabled(x=False, y=False)
        plot.hideButtons()
        plot.setXRange(-SPAN_S, 0, padding=0)
        plot.setFrameShape(pyqtgraph.QtWidgets.QFrame.Shape.NoFrame)
        item = plot.getPlotItem()
        item.showGrid(y=True, alpha=0.12)
        item.getAxis("left").setWidth(34)
        item.getAxis("bottom").setHeight(18)
        item.getAxis("bottom").setTicks([[(-240, "4 min"), (-120, "2 min")]])
        for axis in ("left", "bottom"):
            item.getAxis(axis).setStyle(tickLength=0, tickTextOffset=4)
        self._lines = {name: plot.plot() for name in ("commit", "ram")}
        self._cursor = pyqtgraph.InfiniteLine(angle=90, movable=False)
        self._cursor.hide()
        plot.addItem(self._cursor, ignoreBounds=True)
        plot.scene().sigMouseMoved.connect(self._on_moved)
        self._plot = plot
        self._box.insertWidget(1, plot, 1)
        self._color()

    def _color(self) -> None:
        c = colors(self)
        self._plot.setBackground(QColor(c.raised))
        for name, color in (("ram", c.accent), ("commit", c.text_faint)):
            self._lines[name].setPen(QColor(color), width=1)
        self._cursor.setPen(QColor(c.border_strong), width=1)
        font = tabular(self.font(), height_px=TYPE.caption - 2)
        for axis in ("left", "bottom"):
            made = self._plot.getPlotItem().getAxis(axis)
            made.setPen(QColor(c.border))
            made.setTextPen(QColor(c.text_muted))
            made.setTickFont(font)

    def _draw(self) -> None:
        samples = self._model.history.samples
        if not samples:
            return
        newest = samples[-1]
        times = [sample.time_s - newest.time_s for sample in samples]
        if self._plot is not None:
            self._lines["ram"].setData(times, [s.ram_used_bytes / GIB for s in samples])
            self._lines["commit"].setData(times, [s.commit_used_bytes / GIB for s in samples])
            self._plot.setYRange(0, self._top_gib(samples), padding=0)
        if self._cursor is None or not self._cursor.isVisible():
            self._say(None)

    def _top_gib(self, samples: tuple[MemorySample, ...]) -> float:
        """Return the top of the scale: the RAM there is, or more where more was promised."""
        highest = max(max(s.ram_used_bytes, s.commit_used_bytes) for s in samples)
        ram = self._model.ram
        return max(1.05 * highest, 0 if ram is None else ram.total_bytes, GIB) / GIB

    def _on_moved(self, place: QPointF) -> None:
        samples = self._model.history.samples
        box = self._plot.getPlotItem().vb
        if not samples or not box.sceneBoundingRect().contains(place):
            self._leave()
            return
        seconds = box.mapSceneToView(place).x()
        sample = self._model.history.nearest(samples[-1].time_s + seconds)
        if sample is not None:
            self._cursor.setPos(sample.time_s - samples[-1].time_s)
            self._cursor.show()
            self._say(sample)

    def leaveEvent(self, event: QEvent) -> None:
        """Say the newest values again."""
        self._leave()
        super().leaveEvent(event)

    def _leave(self) -> None:
        if self._cursor is not None and self._cursor.isVisible():
            self._cursor.hide()
            self._say(None)

    def _say(self, sample: MemorySample | None) -> None:
        """Put a sample, or the newest one, into words, each beside the colour of its line."""
        samples = self._model.history.samples
        if not samples:
            self._words.setText("The curve begins with the first report.")
            self._when.setText("")
            return
        when = "now"
        shown = samples[-1] if sample is None else sample
        if shown is not samples[-1]:
            when = f"{duration_text(samples[-1].time_s - shown.time_s)} ago"
        c = colors(self)
        self._words.setText(
            f'<span style="color:{c.accent}">━</span> RAM {shown.ram_used_bytes / GIB:,.1f} '
            f'&nbsp;<span style="color:{c.text_faint}">━</span> commit '
            f"{shown.commit_used_bytes / GIB:,.1f}"
        )
        self._when.setText(when)


def _line(name: str, text: str = "") -> QLabel:
    made = QLabel(text)
    made.setProperty("role", "caption")
    made.setFont(tabular(made.font(), height_px=TYPE.caption))
    made.setAccessibleName(name)
    return made
