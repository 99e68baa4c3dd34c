"""The card around the map of experts: its order, its scale, its words."""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor, QLinearGradient, QPainter, QPaintEvent
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QWidget

from strata_desktop.viewmodels.expert_map import ExpertCell
from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.memory_text import percent_text
from strata_desktop.views.expert_map import ExpertMap, cell_color
from strata_desktop.views.memory_card import Card, LineLabel, make_label
from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import RADIUS, SPACE, TYPE, colors

WIDTH_PX = 132
N_STOPS = 8
POINT_HINT = "Point at a cell, or move through the map with the arrow keys."


class ShareScale(QWidget):
    """What the colours mean: from never picked to the largest share on the map."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._text = ""
        self.setFont(tabular(self.font(), height_px=TYPE.caption))
        self.setFixedHeight(self.fontMetrics().height())
        self.setFixedWidth(WIDTH_PX)

    def set_shares(self, *, deepest: float, largest: float) -> None:
        """Say what the deepest colour stands for: a share, and all that are larger."""
        share = percent_text(deepest, 1) if deepest > 0 else ""
        is_cut = largest > deepest
        text = f"≥ {share}" if is_cut else share
        if text != self._text:
            self._text = text
            more = " or more" if is_cut else ""
            told = f"Colours from 0 % to {share}{more} of a layer's picks" if share else ""
            self.setAccessibleName(told)
            self.setToolTip(told)
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the two ends with a band between them."""
        if not self._text:
            return
        c = colors(self)
        never, most = QColor(c.sunken), QColor(c.accent)
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(c.text_muted))
        area, metrics = self.rect(), self.fontMetrics()
        center = Qt.AlignmentFlag.AlignVCenter
        painter.drawText(area, Qt.AlignmentFlag.AlignLeft | center, "0 %")
        painter.drawText(area, Qt.AlignmentFlag.AlignRight | center, self._text)
        left = metrics.horizontalAdvance("0 %") + SPACE.s
        right = area.width() - metrics.horizontalAdvance(self._text) - SPACE.s
        band = QRect(left, area.center().y() - 3, max(0, right - left), 7)
        gradient = QLinearGradient(band.topLeft(), band.topRight())
        for step in range(N_STOPS + 1):
            color = cell_color(max(step, 0.01) / N_STOPS, never=never, most=most)
            gradient.setColorAt(step / N_STOPS, color)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(gradient)
        painter.drawRoundedRect(band, RADIUS.s - 1, RADIUS.s - 1)
        painter.end()


class ExpertCard(Card):
    """Which experts the router picks; not there for models without experts."""

    def __init__(self, model: MemoryModel, parent: QWidget | None = None) -> None:
        super().__init__("Expert picks", parent)
        self._model = model
        experts = model.expert_map
        self.map = ExpertMap(experts)
        self.order = QCheckBox("Most picked first")
        self.order.setAccessibleName("Most picked experts first")
        self.order.setChecked(experts.is_sorted)
        self.order.setToolTip("Off: the experts of every layer by their number")
        self.order.toggled.connect(lambda is_on: experts.set_sorted(is_sorted=is_on))
        self.scale = ShareScale()
        self._facts = LineLabel()
        self._line = LineLabel(POINT_HINT, role="muted")
        self._words = make_label(role="muted")
        self._words.setWordWrap(True)
        top = QHBoxLayout()
        top.setSpacing(SPACE.m)
        top.addWidget(make_label("Expert picks", role="heading"))
        top.addWidget(self._facts, 1)
        top.addWidget(self.scale)
        top.addWidget(self.order)
        self.box.addLayout(top)
        self.box.addWidget(self.map)
        self.box.addWidget(self._line)
        self.box.addWidget(self._words)
        self.map.pointed.connect(self._point)
        self.map.arranged.connect(self._measure)
        experts.changed.connect(self._refresh)
        model.changed.connect(self._explain)
        self._measure()
        self._refresh()

    def _refresh(self) -> None:
        experts = self._model.expert_map
        self._facts.setText(experts.facts)
        self._explain()
        self.setVisible(experts.picks is not None)

    def _measure(self) -> None:
        chart = self.map
        self.scale.set_shares(deepest=chart.deepest_share, largest=chart.largest_share)

    def _explain(self) -> None:
        words = (self._model.expert_map.profile, self._model.experts_reason)
        self._words.setText(" ".join(word for word in words if word))

    def _point(self, cell: ExpertCell | None) -> None:
        self._line.setText(POINT_HINT if cell is None else self._model.expert_map.describe(cell))
