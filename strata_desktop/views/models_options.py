"""How the selected model is to be loaded: four numbers and what they cost, then the buttons."""

from __future__ import annotations

import dataclasses

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QProgressBar,
    QPushButton,
    QSpinBox,
    QWidget,
)

from strata_desktop.client.engine_host import CHUNK_CELLS
from strata_desktop.viewmodels.memory_text import count_text
from strata_desktop.viewmodels.models import ModelsModel
from strata_desktop.views.memory_card import Card, LineLabel, make_label
from strata_desktop.views.models_details import Banner
from strata_desktop.views.models_fit import FitPanel
from strata_desktop.views.theme import SPACE

MAX_TOKENS = 4_194_304
MAX_LANES = 64
MAX_THREADS = 256
SHORTEST_CONTEXT = 256


class LoadCard(Card):
    """Options, their cost, Load and Unload, progress."""

    def __init__(self, model: ModelsModel, parent: QWidget | None = None) -> None:
        super().__init__("Loading", parent)
        self._model = model
        self.context = self._spin(
            "Context in tokens",
            "The longest conversation. Longer needs a larger pool.",
            (SHORTEST_CONTEXT, MAX_TOKENS, 1024),
        )
        self.pool = self._spin(
            "Pool in cells",
            "Memory for the K/V of all conversations together, in whole chunks. "
            "Automatic: two conversations of full length.",
            (0, MAX_TOKENS, CHUNK_CELLS),
        )
        self.lanes = self._spin(
            "Lanes",
            "How many conversations are computed at once; others wait for their turn.",
            (1, MAX_LANES, 1),
        )
        self.threads = self._spin(
            "Threads",
            "Processor threads that compute. Automatic: one for each physical core.",
            (0, MAX_THREADS, 1),
        )
        for spin in (self.pool, self.threads):
            spin.setSpecialValueText("automatic")
        self._fit = FitPanel()
        self.load = QPushButton("Load")
        self.load.setProperty("kind", "primary")
        self.load.setAccessibleName("Load the selected model")
        self.load.clicked.connect(model.load)
        self.unload = QPushButton("Unload")
        self.unload.setAccessibleName("Unload the model")
        self.unload.clicked.connect(model.unload)
        self._state = LineLabel(role="muted")
        self._failure = Banner("error", "Why the model did not load")
        self._bar = QProgressBar()
        self._bar.setAccessibleName("Progress of loading")
        self._bar.setTextVisible(False)
        self._fill()
        model.selection_changed.connect(self._show_options)
        model.selection_changed.connect(self._show_state)
        model.estimate_changed.connect(self._show_estimate)
        model.state_changed.connect(self._show_state)
        self._show_options()
        self._show_estimate()
        self._show_state()

    def _spin(self, name: str, about: str, bounds: tuple[int, int, int]) -> QSpinBox:
        spin = QSpinBox()
        spin.setRange(bounds[0], bounds[1])
        spin.setSingleStep(bounds[2])
        spin.setGroupSeparatorShown(True)
        spin.setKeyboardTracking(False)
        spin.setAccelerated(True)
        spin.setAlignment(Qt.AlignmentFlag.AlignRight)
        spin.setAccessibleName(name)
        spin.setAccessibleDescription(about)
        spin.setToolTip(about)
        spin.setFixedWidth(172)
        # Without its arrows the style lets the text touch the border.
        spin.lineEdit().setTextMargins(0, 0, 8, 0)
        spin.valueChanged.connect(self._take_options)
        return spin

    def _fill(self) -> None:
        form = QGridLayout()
        form.setHorizontalSpacing(SPACE.m)
        form.setVerticalSpacing(SPACE.s)
        for row, (label, spin) in enumerate(
            (
                ("Context", self.context),
                ("Pool", self.pool),
                ("Lanes", self.lanes),
                ("Threads", self.threads),
            )
        ):
            text = make_label(label)
            text.setBuddy(spin)
            text.setToolTip(spin.toolTip())
            form.addWidget(text, row, 0)
            form.addWidget(spin, row, 1)
        form.setRowStretch(4, 1)
        self._middle = QWidget()
        middle = QHBoxLayout(self._middle)
        middle.setContentsMargins(0, 0, 0, 0)
        middle.setSpacing(SPACE.xl)
        middle.addLayout(form)
        middle.addWidget(self._fit, 1)
        middle.addStretch()
        bottom = QHBoxLayout()
        bottom.setSpacing(SPACE.s)
        bottom.addWidget(self.load)
        bottom.addWidget(self.unload)
        bottom.addWidget(self._state, 1)
        self.box.addWidget(make_label("Load with", role="heading"))
        self.box.addWidget(self._middle)
        self.box.addWidget(self._failure)
        self.box.addLayout(bottom)
        # Keeps its place while nothing loads, so that the page does not jump.
        policy = self._bar.sizePolicy()
        policy.setRetainSizeWhenHidden(True)
        self._bar.setSizePolicy(policy)
        self.box.addWidget(self._bar)

    def _show_options(self) -> None:
        entry = self._model.selected
        options = self._model.options
        trained = entry.summary.context_tokens if entry and entry.summary else 0
        self._middle.setVisible(entry is not None and entry.can_load)
        values = (
            (self.context, options.context_tokens or 0),
            (self.pool, options.pool_tokens or 0),
            (self.lanes, options.n_lanes),
            (self.threads, options.n_threads or 0),
        )
        for spin, value in values:
            with QSignalBlocker(spin):
                if spin is self.context:
                    spin.setMaximum(trained or MAX_TOKENS)
                spin.setValue(value)

    def _take_options(self) -> None:
        self._model.set_options(
            dataclasses.replace(
                self._model.options,
                context_tokens=self.context.value(),
                pool_tokens=self.pool.value() or None,
                n_lanes=self.lanes.value(),
                n_threads=self.threads.value() or None,
            )
        )

    def _show_estimate(self) -> None:
        estimate = self._model.estimate
        self._fit.set_estimate(estimate)
        if estimate is not None:
            cells = count_text(estimate.pool_tokens)
            shown = "automatic" if self._model.options.pool_tokens else f"automatic ({cells})"
            self.pool.setSpecialValueText(shown)
        self.load.setEnabled(self._model.can_load)

    def _show_state(self) -> None:
        model = self._model
        is_loading = model.state == "loading"
        self.load.setEnabled(model.can_load)
        self.unload.setEnabled(model.can_unload)
        entry = model.selected
        is_again = entry is not None and model.state == "ready" and entry.path == model.loaded_path
        self.load.setText("Load again" if is_again else "Load")
        self.unload.setText("Stop loading" if is_loading else "Unload")
        self.unload.setAccessibleName("Stop loading" if is_loading else "Unload the model")
        self._failure.say(model.state_text if model.has_failed else "")
        self._state.setText("" if model.has_failed else model.state_text)
        self._state.setAccessibleName(f"State: {model.state_text}")
        self._bar.setVisible(is_loading)
        part = model.progress
        if not is_loading:
            self._bar.setRange(0, 1000)
            self._bar.setValue(0)
        elif part is None:
            self._bar.setRange(0, 0)
        else:
            self._bar.setRange(0, 1000)
            self._bar.setValue(round(1000 * part))
