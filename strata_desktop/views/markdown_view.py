"""A message's Markdown as widgets: one a block, changed only where the text changed."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QSize, Qt, QUrl
from PySide6.QtGui import (
    QDesktopServices,
    QResizeEvent,
    QTextBlockFormat,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QTextBrowser, QVBoxLayout, QWidget

from strata_desktop.views.code_view import CodeView
from strata_desktop.views.markdown_blocks import (
    OPENABLE,
    Block,
    BlockParser,
    CodeBlock,
    QuoteBlock,
    TextBlock,
)
from strata_desktop.views.theme import SPACE, TYPE, Colors, colors, mono_font

INDENT_PX = 28
LINE_PERCENT = 130
MAX_MEASURED = 400
LEAD_PX = 4
"""Space above a block of text: the line height puts all of its own below the lines."""


def rich_css(c: Colors, *, text: str = "") -> str:
    """Return the style of rich text."""
    mono = mono_font().family()
    return f"""
body, p, li, td, th {{ color: {text or c.text}; }}
p, li {{ line-height: 145%; margin-top: 0; margin-bottom: 4px; }}
p.h1 {{ font-size: 21px; font-weight: 600; margin-top: 6px; line-height: 120%; }}
p.h2 {{ font-size: 18px; font-weight: 600; margin-top: 6px; line-height: 120%; }}
p.h3 {{ font-size: 16px; font-weight: 600; margin-top: 4px; line-height: 120%; }}
p.h4, p.h5, p.h6 {{ font-weight: 600; margin-top: 4px; line-height: 120%; }}
a {{ color: {c.accent}; text-decoration: none; }}
code {{ font-family: "{mono}"; font-size: 13px; background-color: {c.sunken}; }}
pre {{ font-family: "{mono}"; font-size: 13px; background-color: {c.code};
    white-space: pre-wrap; }}
table {{ border-collapse: collapse; border-color: {c.border}; margin-top: 2px;
    margin-bottom: 6px; }}
th {{ background-color: {c.sunken}; font-weight: 600; }}
td, th {{ padding: 6px 10px; border: 1px solid {c.border}; }}
"""


class TextView(QTextBrowser):
    """Selectable text, as high as it needs to be, without bars of its own."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._wanted_px = 0
        self.setProperty("kind", "bare")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setOpenLinks(False)
        self.setUndoRedoEnabled(False)
        self.setAccessibleName("Text")
        self.viewport().setAutoFillBackground(False)
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(INDENT_PX)
        font = self.font()
        font.setPixelSize(TYPE.reading)
        self.setFont(font)
        self.anchorClicked.connect(open_link)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)

    def show_plain(self, text: str) -> None:
        """Show text as it was typed; the widget then asks for the width of its longest line."""
        if text == self.toPlainText() and self._wanted_px:
            return
        self.setPlainText(text)
        spacing = QTextBlockFormat()
        spacing.setLineHeight(
            LINE_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value
        )
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.mergeBlockFormat(spacing)
        metrics = self.fontMetrics()
        lines = text.splitlines() or [""]
        # Tabs and rounding: a little more than the sum of the letters.
        self._wanted_px = 4 + max(
            metrics.horizontalAdvance(line[:MAX_MEASURED].expandtabs(8)) for line in lines
        )
        self.updateGeometry()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fit the height to the new width."""
        super().resizeEvent(event)
        self._fit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave the wheel to the page."""
        event.ignore()

    def sizeHint(self) -> QSize:
        """Ask for the width of plain text, else for none of its own."""
        return QSize(self._wanted_px or 120, self.height())

    def minimumSizeHint(self) -> QSize:
        """Be as narrow as need be."""
        return QSize(20, 10)

    def _fit(self) -> None:
        height = math.ceil(self.document().size().height()) + self.viewportMargins().top()
        if height != self.height():
            self.setFixedHeight(max(height, 1))


def open_link(url: QUrl) -> None:
    """Open a web or mail address; nothing else (no files, no scripts)."""
    if url.toString().startswith(OPENABLE):
        QDesktopServices.openUrl(url)


class _TextBlockView(TextView):
    def __init__(self, *, is_muted: bool = False) -> None:
        super().__init__()
        self._html = ""
        self._is_muted = is_muted
        self.setViewportMargins(0, LEAD_PX, 0, 0)

    def show_block(self, block: TextBlock) -> None:
        if block.html != self._html:
            self._html = block.html
            self._lay_out()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "_html"):
            self._lay_out()

    def _lay_out(self) -> None:
        shades = colors(self)
        css = rich_css(shades, text=shades.text_muted if self._is_muted else "")
        self.document().setDefaultStyleSheet(css)
        self.setHtml(self._html)


class MarkdownView(QWidget):
    """Markdown text.

    Attributes:
        n_changed: widgets changed by the last update (what streaming costs).
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.n_changed = 0
        self._parser = BlockParser()
        self._blocks = _BlockColumn(self)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._blocks)

    def set_text(self, text: str, *, is_final: bool = True) -> None:
        """Show a text; one that grows costs only its last block."""
        blocks = self._parser.update(text, is_final=is_final)
        self.n_changed = self._blocks.show_blocks(blocks, is_final=is_final)


class _BlockColumn(QWidget):
    """Blocks below each other."""

    def __init__(self, parent: QWidget | None = None, *, is_muted: bool = False) -> None:
        super().__init__(parent)
        self._is_muted = is_muted
        self._blocks: list[Block] = []
        self._is_final = True
        self._views: list[QWidget] = []
        self._rows: list[QWidget] = []
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(SPACE.s)

    def show_blocks(self, blocks: list[Block], *, is_final: bool) -> int:
        """Show blocks; return how many widgets had to change."""
        n_changed = 0
        for number, block in enumerate(blocks):
            old = self._blocks[number] if number < len(self._blocks) else None
            if old == block and is_final == self._is_final:
                continue
            if old is None or type(old) is not type(block) or old.indent != block.indent:
                self._put(number, block)
            elif old == block and isinstance(block, TextBlock):
                continue
            _fill(self._views[number], block, is_final=is_final)
            n_changed += 1
        for row in self._rows[len(blocks) :]:
            self._remove(row)
        del self._rows[len(blocks) :], self._views[len(blocks) :]
        self._blocks, self._is_final = list(blocks), is_final
        return n_changed

    def _put(self, number: int, block: Block) -> None:
        view = _make(block, is_muted=self._is_muted)
        row = view
        if block.indent:
            row = QWidget()
            inner = QVBoxLayout(row)
            inner.setContentsMargins(block.indent * INDENT_PX, 0, 0, 0)
            inner.addWidget(view)
        if number < len(self._rows):
            self._remove(self._rows[number])
            self._rows[number], self._views[number] = row, view
        else:
            self._rows.append(row)
            self._views.append(view)
        self._column.insertWidget(number, row)

    def _remove(self, row: QWidget) -> None:
        self._column.removeWidget(row)
        row.hide()
        row.deleteLater()


def _make(block: Block, *, is_muted: bool) -> QWidget:
    if isinstance(block, CodeBlock):
        return CodeView()
    if isinstance(block, TextBlock):
        return _TextBlockView(is_muted=is_muted)
    frame = QFrame()
    if isinstance(block, QuoteBlock):
        frame.setProperty("role", "quote")
        inner = QVBoxLayout(frame)
        inner.setContentsMargins(SPACE.m, 2, 0, 2)
        inner.addWidget(_BlockColumn(is_muted=True))
    else:
        frame.setProperty("role", "divider")
    return frame


def _fill(view: QWidget, block: Block, *, is_final: bool) -> None:
    if isinstance(view, CodeView) and isinstance(block, CodeBlock):
        view.set_code(block.code, block.language, is_final=is_final)
    elif isinstance(view, _TextBlockView) and isinstance(block, TextBlock):
        view.show_block(block)
    elif isinstance(block, QuoteBlock):
        column = view.findChild(_BlockColumn)
        if column is not None:
            column.show_blocks(list(block.blocks), is_final=is_final)
