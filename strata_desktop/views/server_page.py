"""The server page: where it is, how to use it, what it did, what it cannot do yet."""

from __future__ import annotations

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.viewmodels.server import ServerModel
from strata_desktop.views.memory_card import Card, Columns, LineLabel, make_label
from strata_desktop.views.meter_paint import tabular
from strata_desktop.views.theme import SPACE, TYPE, mono_font

NARROW_PX = 760
COPIED_MS = 1500
N_SNIPPETS = 3


class CopyLine(QWidget):
    """A line to select from, and a button that copies all of it."""

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.field = QLineEdit()
        self.field.setReadOnly(True)
        self.field.setFont(mono_font(TYPE.body))
        self.button = QPushButton("Copy")
        self.button.setFixedWidth(84)
        self.button.clicked.connect(self._copy)
        self._back = QTimer(self)
        self._back.setSingleShot(True)
        self._back.setInterval(COPIED_MS)
        self._back.timeout.connect(lambda: self.button.setText("Copy"))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACE.s)
        row.addWidget(self.field, 1)
        row.addWidget(self.button)
        self.rename(name)

    def rename(self, name: str) -> None:
        """Say what the line is, for people who cannot see it."""
        self.field.setAccessibleName(name)
        self.button.setAccessibleName(f"Copy: {name}")
        self.button.setToolTip(f"Copy: {name}")

    def set_text(self, text: str, *, gap: str) -> None:
        """Show a text to copy, or why there is none."""
        if self.field.text() != text:
            self.field.setText(text)
            self.field.setCursorPosition(0)
        self.field.setPlaceholderText(gap)
        self.button.setEnabled(bool(text))

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(self.field.text())
        self.button.setText("Copied")
        self._back.start()


class AddressCard(Card):
    """Address, state, facts."""

    def __init__(self, model: ServerModel, parent: QWidget | None = None) -> None:
        super().__init__("Server", parent)
        self._model = model
        self.address = CopyLine("Address of the server")
        self._state = LineLabel(role="muted")
        self._note = make_label(role="warning")
        self._note.setWordWrap(True)
        self._values: list[tuple[QLabel, LineLabel]] = []
        grid = QGridLayout()
        grid.setHorizontalSpacing(SPACE.m)
        grid.setVerticalSpacing(2)
        for place in range(len(model.facts)):
            row, column = divmod(place, 2)
            label, value = make_label(role="caption"), LineLabel(role="")
            value.setFont(tabular(value.font(), height_px=TYPE.body))
            grid.addWidget(label, row, 2 * column)
            grid.addWidget(value, row, 2 * column + 1)
            self._values.append((label, value))
        grid.setColumnStretch(1, 1)
        grid.setColumnStretch(3, 1)
        self.box.addWidget(make_label("Server", role="heading"))
        for part in (self.address, self._state, self._note):
            self.box.addWidget(part)
        self.box.addLayout(grid)
        model.changed.connect(self._refresh)
        self._refresh()

    def _refresh(self) -> None:
        model = self._model
        self.address.set_text(model.address, gap="not known yet")
        self._state.setText(model.state_text)
        role = "success" if model.is_ready else "muted"
        if self._state.property("role") != role:
            self._state.setProperty("role", role)
            self._state.style().unpolish(self._state)
            self._state.style().polish(self._state)
        self._state.setAccessibleName(f"State: {model.state_text}")
        self._note.setText(model.note)
        self._note.setVisible(bool(model.note))
        for (label, value), (name, text) in zip(self._values, model.facts, strict=True):
            label.setText(name)
            value.setText(text)
            value.setAccessibleName(f"{name}: {text}")


class UseCard(Card):
    """Lines to copy into editors and terminals."""

    def __init__(self, model: ServerModel, parent: QWidget | None = None) -> None:
        super().__init__("Use it from other programs", parent)
        self._model = model
        self.lines: list[tuple[QLabel, CopyLine, QLabel]] = []
        self.box.addWidget(make_label("Use it from other programs", role="heading"))
        for _ in range(N_SNIPPETS):
            part = (make_label(role="strong"), CopyLine("Line to copy"), make_label(role="caption"))
            part[2].setWordWrap(True)
            for widget in part:
                self.box.addWidget(widget)
            self.lines.append(part)
        model.changed.connect(self._refresh)
        self._refresh()

    def _refresh(self) -> None:
        snippets = self._model.snippets
        for place, (title, line, hint) in enumerate(self.lines):
            if place >= len(snippets):
                line.set_text("", gap="The address is not known yet.")
                continue
            snippet = snippets[place]
            title.setText(snippet.title)
            line.rename(snippet.title)
            line.set_text(snippet.text, gap="")
            hint.setText(snippet.hint)


class CountsCard(Card):
    """What the server did since the model was loaded."""

    def __init__(self, model: ServerModel, parent: QWidget | None = None) -> None:
        super().__init__("Requests since the model was loaded", parent)
        self._model = model
        self._values: list[QLabel] = []
        grid = QGridLayout()
        grid.setVerticalSpacing(3)
        for row, count in enumerate(model.counts):
            label, value = make_label(count.label, role="muted"), make_label()
            value.setFont(tabular(value.font()))
            value.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
            label.setToolTip(count.explanation)
            value.setToolTip(count.explanation)
            grid.addWidget(label, row, 0)
            grid.addWidget(value, row, 1)
            self._values.append(value)
        grid.setColumnStretch(0, 1)
        self.box.addWidget(make_label("Since the model was loaded", role="heading"))
        self.box.addLayout(grid)
        model.changed.connect(self._refresh)
        self._refresh()

    def _refresh(self) -> None:
        for value, count in zip(self._values, self._model.counts, strict=True):
            if value.text() != count.value:
                value.setText(count.value)
                value.setAccessibleName(f"{count.label}: {count.value}")


class NotYetCard(Card):
    """What people may look for and not find."""

    def __init__(self, model: ServerModel, parent: QWidget | None = None) -> None:
        super().__init__("Not there yet", parent)
        self.box.setSpacing(2)
        self.box.addWidget(make_label("Not there yet", role="heading"))
        self.box.addSpacing(SPACE.xs)
        for what, instead in model.not_yet:
            self.box.addWidget(make_label(what, role="strong"))
            text = make_label(instead, role="muted")
            text.setWordWrap(True)
            self.box.addWidget(text)
            self.box.addSpacing(SPACE.xs)


class ServerPage(QScrollArea):
    """Everything about the server on one page."""

    def __init__(self, model: ServerModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "page")
        self.setAccessibleName("Server")
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.address = AddressCard(model)
        self.use = UseCard(model)
        page = QWidget()
        page.setProperty("role", "page")
        left, right = QVBoxLayout(), QVBoxLayout()
        for column, cards in (
            (left, (self.address, self.use)),
            (right, (CountsCard(model), NotYetCard(model))),
        ):
            column.setSpacing(SPACE.m)
            for card in cards:
                column.addWidget(card)
            column.addStretch(1)
        self._columns = Columns()
        self._columns.addLayout(left, 5)
        self._columns.addLayout(right, 3)
        box = QVBoxLayout(page)
        box.setContentsMargins(SPACE.l, SPACE.l, SPACE.l, SPACE.l)
        box.addLayout(self._columns)
        self.setWidget(page)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the columns one below the other in a narrow window."""
        self._columns.stack(is_stacked=event.size().width() < NARROW_PX)
        super().resizeEvent(event)
