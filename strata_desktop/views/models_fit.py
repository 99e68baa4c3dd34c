"""What a load would take: a bar of weights and pool against free memory, the sum, the verdict."""

from __future__ import annotations

from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QGridLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from strata_desktop.viewmodels.memory_text import UNKNOWN
from strata_desktop.viewmodels.models_fit import Fit, LoadEstimate
from strata_desktop.views.memory_card import LineLabel, make_label
from strata_desktop.views.meter_paint import mix, tabular
from strata_desktop.views.theme import SPACE, TYPE, colors

BAR_PX = 12
MAX_WIDTH_PX = 560
MAX_LINES = 5
ROLES = {
    Fit.FITS: "success",
    Fit.TIGHT: "warning",
    Fit.POOL_TOO_SMALL: "danger",
    Fit.POOL_TOO_LARGE: "danger",
    Fit.MODEL_TOO_LARGE: "danger",
    Fit.UNKNOWN: "muted",
}


class FitBar(QWidget):
    """Weights and pool as one bar; a line marks the RAM there is."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._estimate: LoadEstimate | None = None
        self.setFixedHeight(BAR_PX + 6)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Weights and pool against free RAM")

    def sizeHint(self) -> QSize:
        """Ask for width."""
        return QSize(240, BAR_PX + 6)

    def set_estimate(self, estimate: LoadEstimate | None) -> None:
        """Show an estimate."""
        if estimate != self._estimate:
            self._estimate = estimate
            self.setAccessibleDescription("" if estimate is None else estimate.verdict)
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the track, the parts and the mark."""
        c = colors(self)
        painter = QPainter(self)
        track = QRect(0, 3, self.width(), BAR_PX)
        painter.fillRect(track, QColor(c.pressed))
        one = self._estimate
        if one is not None and one.total_bytes and one.ram_bytes is not None:
            scale = max(one.total_bytes, one.ram_bytes, 1)
            weights_px = round(track.width() * (one.weights_bytes or 0) / scale)
            total_px = round(track.width() * one.total_bytes / scale)
            is_over = one.fit in (Fit.POOL_TOO_LARGE, Fit.MODEL_TOO_LARGE)
            full = QColor(c.danger if is_over else c.accent)
            painter.fillRect(track.adjusted(0, 0, weights_px - track.width(), 0), full)
            pool = QRect(weights_px, track.y(), total_px - weights_px, BAR_PX)
            painter.fillRect(pool, mix(full, QColor(c.raised), 0.5))
            if one.ram_bytes < scale:
                mark = round(track.width() * one.ram_bytes / scale)
                painter.setPen(QPen(QColor(c.text), 2))
                painter.drawLine(mark, 0, mark, self.height())
        painter.end()


class FitPanel(QWidget):
    """Bar, sum and verdict. Its height does not change with the numbers."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        # A number far away from its name is hard to read.
        self.setMaximumWidth(MAX_WIDTH_PX)
        self._bar = FitBar()
        self._verdict = make_label(role="muted")
        self._verdict.setWordWrap(True)
        self._verdict.setAlignment(Qt.AlignmentFlag.AlignTop)
        self._verdict.setAccessibleName("Whether the model fits")
        self._verdict.setMinimumHeight(3 * self._verdict.fontMetrics().lineSpacing())
        self._rows: list[tuple[LineLabel, QLabel]] = []
        grid = QGridLayout()
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(2)
        for row in range(MAX_LINES):
            name, value = LineLabel(), make_label()
            value.setFont(tabular(value.font(), height_px=TYPE.body))
            value.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            grid.addWidget(name, row, 0)
            grid.addWidget(value, row, 1)
            self._rows.append((name, value))
        grid.setColumnStretch(0, 1)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(SPACE.s)
        box.addWidget(self._bar)
        box.addLayout(grid)
        box.addWidget(self._verdict)

    def set_estimate(self, estimate: LoadEstimate | None) -> None:
        """Show an estimate, None = no model is selected or its header cannot be read."""
        self._bar.set_estimate(estimate)
        numbers = () if estimate is None else estimate.numbers
        for row, (name, value) in enumerate(self._rows):
            if row < len(numbers):
                name.setText(numbers[row][0])
                value.setText(numbers[row][1])
                value.setAccessibleName(f"{numbers[row][0]}: {numbers[row][1]}")
            else:
                name.setText("")
                value.setText("")
                value.setAccessibleName("not used")
        verdict = f"What it takes is {UNKNOWN}." if estimate is None else estimate.verdict
        role = "muted" if estimate is None else ROLES[estimate.fit]
        self._verdict.setText(verdict)
        if self._verdict.property("role") != role:
            self._verdict.setProperty("role", role)
            self._verdict.style().unpolish(self._verdict)
            self._verdict.style().polish(self._verdict)
