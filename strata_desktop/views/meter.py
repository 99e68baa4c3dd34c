"""A bar with a limit and its numbers, in fixed places so that nothing jumps."""

from __future__ import annotations

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from strata_desktop.viewmodels.memory_figures import Gauge
from strata_desktop.viewmodels.memory_text import percent_text
from strata_desktop.views.meter_paint import mix, tabular
from strata_desktop.views.theme import TYPE, colors

BAR_PX = 8
LINE_PX = 18
GAP_PX = 5
NEARLY_FULL = 0.9
"""From here on the bar wears the warning colour."""


class Meter(QWidget):
    """Shows a `Gauge`: label and percent, the bar, the numbers, a note."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._gauge: Gauge | None = None
        self.setFixedHeight(2 * LINE_PX + BAR_PX + GAP_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Memory meter")

    def sizeHint(self) -> QSize:
        """Ask for the usual width of a card."""
        return QSize(220, self.minimumHeight())

    def set_gauge(self, gauge: Gauge | None) -> None:
        """Show a gauge; the same one again costs nothing."""
        if gauge == self._gauge:
            return
        self._gauge = gauge
        if gauge is not None:
            self.setFixedHeight((3 if gauge.note else 2) * LINE_PX + BAR_PX + GAP_PX)
            self.setAccessibleName(f"{gauge.label}: {gauge.text}. {gauge.note}".strip())
            self.setToolTip(gauge.explanation)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw label, bar, numbers and note."""
        gauge = self._gauge
        if gauge is None:
            return
        c = colors(self)
        painter = QPainter(self)
        line = QRect(0, 0, self.width(), LINE_PX)
        center = Qt.AlignmentFlag.AlignVCenter
        painter.setFont(tabular(self.font(), height_px=TYPE.body, is_strong=True))
        painter.setPen(QColor(c.text))
        percent = percent_text(gauge.used_bytes, gauge.total_bytes)
        painter.drawText(line, center | Qt.AlignmentFlag.AlignRight, percent)
        room = self.width() - painter.fontMetrics().horizontalAdvance(percent) - 8
        label = painter.fontMetrics().elidedText(gauge.label, Qt.TextElideMode.ElideRight, room)
        painter.drawText(line, center | Qt.AlignmentFlag.AlignLeft, label)

        bar = QRect(0, LINE_PX + 3, self.width(), BAR_PX)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QColor(c.pressed))
        painter.drawRoundedRect(bar, BAR_PX / 2, BAR_PX / 2)
        fill = gauge.fill
        if fill:
            full = QColor(c.warning if fill >= NEARLY_FULL else c.accent)
            used_px = max(BAR_PX, round(fill * bar.width()))
            has_own = gauge.own_bytes > 0
            rest = mix(full, QColor(c.raised), 0.45) if has_own else full
            painter.setBrush(rest)
            painter.drawRoundedRect(bar.adjusted(0, 0, used_px - bar.width(), 0), 4, 4)
            if has_own:
                own_px = max(BAR_PX, round(gauge.own_bytes / gauge.total_bytes * bar.width()))
                painter.setBrush(full)
                painter.drawRoundedRect(
                    bar.adjusted(0, 0, min(own_px, used_px) - bar.width(), 0), 4, 4
                )

        painter.setFont(tabular(self.font(), height_px=TYPE.caption))
        painter.setPen(QColor(c.text_muted))
        metrics = QFontMetrics(painter.font())
        top = bar.bottom() + 3
        for text in (gauge.text, gauge.note):
            shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, self.width())
            painter.drawText(QRect(0, top, self.width(), LINE_PX), center, shown)
            top += LINE_PX - 1
        painter.end()
