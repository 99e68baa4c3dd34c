"""Names for screen readers, Tab order, and nothing clipped at the smallest window."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QApplication,
    QLabel,
    QPushButton,
    QWidget,
)
from pytestqt.qtbot import QtBot

from strata_desktop.viewmodels.chat import ChatModel
from strata_desktop.views.chat_page import ChatPage
from strata_desktop.views.theme import DARK, LIGHT, Colors, Theme, ThemeMode, colors
from strata_desktop.views.trash_dialog import TrashDialog
from tests.desktop.fake_engine import FakeEngine, Reply

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")

POOR_NAMES = {"", "button", "text", "label", "widget"}


def focusable(root: QWidget) -> list[QWidget]:
    return [
        one
        for one in root.findChildren(QWidget)
        if one.isVisible() and one.focusPolicy() != Qt.FocusPolicy.NoFocus
    ]


def full_page(qtbot: QtBot, page: ChatPage, engine: FakeEngine) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text("Text\n\n```python\nx = 1\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
        reply.end("length")

    engine.on_chat = script
    page._model.current.send("A question")
    qtbot.waitUntil(lambda: not page._model.current.is_writing)
    page.set_drawer_open(is_open=True)
    page.resize(1300, 800)
    qtbot.wait(20)


def is_named(widget: QWidget) -> bool:
    name = widget.accessibleName().strip()
    return name.lower() not in POOR_NAMES - {"text"} and "object at" not in name


def inner_parts(widget: QWidget) -> bool:
    """Parts Qt makes itself (a spin box's line edit, a list's viewport) speak for their owner."""
    return (widget.objectName() or "").startswith("qt_")


def test_every_control_has_a_name(qtbot: QtBot, page: ChatPage, engine: FakeEngine) -> None:
    full_page(qtbot, page, engine)
    nameless = [repr(one) for one in focusable(page) if not is_named(one) and not inner_parts(one)]
    assert nameless == []
    assert len(focusable(page)) > 25


def test_welcome_and_trash_have_names(qtbot: QtBot, page: ChatPage) -> None:
    nameless = [repr(one) for one in focusable(page) if not is_named(one) and not inner_parts(one)]
    assert nameless == []
    chat: ChatModel = page._model
    chat.current.send("to delete")
    qtbot.waitUntil(lambda: not chat.current.is_writing)
    chat.delete(chat.current.id)
    dialog = TrashDialog(chat, page)
    qtbot.addWidget(dialog)
    dialog.show()
    named = {one.accessibleName() for one in focusable(dialog)}
    assert named == {"Restore to delete", "Close"}
    restore = next(
        one for one in dialog.findChildren(QPushButton) if one.accessibleName() != "Close"
    )
    qtbot.mouseClick(restore, Qt.MouseButton.LeftButton)
    assert chat.conversations.n_conversations == 1


def test_tab_reaches_every_control_and_comes_round(
    qtbot: QtBot, page: ChatPage, engine: FakeEngine
) -> None:
    full_page(qtbot, page, engine)
    page.activateWindow()
    page.composer.focus()
    qtbot.waitUntil(page.composer.edit.hasFocus)
    seen: list[QWidget] = []
    for _ in range(120):
        focus = QApplication.focusWidget()
        assert focus is not None
        if seen and focus is seen[0]:
            break
        seen.append(focus)
        qtbot.keyClick(focus, Qt.Key.Key_Tab)
    else:
        pytest.fail("Tab does not come round")
    missed = [
        one.accessibleName()
        for one in focusable(page)
        if one.focusPolicy() & Qt.FocusPolicy.TabFocus
        and one.isEnabled()
        and one not in seen
        and not inner_parts(one)
    ]
    assert missed == []


def test_messages_can_be_read(qtbot: QtBot, page: ChatPage, engine: FakeEngine) -> None:
    full_page(qtbot, page, engine)
    question, answer = page.transcript.views
    assert question.accessibleName() == "You"
    assert question.accessibleDescription() == "A question"
    assert answer.accessibleName() == "Answer"
    assert answer.accessibleDescription().startswith("Text")


@pytest.mark.parametrize("has_drawer", [False, True])
@pytest.mark.parametrize("size", [(824, 600), (1844, 1080)])
def test_nothing_is_clipped(
    qtbot: QtBot,
    page: ChatPage,
    engine: FakeEngine,
    size: tuple[int, int],
    has_drawer: bool,
) -> None:
    full_page(qtbot, page, engine)
    page.set_drawer_open(is_open=has_drawer)
    page.resize(*size)
    qtbot.wait(30)
    assert page.minimumSizeHint().width() <= size[0]
    assert page.minimumSizeHint().height() <= size[1]
    clipped = []
    for one in page.findChildren(QWidget):
        parent = one.parentWidget()
        if not one.isVisible() or isinstance(parent, QAbstractScrollArea):
            continue
        if (
            isinstance(one, QAbstractButton | QLabel)
            and one.width() < one.minimumSizeHint().width()
        ):
            clipped.append(f"{one.accessibleName()} {one.width()}")
        corner = one.mapTo(parent, QPoint(0, 0))
        if corner.x() < 0 or corner.x() + one.width() > parent.width():
            clipped.append(f"{one!r} {one.accessibleName()} leaves its parent")
    assert clipped == []


def luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("shades", [LIGHT, DARK], ids=["light", "dark"])
def test_text_is_readable(shades: Colors) -> None:
    for ground in (shades.window, shades.surface, shades.raised):
        for text in (shades.text, shades.text_muted, shades.text_faint, shades.accent):
            assert contrast(text, ground) >= 4.5, (text, ground)
    for text, ground in (
        (shades.on_accent, shades.accent),
        (shades.on_accent, shades.accent_hover),
        (shades.danger, shades.surface),
        (shades.text, shades.danger_soft),
        (shades.text, shades.warning_soft),
        (shades.text, shades.accent_soft),
        (shades.accent, shades.accent_soft),
        (shades.accent, shades.warning_soft),
        (shades.accent, shades.danger_soft),
        (shades.text, shades.bubble),
    ):
        assert contrast(text, ground) >= 4.5, (text, ground)


def test_theme_changes_while_messages_are_shown(
    qtbot: QtBot, page: ChatPage, theme: Theme, engine: FakeEngine
) -> None:
    full_page(qtbot, page, engine)
    assert colors(page) is LIGHT
    theme.set_mode(ThemeMode.DARK)
    assert colors(page) is DARK
    answer = page.transcript.views[1]
    image = answer.grab().toImage()
    assert image.pixelColor(image.width() - 2, 2).lightness() < 80
