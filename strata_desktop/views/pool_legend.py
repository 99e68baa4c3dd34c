"""What the looks of a tile mean, drawn like the tiles themselves."""

from __future__ import annotations

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from strata_desktop.views.meter_paint import HELD_PART, mix, tabular
from strata_desktop.views.theme import TYPE, colors, session_color

SWATCH_PX = 11
WORDS = ("used", "held", "shared", "free")


class PoolLegend(QWidget):
    """Four swatches with their words."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Legend of the pool map")
        self.setAccessibleDescription(
            "Full colour: cells used. Pale: held, not used yet. Two colours: shared. Outline: free."
        )
        self._font = tabular(self.font(), height_px=TYPE.caption)

    def sizeHint(self) -> QSize:
        """Ask for exactly the width of the words."""
        metrics = QFontMetrics(self._font)
        words = sum(metrics.horizontalAdvance(word) for word in WORDS)
        return QSize(words + len(WORDS) * (SWATCH_PX + 6) + (len(WORDS) - 1) * 12 + 2, 18)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the swatches."""
        c = colors(self)
        used = QColor(c.text_muted)
        held = mix(used, QColor(c.raised), HELD_PART)
        painter = QPainter(self)
        painter.setFont(self._font)
        left = 0
        for word in WORDS:
            area = QRect(left, (self.height() - SWATCH_PX) // 2, SWATCH_PX, SWATCH_PX)
            if word == "free":
                painter.setPen(QPen(QColor(c.border_strong), 1))
                painter.drawRect(area.adjusted(0, 0, -1, -1))
            elif word == "shared":
                half = SWATCH_PX // 2
                painter.fillRect(area.adjusted(0, 0, -half, 0), session_color(0))
                painter.fillRect(area.adjusted(SWATCH_PX - half, 0, 0, 0), session_color(1))
            else:
                painter.fillRect(area, used if word == "used" else held)
            left += SWATCH_PX + 6
            painter.setPen(QColor(c.text_muted))
            width = painter.fontMetrics().horizontalAdvance(word)
            painter.drawText(
                QRect(left, 0, width + 2, self.height()), Qt.AlignmentFlag.AlignVCenter, word
            )
            left += width + 12
        painter.end()
