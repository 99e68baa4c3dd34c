"""Cards of the models to begin with: what each is, and a button that loads it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QWidget

from strata_desktop.viewmodels.starters import Starter
from strata_desktop.views.memory_card import Card, make_label
from strata_desktop.views.theme import SPACE


class StarterCard(Card):
    """One model to begin with.

    Signals:
        chosen: load it (its `pathlib.Path`).
    """

    chosen = Signal(object)

    def __init__(self, starter: Starter, parent: QWidget | None = None) -> None:
        super().__init__(starter.name, parent)
        self.starter = starter
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        origin = make_label(starter.origin, role="caption")
        words = make_label(starter.words, role="muted")
        gap = make_label(starter.gap, role="warning")
        gap.setVisible(bool(starter.gap))
        gap.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        for label in (origin, words, gap):
            label.setWordWrap(True)
        self.button = QPushButton(f"Load {starter.name}")
        self.button.setProperty("kind", "primary")
        self.button.setAccessibleName(f"Load {starter.name}")
        self.button.setAccessibleDescription(f"{starter.words} {starter.gap}".strip())
        self.button.setEnabled(not starter.gap)
        self.button.clicked.connect(lambda: self.chosen.emit(self.starter.path))
        row = QHBoxLayout()
        row.addWidget(self.button)
        row.addStretch(1)
        self.box.addWidget(make_label(starter.name, role="heading"))
        self.box.addWidget(origin)
        self.box.addWidget(words)
        self.box.addWidget(gap)
        self.box.addStretch(1)
        self.box.addLayout(row)


class StarterCards(QWidget):
    """All of them, side by side.

    Signals:
        chosen: load this file (a `pathlib.Path`).
    """

    chosen = Signal(object)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._starters: tuple[Starter, ...] = ()
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(SPACE.m)

    @property
    def cards(self) -> list[StarterCard]:
        """The cards, in their order."""
        return [card for card in self.children() if isinstance(card, StarterCard)]

    def minimumSizeHint(self) -> QSize:
        """Ask for height only: words wrap."""
        return QSize(1, super().minimumSizeHint().height())

    def show_starters(self, starters: Sequence[Starter]) -> None:
        """Make the cards anew where anything about them changed."""
        if tuple(starters) == self._starters:
            return
        self._starters = tuple(starters)
        for card in self.cards:
            self._row.removeWidget(card)
            card.setParent(None)
            card.deleteLater()
        for starter in self._starters:
            card = StarterCard(starter)
            card.chosen.connect(self.chosen)
            self._row.addWidget(card, 1)
