"""Design tokens (colours, spacing, radii, type scale) and the switch between light and dark.

Widgets ask `colors(widget)` for the colours that are valid now and repaint on
`QEvent.Type.PaletteChange`. The style sheet itself is in `strata_desktop.views.stylesheet`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication, QWidget

from strata_desktop.views.stylesheet import stylesheet


class ThemeMode(enum.Enum):
    """What the person chose; SYSTEM follows the desktop."""

    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True, kw_only=True, slots=True)
class Colors:
    """Every colour the window uses, as #rrggbb.

    Attributes:
        is_dark: whether this is the dark set.
        window: behind rail and lists.
        surface: behind reading areas and pages.
        raised: cards, menus, toasts.
        sunken: inputs, empty meter tracks.
        hover, pressed: of flat controls.
        border, border_strong: hairlines; outlines of inputs.
        text, text_muted, text_faint: body, secondary, tertiary; all readable (4.5:1 or more).
        accent, accent_hover, accent_pressed: the one action colour.
        on_accent: text on `accent`.
        accent_soft: selected rows, quiet highlights.
        danger, danger_soft, warning, warning_soft, success, success_soft: states.
        selection: selected text.
        bubble: behind a person's own messages.
        code: behind code.
    """

    is_dark: bool
    window: str
    surface: str
    raised: str
    sunken: str
    hover: str
    pressed: str
    border: str
    border_strong: str
    text: str
    text_muted: str
    text_faint: str
    accent: str
    accent_hover: str
    accent_pressed: str
    on_accent: str
    accent_soft: str
    danger: str
    danger_soft: str
    warning: str
    warning_soft: str
    success: str
    success_soft: str
    selection: str
    bubble: str
    code: str


LIGHT: Final = Colors(
    is_dark=False,
    window="#f5f6f7",
    surface="#ffffff",
    raised="#ffffff",
    sunken="#eef0f2",
    hover="#e8ebee",
    pressed="#dde2e6",
    border="#e0e4e8",
    border_strong="#bcc4cb",
    text="#1b2127",
    text_muted="#545e68",
    text_faint="#67717b",
    accent="#0f6e84",
    accent_hover="#0b5c6f",
    accent_pressed="#084b5b",
    on_accent="#ffffff",
    accent_soft="#e1f0f3",
    danger="#b3261e",
    danger_soft="#fcecea",
    warning="#855600",
    warning_soft="#fdf3dc",
    success="#1c7443",
    success_soft="#e4f4ea",
    selection="#b9dfe8",
    bubble="#edf3f5",
    code="#f5f6f8",
)

DARK: Final = Colors(
    is_dark=True,
    window="#15181b",
    surface="#1b1f23",
    raised="#242a2f",
    sunken="#121518",
    hover="#272d32",
    pressed="#31393f",
    border="#2c3339",
    border_strong="#4a555e",
    text="#e6e9ec",
    text_muted="#a5afb8",
    text_faint="#8f99a3",
    accent="#58bdd2",
    accent_hover="#79cbdc",
    accent_pressed="#40a8be",
    on_accent="#06242b",
    accent_soft="#19363e",
    danger="#f28b82",
    danger_soft="#3b2322",
    warning="#e8b75a",
    warning_soft="#37301d",
    success="#6cc890",
    success_soft="#1c3426",
    selection="#23505c",
    bubble="#243137",
    code="#14171a",
)


@dataclass(frozen=True, slots=True)
class Spacing:
    """Distances in device-independent pixels."""

    xs: int = 4
    s: int = 8
    m: int = 12
    l: int = 16  # noqa: E741
    xl: int = 24
    xxl: int = 32


@dataclass(frozen=True, slots=True)
class Radius:
    """Corner radii in device-independent pixels."""

    s: int = 4
    m: int = 8
    l: int = 12  # noqa: E741


@dataclass(frozen=True, slots=True)
class TypeScale:
    """Font heights in device-independent pixels."""

    caption: int = 12
    body: int = 13
    reading: int = 15
    heading: int = 16
    title: int = 20
    display: int = 26


SPACE: Final = Spacing()
RADIUS: Final = Radius()
TYPE: Final = TypeScale()

SESSION_COLORS: Final = (
    "#3b82c4",
    "#e08a1e",
    "#2a9d78",
    "#c4529a",
    "#c9a816",
    "#5ab4dc",
    "#c8502d",
    "#7a6bc8",
    "#8aa63a",
    "#a0705a",
    "#d88a9e",
    "#7b8794",
)
"""Twelve colours that neighbours in the sequence keep apart under red-green and blue-yellow
blindness (they differ in lightness too), readable on light and dark alike."""


def session_color(index: int) -> QColor:
    """Return the colour of the session with running number `index` (any integer)."""
    return QColor(SESSION_COLORS[index % len(SESSION_COLORS)])


def colors(widget: QWidget) -> Colors:
    """Return the colours valid for `widget` now.

    The application's palette is asked, not the widget's own: a style sheet's transparent
    background makes the latter black.
    """
    window = QApplication.palette(widget).color(QPalette.ColorRole.Window)
    return DARK if window.lightness() < 128 else LIGHT


def mono_font(height_px: int = TYPE.body) -> QFont:
    """Return the system's fixed-width font at a height in device-independent pixels."""
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont)
    font.setPixelSize(height_px)
    return font


def qt_palette(c: Colors) -> QPalette:
    """Return the Qt palette of a colour set, for what the style sheet does not reach."""
    palette = QPalette()
    role = QPalette.ColorRole
    for target, value in (
        (role.Window, c.window),
        (role.WindowText, c.text),
        (role.Base, c.surface),
        (role.AlternateBase, c.sunken),
        (role.Text, c.text),
        (role.PlaceholderText, c.text_faint),
        (role.Button, c.raised),
        (role.ButtonText, c.text),
        (role.BrightText, c.danger),
        (role.ToolTipBase, c.raised),
        (role.ToolTipText, c.text),
        (role.Highlight, c.selection),
        (role.HighlightedText, c.text),
        (role.Link, c.accent),
        (role.LinkVisited, c.accent),
        (role.Light, c.raised),
        (role.Midlight, c.hover),
        (role.Mid, c.border),
        (role.Dark, c.border_strong),
        (role.Shadow, c.border_strong),
        (role.Accent, c.accent),
    ):
        palette.setColor(target, QColor(value))
    for target in (role.WindowText, role.Text, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, target, QColor(c.text_faint))
    return palette


class Theme(QObject):
    """Applies a colour set to the application and follows the system's choice.

    Attributes:
        mode: what the person chose.

    Signals:
        changed: the colours were exchanged (widgets also get a PaletteChange event).
    """

    changed = Signal()

    def __init__(self, app: QApplication, mode: ThemeMode = ThemeMode.SYSTEM) -> None:
        super().__init__(app)
        self._app = app
        self.mode = mode
        app.setStyle("Fusion")
        font = app.font()
        font.setPixelSize(TYPE.body)
        app.setFont(font)
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._on_system_changed)
        self._apply()

    @property
    def colors(self) -> Colors:
        """The colour set in use."""
        if self.mode is ThemeMode.SYSTEM:
            scheme = QGuiApplication.styleHints().colorScheme()
            return DARK if scheme is Qt.ColorScheme.Dark else LIGHT
        return DARK if self.mode is ThemeMode.DARK else LIGHT

    def set_mode(self, mode: ThemeMode) -> None:
        """Choose light, dark or the system's."""
        if mode is not self.mode:
            self.mode = mode
            self._apply()

    def _on_system_changed(self) -> None:
        if self.mode is ThemeMode.SYSTEM:
            self._apply()

    def _apply(self) -> None:
        self._app.setPalette(qt_palette(self.colors))
        self._app.setStyleSheet(stylesheet(self.colors))
        self.changed.emit()
