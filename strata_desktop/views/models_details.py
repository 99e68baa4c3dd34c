"""What the selected file holds, before it is loaded."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QVBoxLayout, QWidget

from strata_desktop.viewmodels.models import ModelsModel
from strata_desktop.viewmodels.models_list import model_facts
from strata_desktop.views.memory_card import Card, LineLabel, make_label
from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import SPACE, TYPE

N_FACTS = 11
N_COLUMNS = 2


class Banner(QFrame):
    """A sentence on a coloured ground; hidden while there is nothing to say."""

    def __init__(self, role: str, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", f"banner-{role}")
        self.setAccessibleName(name)
        self._text = make_label()
        self._text.setWordWrap(True)
        self._text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._text.setAccessibleName(name)
        box = QVBoxLayout(self)
        box.setContentsMargins(SPACE.m, SPACE.s, SPACE.m, SPACE.s)
        box.addWidget(self._text)
        self.say("")

    def say(self, text: str) -> None:
        """Show a sentence, "" = nothing."""
        self._text.setText(text)
        self.setAccessibleDescription(text)
        self.setVisible(bool(text))


class DetailsCard(Card):
    """Name, path, facts in two columns, and why it cannot be loaded if so."""

    def __init__(self, model: ModelsModel, parent: QWidget | None = None) -> None:
        super().__init__("The selected model", parent)
        self._model = model
        self._name = LineLabel(role="heading")
        font = tabular(self._name.font(), height_px=TYPE.heading, is_strong=True)
        self._name.setFont(font)
        self._path = LineLabel()
        self._problem = Banner("warning", "Why this model cannot be loaded")
        self._warnings = Banner("info", "About the loaded model")
        self._cells: list[tuple[QLabel, LineLabel]] = []
        grid = QGridLayout()
        grid.setHorizontalSpacing(SPACE.m)
        grid.setVerticalSpacing(4)
        n_rows = -(-N_FACTS // N_COLUMNS)
        for number in range(N_FACTS):
            column, row = divmod(number, n_rows)
            label = make_label(role="caption")
            value = LineLabel(role="")
            value.setFont(tabular(value.font(), height_px=TYPE.body))
            grid.addWidget(label, row, 2 * column)
            grid.addWidget(value, row, 2 * column + 1)
            self._cells.append((label, value))
        for column in range(N_COLUMNS):
            grid.setColumnStretch(2 * column + 1, 1)
        self._facts = QWidget()
        self._facts.setLayout(grid)
        grid.setContentsMargins(0, 0, 0, 0)
        for part in (self._name, self._path, self._problem, self._warnings, self._facts):
            self.box.addWidget(part)
        model.selection_changed.connect(self._refresh)
        model.state_changed.connect(self._show_warnings)
        self._refresh()

    def _refresh(self) -> None:
        entry = self._model.selected
        self._name.setText("Nothing selected" if entry is None else entry.name)
        self._path.setText("" if entry is None else str(entry.path))
        self._problem.say("" if entry is None else entry.problem)
        facts = () if entry is None or entry.summary is None else model_facts(entry.summary)
        self._facts.setVisible(bool(facts))
        for (label, value), fact in zip(self._cells, facts, strict=False):
            label.setText(fact.label)
            value.setText(fact.value)
            if fact.explanation:
                value.setToolTip(fact.explanation)
                label.setToolTip(fact.explanation)
            value.setAccessibleName(f"{fact.label}: {fact.value}")
        self._show_warnings()

    def _show_warnings(self) -> None:
        entry = self._model.selected
        is_loaded = entry is not None and entry.path == self._model.loaded_path
        self._warnings.say("\n".join(self._model.warnings) if is_loaded else "")
