"""The application's style sheet, made from the design tokens.

Widgets choose a look by dynamic property:
    QLabel role:       display, title, heading, muted, caption, mono, danger, warning, success
    QPushButton kind:  primary, ghost, danger, link, fold (none = quiet outline)
    QFrame role:       card, sunken, divider, banner-error, banner-warning, banner-info, toast
    any QWidget role:  page (reading surface), rail, sidebar
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strata_desktop.views.theme import Colors


def stylesheet(c: Colors) -> str:
    """Return the whole style sheet for one colour set."""
    return "\n".join((_frames(c), _text(c), _buttons(c), _inputs(c), _lists(c), _bars(c)))


def _frames(c: Colors) -> str:
    return f"""
QMainWindow, QDialog {{ background: {c.window}; }}
QWidget[role="page"] {{ background: {c.surface}; }}
QWidget[role="rail"] {{ background: {c.window}; border-right: 1px solid {c.border}; }}
QWidget[role="sidebar"] {{ background: {c.window}; border-right: 1px solid {c.border}; }}
QWidget[role="drawer"] {{ background: {c.window}; border-left: 1px solid {c.border}; }}
QFrame[role="card"] {{ background: {c.raised}; border: 1px solid {c.border};
    border-radius: 12px; }}
QFrame[role="sunken"] {{ background: {c.sunken}; border: none; border-radius: 8px; }}
QFrame[role="divider"] {{ background: {c.border}; border: none; max-height: 1px;
    min-height: 1px; }}
QFrame[role="bubble"] {{ background: {c.bubble}; border: none; border-radius: 12px; }}
QFrame[role="composer"] {{ background: {c.raised}; border: 1px solid {c.border_strong};
    border-radius: 14px; }}
QFrame[role="composer"][active="true"] {{ border-color: {c.accent}; }}
QFrame[role="code"] {{ background: {c.code}; border: 1px solid {c.border}; border-radius: 8px; }}
QFrame[role="quote"] {{ background: transparent; border: none;
    border-left: 3px solid {c.border_strong}; }}
QFrame[role="banner-error"] {{ background: {c.danger_soft}; border: none; border-radius: 8px; }}
QFrame[role="banner-warning"] {{ background: {c.warning_soft}; border: none;
    border-radius: 8px; }}
QFrame[role="banner-info"] {{ background: {c.accent_soft}; border: none; border-radius: 8px; }}
QFrame[role="toast"] {{ background: {c.raised}; border: 1px solid {c.border_strong};
    border-radius: 10px; }}
QToolTip {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.border_strong};
    padding: 4px 6px; }}
QSplitter::handle {{ background: {c.border}; }}
QScrollArea {{ background: transparent; border: none; }}
"""


def _text(c: Colors) -> str:
    return f"""
QLabel {{ background: transparent; }}
QLabel[role="display"] {{ font-size: 26px; font-weight: 600; }}
QLabel[role="title"] {{ font-size: 20px; font-weight: 600; }}
QLabel[role="heading"] {{ font-size: 16px; font-weight: 600; }}
QLabel[role="strong"] {{ font-weight: 600; }}
QLabel[role="muted"] {{ color: {c.text_muted}; }}
QLabel[role="caption"] {{ color: {c.text_faint}; font-size: 12px; }}
QLabel[role="danger"] {{ color: {c.danger}; }}
QLabel[role="warning"] {{ color: {c.warning}; }}
QLabel[role="success"] {{ color: {c.success}; }}
"""


def _buttons(c: Colors) -> str:
    return f"""
QPushButton {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.border_strong};
    border-radius: 8px; padding: 6px 14px; min-height: 18px; }}
QPushButton:hover {{ background: {c.hover}; }}
QPushButton:pressed {{ background: {c.pressed}; }}
QPushButton:focus {{ border-color: {c.accent}; }}
QPushButton:disabled {{ color: {c.text_faint}; background: {c.window};
    border-color: {c.border}; }}
QPushButton[kind="primary"] {{ background: {c.accent}; color: {c.on_accent};
    border-color: {c.accent}; font-weight: 600; }}
QPushButton[kind="primary"]:hover {{ background: {c.accent_hover};
    border-color: {c.accent_hover}; }}
QPushButton[kind="primary"]:pressed {{ background: {c.accent_pressed}; }}
QPushButton[kind="primary"]:focus {{ border-color: {c.text}; }}
QPushButton[kind="primary"]:disabled {{ background: {c.pressed}; color: {c.text_faint};
    border-color: {c.pressed}; }}
QPushButton[kind="ghost"] {{ background: transparent; border-color: transparent; }}
QPushButton[kind="ghost"]:hover {{ background: {c.hover}; }}
QPushButton[kind="ghost"]:focus {{ border-color: {c.accent}; }}
QPushButton[kind="danger"] {{ color: {c.danger}; }}
QPushButton[kind="link"] {{ background: transparent; border-color: transparent;
    color: {c.accent}; padding: 4px 6px; font-weight: 600; }}
QPushButton[kind="link"]:hover {{ background: {c.hover}; }}
QPushButton[kind="link"]:focus {{ border-color: {c.accent}; }}
QFrame[role^="banner"] QPushButton[kind="link"] {{ padding: 4px 0; border: none;
    border-bottom: 2px solid transparent; border-radius: 0; }}
QFrame[role^="banner"] QPushButton[kind="link"]:hover,
QFrame[role^="banner"] QPushButton[kind="link"]:focus {{ background: transparent;
    border-bottom-color: {c.accent}; }}
QPushButton[kind="fold"] {{ background: transparent; border: 1px solid transparent;
    color: {c.text_muted}; padding: 3px 8px 3px 2px; text-align: left; }}
QPushButton[kind="fold"]:hover {{ color: {c.text}; }}
QPushButton[kind="fold"]:focus {{ border-color: {c.accent}; }}
QPushButton[kind="prompt"] {{ text-align: left; padding: 12px 14px; border-color: {c.border};
    border-radius: 10px; background: {c.surface}; }}
QPushButton[kind="prompt"]:hover {{ background: {c.hover}; border-color: {c.border_strong}; }}
QPushButton[kind="prompt"]:focus {{ border-color: {c.accent}; }}
QToolButton[kind="icon"] {{ background: transparent; border: 1px solid transparent;
    border-radius: 6px; padding: 4px; }}
QToolButton::menu-indicator {{ image: none; width: 0; }}
QToolButton[kind="icon"]:hover {{ background: {c.hover}; }}
QToolButton[kind="icon"]:pressed {{ background: {c.pressed}; }}
QToolButton[kind="icon"]:checked {{ background: {c.accent_soft}; }}
QToolButton[kind="icon"]:focus {{ border-color: {c.accent}; }}
QToolButton[kind="send"] {{ background: {c.accent}; border: 2px solid {c.accent};
    border-radius: 10px; padding: 4px; }}
QToolButton[kind="send"]:hover {{ background: {c.accent_hover}; border-color: {c.accent_hover}; }}
QToolButton[kind="send"]:focus {{ border-color: {c.text}; }}
QToolButton[kind="send"]:disabled {{ background: {c.sunken}; border-color: {c.sunken}; }}
QToolButton[kind="round"] {{ background: {c.raised}; border: 1px solid {c.border_strong};
    border-radius: 17px; padding: 6px; }}
QToolButton[kind="round"]:hover {{ background: {c.hover}; }}
QToolButton[kind="round"]:focus {{ border-color: {c.accent}; }}
QToolButton[kind="rail"] {{ background: transparent; border: 1px solid transparent;
    border-radius: 10px; padding: 7px 2px 5px 2px; font-size: 11px; color: {c.text_muted}; }}
QToolButton[kind="rail"]:hover {{ background: {c.hover}; }}
QToolButton[kind="rail"]:checked {{ background: {c.accent_soft}; color: {c.accent};
    font-weight: 600; }}
QToolButton[kind="rail"]:focus {{ border-color: {c.accent}; }}
QCheckBox, QRadioButton {{ spacing: 8px; background: transparent; padding: 2px; }}
QCheckBox:focus, QRadioButton:focus {{ color: {c.accent}; }}
QCheckBox::indicator {{ width: 16px; height: 16px; border: 1px solid {c.border_strong};
    border-radius: 4px; background: {c.surface}; }}
QCheckBox::indicator:checked {{ background: {c.accent}; border-color: {c.accent}; }}
"""


def _inputs(c: Colors) -> str:
    return f"""
QLineEdit, QPlainTextEdit, QTextEdit, QSpinBox, QDoubleSpinBox, QComboBox {{
    background: {c.surface}; color: {c.text}; border: 1px solid {c.border_strong};
    border-radius: 8px; padding: 5px 8px; selection-background-color: {c.selection};
    selection-color: {c.text}; }}
QLineEdit, QSpinBox, QDoubleSpinBox, QComboBox {{ min-height: 20px; }}
QLineEdit:focus, QPlainTextEdit:focus, QTextEdit:focus, QSpinBox:focus, QDoubleSpinBox:focus,
QComboBox:focus {{ border-color: {c.accent}; }}
QLineEdit:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled, QComboBox:disabled {{
    color: {c.text_faint}; background: {c.window}; border-color: {c.border}; }}
QTextEdit[kind="bare"], QPlainTextEdit[kind="bare"], QTextBrowser[kind="bare"] {{
    background: transparent; border: none; padding: 0; border-radius: 0; }}
QTextBrowser[role="muted"] {{ color: {c.text_muted}; }}
QSpinBox::up-button, QSpinBox::down-button, QDoubleSpinBox::up-button,
QDoubleSpinBox::down-button {{ width: 0; border: none; }}
QComboBox::drop-down {{ border: none; width: 22px; }}
QComboBox QAbstractItemView {{ background: {c.raised}; border: 1px solid {c.border_strong};
    selection-background-color: {c.accent_soft}; selection-color: {c.text}; outline: none; }}
QSlider {{ background: transparent; min-height: 22px; }}
QSlider::groove:horizontal {{ height: 4px; border-radius: 2px; background: {c.pressed}; }}
QSlider::sub-page:horizontal {{ height: 4px; border-radius: 2px; background: {c.accent}; }}
QSlider::handle:horizontal {{ width: 14px; height: 14px; margin: -6px 0; border-radius: 8px;
    background: {c.accent}; border: 1px solid {c.surface}; }}
QSlider::handle:horizontal:focus {{ border: 2px solid {c.text}; margin: -7px -1px; }}
"""


def _lists(c: Colors) -> str:
    return f"""
QListView, QTreeView, QTableView {{ background: transparent; border: none; outline: none;
    color: {c.text}; selection-background-color: {c.accent_soft}; selection-color: {c.text}; }}
QListView::item:selected, QTreeView::item:selected, QTableView::item:selected {{
    background: {c.accent_soft}; color: {c.text}; }}
QHeaderView::section {{ background: transparent; color: {c.text_muted}; border: none;
    border-bottom: 1px solid {c.border}; padding: 6px 8px; font-weight: 600; }}
QTableView {{ gridline-color: {c.border}; }}
QMenu {{ background: {c.raised}; border: 1px solid {c.border_strong}; border-radius: 8px;
    padding: 5px; }}
QMenu::item {{ padding: 6px 22px 6px 12px; border-radius: 5px; color: {c.text}; }}
QMenu::item:selected {{ background: {c.hover}; }}
QMenu::item:disabled {{ color: {c.text_faint}; }}
QMenu::separator {{ height: 1px; background: {c.border}; margin: 5px 8px; }}
"""


def _bars(c: Colors) -> str:
    return f"""
QScrollBar:vertical {{ background: transparent; width: 11px; margin: 0; }}
QScrollBar:horizontal {{ background: transparent; height: 11px; margin: 0; }}
QScrollBar::handle {{ background: {c.border_strong}; border-radius: 3px; }}
QScrollBar::handle:vertical {{ min-height: 32px; margin: 2px 3px 2px 2px; }}
QScrollBar::handle:horizontal {{ min-width: 32px; margin: 2px 2px 3px 2px; }}
QScrollBar::handle:hover {{ background: {c.text_faint}; }}
QScrollBar::handle:disabled {{ background: transparent; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
QProgressBar {{ background: {c.sunken}; border: none; border-radius: 3px; min-height: 6px;
    max-height: 6px; text-align: center; color: transparent; }}
QProgressBar::chunk {{ background: {c.accent}; border-radius: 3px; }}
"""
