"""A text box that grows with its text: Enter sends, Shift+Enter begins a line, Tab leaves."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QMimeData, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QTextEdit, QWidget

from strata_desktop.views.theme import TYPE


class PromptEdit(QTextEdit):
    """Plain text, one line high at first.

    Signals:
        sent: Enter was pressed.
        escaped: Esc was pressed.
        focus_changed: whether it has the focus now.
    """

    sent = Signal()
    escaped = Signal()
    focus_changed = Signal(bool)

    def __init__(self, name: str, parent: QWidget | None = None, *, max_lines: int = 10) -> None:
        super().__init__(parent)
        self._max_lines = max_lines
        self.setProperty("kind", "bare")
        self.setAccessibleName(name)
        self.setAcceptRichText(False)
        self.setTabChangesFocus(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.viewport().setAutoFillBackground(False)
        font = self.font()
        font.setPixelSize(TYPE.reading)
        self.setFont(font)
        self.document().setDocumentMargin(2)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._fit()

    def event(self, event: QEvent) -> bool:
        """Keep Esc for itself: a shortcut of the page would take it first."""
        is_override = event.type() == QEvent.Type.ShortcutOverride
        if is_override and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            event.accept()
            return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Send on Enter, unless an input method or a modifier is at work."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            if not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier:
                self.sent.emit()
                return
            if event.modifiers() == Qt.KeyboardModifier.ShiftModifier:
                # Qt would insert a line separator (U+2028); a plain newline is what is meant.
                self.textCursor().insertText("\n")
                self.ensureCursorVisible()
                return
        if event.key() == Qt.Key.Key_Escape:
            self.escaped.emit()
            return
        super().keyPressEvent(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste as plain text."""
        if source.hasText():
            self.textCursor().insertText(source.text())
            self.ensureCursorVisible()

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Tell the frame around it."""
        super().focusInEvent(event)
        self.focus_changed.emit(True)  # noqa: FBT003 - Qt's way

    def focusOutEvent(self, event: QFocusEvent) -> None:
        """Tell the frame around it."""
        super().focusOutEvent(event)
        self.focus_changed.emit(False)  # noqa: FBT003 - Qt's way

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fit the height to the new width."""
        super().resizeEvent(event)
        self._fit()

    def sizeHint(self) -> QSize:
        """Ask for no width of its own."""
        return QSize(200, self.height())

    def minimumSizeHint(self) -> QSize:
        """Be as narrow as need be."""
        return QSize(80, 24)

    def _fit(self) -> None:
        line_px = self.fontMetrics().lineSpacing()
        margins_px = 2 * int(self.document().documentMargin())
        highest = line_px * self._max_lines + margins_px
        wanted = math.ceil(self.document().size().height())
        height = max(line_px + margins_px, min(wanted, highest))
        always = Qt.ScrollBarPolicy.ScrollBarAsNeeded
        self.setVerticalScrollBarPolicy(
            always if wanted > highest else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        )
        if height != self.height():
            self.setFixedHeight(height)
