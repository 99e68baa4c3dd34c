"""A code block: language, copy button, coloured text that scrolls sideways inside itself."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QSize, Qt, QTimer
from PySide6.QtGui import (
    QColor,
    QGuiApplication,
    QSyntaxHighlighter,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPlainTextEdit, QVBoxLayout, QWidget

from strata_desktop.views.code_colors import LineSpans, token_colors, token_spans
from strata_desktop.views.icons import IconButton
from strata_desktop.views.theme import colors, mono_font

COPIED_MS = 1500
MAX_LIVE_CHARS = 20_000
"""While it is still being written, a longer block is coloured only at its end."""


class _Painter(QSyntaxHighlighter):
    """Applies spans that were found for the whole text at once."""

    def __init__(self, document: QTextDocument) -> None:
        super().__init__(document)
        self._lines: list[LineSpans] = []
        self._formats: dict[str, QTextCharFormat] = {}

    def set_dark(self, *, is_dark: bool) -> None:
        self._formats = {}
        for kind, (color, is_italic) in token_colors(is_dark=is_dark).items():
            made = QTextCharFormat()
            made.setForeground(QColor(color))
            made.setFontItalic(is_italic)
            self._formats[kind] = made
        self.rehighlight()

    def set_lines(self, lines: list[LineSpans]) -> None:
        old, self._lines = self._lines, lines
        for number, spans in enumerate(lines):
            if number >= len(old) or old[number] != spans:
                self.rehighlightBlock(self.document().findBlockByNumber(number))

    def highlightBlock(self, text: str) -> None:
        number = self.currentBlock().blockNumber()
        if number < len(self._lines):
            for start, length, kind in self._lines[number]:
                self.setFormat(start, length, self._formats[kind])


class CodeText(QPlainTextEdit):
    """The code itself: as high as its lines, scrolls sideways only."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("kind", "bare")
        self.setReadOnly(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setWordWrapMode(QTextOption.WrapMode.NoWrap)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setFont(mono_font())
        self.setTabStopDistance(4 * self.fontMetrics().horizontalAdvance(" "))
        self.document().setDocumentMargin(0)
        self.viewport().setAutoFillBackground(False)
        self.viewport().setCursor(Qt.CursorShape.IBeamCursor)

    def fit(self) -> None:
        """Take the height of all lines."""
        # As laid out: lines with letters of other fonts are higher than the font's own spacing.
        last = self.blockBoundingGeometry(self.document().lastBlock())
        text_px = last.translated(self.contentOffset()).bottom()
        # Room for the bar always: a bar that comes while the code is written would make it jump.
        height = math.ceil(text_px) + 14
        if height != self.height():
            self.setFixedHeight(height)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave vertical turns to the page."""
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            super().wheelEvent(event)
        else:
            event.ignore()

    def sizeHint(self) -> QSize:
        """Ask for no width of its own."""
        return QSize(120, self.height())

    def minimumSizeHint(self) -> QSize:
        """Be as narrow as need be."""
        return QSize(60, 20)


class CodeView(QFrame):
    """A code block with its header."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "code")
        self._language = QLabel()
        self._language.setProperty("role", "caption")
        self._copy = IconButton("copy", "Copy code", side_px=16)
        self._copy.clicked.connect(self.copy)
        self._text = CodeText()
        self._painter = _Painter(self._text.document())
        self._painter.set_dark(is_dark=colors(self).is_dark)
        self._code = ""
        self._shown_language = ""
        self._is_painted = False
        header = QHBoxLayout()
        header.setContentsMargins(14, 4, 6, 0)
        header.addWidget(self._language)
        header.addStretch()
        header.addWidget(self._copy)
        body = QVBoxLayout()
        body.setContentsMargins(14, 2, 14, 2)
        body.addWidget(self._text)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(header)
        layout.addLayout(body)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._show_copy)

    @property
    def code(self) -> str:
        """The text shown."""
        return self._code

    def set_code(self, code: str, language: str, *, is_final: bool = True) -> None:
        """Show code; text that only grows is appended, not laid out anew."""
        is_same = code == self._code and language == self._shown_language
        if is_same and (self._is_painted or not is_final):
            return
        if code.startswith(self._code) and self._code:
            cursor = QTextCursor(self._text.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(code[len(self._code) :])
        else:
            self._text.setPlainText(code)
        self._code, self._shown_language = code, language
        self._language.setText(language or "text")
        self._text.setAccessibleName(f"Code, {language}" if language else "Code")
        self._copy.set_label(f"Copy {language or 'text'} code")
        self._is_painted = is_final or len(code) <= MAX_LIVE_CHARS
        if self._is_painted:
            self._painter.set_lines(token_spans(code, language))
        self._text.fit()

    def copy(self) -> None:
        """Put the code on the clipboard."""
        QGuiApplication.clipboard().setText(self._code)
        self._copy.set_icon("check")
        self._timer.start(COPIED_MS)

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "_painter"):
            self._painter.set_dark(is_dark=colors(self).is_dark)

    def _show_copy(self) -> None:
        self._copy.set_icon("copy")
