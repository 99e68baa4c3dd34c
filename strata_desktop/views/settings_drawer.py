"""The drawer beside a chat: system prompt and sampling of this conversation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import (
    QDoubleSpinBox,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
    QSlider,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.viewmodels.messages import ChatSettings
from strata_desktop.views.icons import IconButton
from strata_desktop.views.theme import SPACE

DRAWER_PX = 300


class SettingsDrawer(QWidget):
    """Edits the settings of the conversation shown.

    Signals:
        changed: the new ChatSettings.
        closed: the drawer is to go.
    """

    changed = Signal(object)
    closed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "drawer")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedWidth(DRAWER_PX)
        self._settings = ChatSettings()
        self._is_showing = False
        self._fields: dict[str, _Amount] = {}
        title = QLabel("This chat")
        title.setProperty("role", "heading")
        close = IconButton("close", "Close chat settings", side_px=16)
        close.clicked.connect(self.closed)
        head = QHBoxLayout()
        head.setContentsMargins(SPACE.l, SPACE.m, SPACE.s, SPACE.s)
        head.addWidget(title)
        head.addStretch()
        head.addWidget(close)
        self._system = QPlainTextEdit()
        self._system.setAccessibleName("System prompt")
        self._system.setPlaceholderText("Optional: how the model should behave in this chat")
        self._system.setTabChangesFocus(True)
        self._system.setFixedHeight(120)
        self._system.textChanged.connect(self._on_system)
        body = QWidget()
        column = QVBoxLayout(body)
        column.setContentsMargins(SPACE.l, 0, SPACE.m, SPACE.l)
        column.setSpacing(SPACE.xs)
        column.addWidget(_caption("System prompt", self._system))
        column.addWidget(self._system)
        column.addSpacing(SPACE.m)
        for spec in AMOUNTS:
            amount = _Amount(spec, self._change)
            self._fields[spec.name] = amount
            column.addWidget(amount)
        self._max_tokens = _Whole("Longest answer, tokens", "As long as fits", self._on_max_tokens)
        self._seed = _Whole("Seed", "A new one each time", self._on_seed)
        for whole in (self._max_tokens, self._seed):
            column.addWidget(whole)
        column.addSpacing(SPACE.m)
        self._reset = QPushButton("Back to defaults")
        self._reset.setAccessibleName("Set sampling back to defaults")
        self._reset.clicked.connect(self._on_reset)
        column.addWidget(self._reset, 0, Qt.AlignmentFlag.AlignLeft)
        column.addStretch()
        area = QScrollArea()
        area.setWidgetResizable(True)
        area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.viewport().setAutoFillBackground(False)
        body.setAutoFillBackground(False)
        area.setWidget(body)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(1, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addWidget(area, 1)

    def show_settings(self, settings: ChatSettings) -> None:
        """Show the settings of a conversation; emits nothing."""
        self._is_showing = True
        self._settings = settings
        if self._system.toPlainText() != settings.system_prompt:
            self._system.setPlainText(settings.system_prompt)
        for name, amount in self._fields.items():
            amount.show_value(getattr(settings, name))
        self._max_tokens.show_value(settings.max_tokens)
        self._seed.show_value(settings.seed)
        self._is_showing = False

    def focus(self) -> None:
        """Begin to edit."""
        self._system.setFocus()

    def _change(self, name: str, value: Any) -> None:
        if self._is_showing:
            return
        self._settings = dataclasses.replace(self._settings, **{name: value})
        self.changed.emit(self._settings)

    def _on_system(self) -> None:
        self._change("system_prompt", self._system.toPlainText())

    def _on_max_tokens(self, value: int | None) -> None:
        self._change("max_tokens", value or None)

    def _on_seed(self, value: int | None) -> None:
        self._change("seed", value)

    def _on_reset(self) -> None:
        settings = ChatSettings(system_prompt=self._settings.system_prompt)
        self.show_settings(settings)
        self.changed.emit(settings)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class AmountSpec:
    """One sampling number.

    Attributes:
        name: field of ChatSettings.
        label, hint: for the person.
        lowest, highest, step: range.
        decimals: 0 for a whole number.
    """

    name: str
    label: str
    hint: str
    lowest: float
    highest: float
    step: float
    decimals: int = 2


AMOUNTS = (
    AmountSpec(
        name="temperature",
        label="Temperature",
        hint="0 = always the likeliest word; higher = more varied",
        lowest=0,
        highest=2,
        step=0.05,
    ),
    AmountSpec(
        name="top_p",
        label="Top-p",
        hint="Keep the likeliest words up to this probability; 1 = all",
        lowest=0.01,
        highest=1,
        step=0.01,
    ),
    AmountSpec(
        name="top_k",
        label="Top-k",
        hint="Keep this many likeliest words; 0 = all",
        lowest=0,
        highest=200,
        step=1,
        decimals=0,
    ),
    AmountSpec(
        name="min_p",
        label="Min-p",
        hint="Drop words less likely than this share of the likeliest; 0 = none",
        lowest=0,
        highest=1,
        step=0.01,
    ),
    AmountSpec(
        name="repetition_penalty",
        label="Repetition penalty",
        hint="1 = none; higher = fewer repeated words",
        lowest=1,
        highest=2,
        step=0.01,
    ),
)


class _Number(QDoubleSpinBox):
    """Leaves the wheel to the drawer: scrolling past must change nothing."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class _Slider(QSlider):
    """Leaves the wheel to the drawer."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class _Amount(QWidget):
    """Label, number and slider of one sampling setting."""

    def __init__(self, spec: AmountSpec, change: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._spec = spec
        self._change = change
        self._box = _Number()
        self._box.setDecimals(spec.decimals)
        self._box.setRange(spec.lowest, spec.highest)
        self._box.setSingleStep(spec.step)
        self._box.setFixedWidth(72)
        # Without its arrows the style lets the text touch the border.
        self._box.lineEdit().setTextMargins(0, 0, 6, 0)
        self._box.setAlignment(Qt.AlignmentFlag.AlignRight)
        self._box.setAccessibleName(spec.label)
        self._box.setAccessibleDescription(spec.hint)
        self._box.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self._slider = _Slider(Qt.Orientation.Horizontal)
        self._slider.setRange(round(spec.lowest / spec.step), round(spec.highest / spec.step))
        self._slider.setAccessibleName(f"{spec.label} slider")
        label = _caption(spec.label, self._box)
        self.setToolTip(spec.hint)
        layout = QGridLayout(self)
        layout.setContentsMargins(0, 0, 0, SPACE.xs)
        layout.setVerticalSpacing(2)
        layout.addWidget(label, 0, 0)
        layout.addWidget(self._box, 0, 1)
        layout.addWidget(self._slider, 1, 0, 1, 2)
        layout.setColumnStretch(0, 1)
        self._box.valueChanged.connect(self._on_box)
        self._slider.valueChanged.connect(self._on_slider)

    def show_value(self, value: float) -> None:
        self._box.setValue(value)

    def _on_box(self, value: float) -> None:
        self._slider.blockSignals(True)  # noqa: FBT003 - Qt's way
        self._slider.setValue(round(value / self._spec.step))
        self._slider.blockSignals(False)  # noqa: FBT003 - Qt's way
        shown = round(value, self._spec.decimals)
        self._change(self._spec.name, shown if self._spec.decimals else int(shown))

    def _on_slider(self, step: int) -> None:
        self._box.setValue(step * self._spec.step)


class _Whole(QWidget):
    """Label and an optional whole number; empty = not set."""

    def __init__(self, label: str, hint: str, change: Callable[[int | None], None]) -> None:
        super().__init__()
        self._change = change
        self._edit = QLineEdit()
        self._edit.setPlaceholderText(hint)
        self._edit.setAccessibleName(label)
        self._edit.setMaxLength(9)
        self._edit.textChanged.connect(self._on_text)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, SPACE.s)
        layout.setSpacing(SPACE.xs)
        layout.addWidget(_caption(label, self._edit))
        layout.addWidget(self._edit)

    def show_value(self, value: int | None) -> None:
        text = "" if value is None else str(value)
        if self._edit.text() != text:
            self._edit.setText(text)

    def _on_text(self, text: str) -> None:
        digits = "".join(c for c in text if c.isascii() and c.isdigit())
        if digits != text:
            self._edit.setText(digits)
            return
        self._change(int(digits) if digits else None)


def _caption(text: str, buddy: QWidget) -> QLabel:
    label = QLabel(text)
    label.setProperty("role", "muted")
    label.setBuddy(buddy)
    return label
