"""The rail at the left edge: one button a page, and the choice of light or dark."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QSize, Qt, Signal
from PySide6.QtGui import QAction, QActionGroup
from PySide6.QtWidgets import QButtonGroup, QMenu, QToolButton, QVBoxLayout, QWidget

from strata_desktop.views.icons import IconButton, icon
from strata_desktop.views.theme import SPACE, Theme, ThemeMode, colors

RAIL_PX = 76
PAGES = ("chat", "memory", "models", "server")
MODE_WORDS = {
    ThemeMode.SYSTEM: "Follow the system",
    ThemeMode.LIGHT: "Light",
    ThemeMode.DARK: "Dark",
}


class Navigation(QWidget):
    """The pages' buttons.

    Signals:
        page_chosen: a page ("chat", "memory", "models", "server").
        mode_chosen: a ThemeMode.
    """

    page_chosen = Signal(str)
    mode_chosen = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "rail")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedWidth(RAIL_PX)
        self.setAccessibleName("Pages")
        self._group = QButtonGroup(self)
        self._group.setExclusive(True)
        self._buttons: dict[str, QToolButton] = {}
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE.s, SPACE.m, SPACE.s + 1, SPACE.s)
        layout.setSpacing(SPACE.xs)
        for number, page in enumerate(PAGES, 1):
            button = QToolButton()
            button.setProperty("kind", "rail")
            button.setText(page.capitalize())
            button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextUnderIcon)
            button.setIconSize(QSize(22, 22))
            button.setCheckable(True)
            button.setFixedSize(QSize(RAIL_PX - 2 * SPACE.s - 1, 56))
            button.setAccessibleName(page.capitalize())
            button.setToolTip(f"{page.capitalize()} (Ctrl+{number})")
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
            button.clicked.connect(lambda _=False, p=page: self.page_chosen.emit(p))
            self._group.addButton(button)
            self._buttons[page] = button
            layout.addWidget(button)
        layout.addStretch()
        layout.addWidget(self._build_mode(theme), 0, Qt.AlignmentFlag.AlignHCenter)
        self._tint()

    def show_page(self, page: str) -> None:
        """Mark a page as shown."""
        self._buttons[page].setChecked(True)
        self._tint()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "_buttons"):
            self._tint()

    def _tint(self) -> None:
        shades = colors(self)
        for page, button in self._buttons.items():
            color = shades.accent if button.isChecked() else shades.text_muted
            button.setIcon(icon(page, color, side_px=22))

    def _build_mode(self, theme: Theme) -> IconButton:
        button = IconButton("moon", "Light or dark", side_px=18)
        menu = QMenu(button)
        choices = QActionGroup(menu)
        for mode, words in MODE_WORDS.items():
            action = QAction(words, menu, checkable=True)
            action.setChecked(mode is theme.mode)
            action.triggered.connect(lambda _=False, m=mode: self.mode_chosen.emit(m))
            choices.addAction(action)
            menu.addAction(action)
        button.setMenu(menu)
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        return button
