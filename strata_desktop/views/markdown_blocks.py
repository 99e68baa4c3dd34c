"""Markdown cut into blocks that each get a widget of their own. It draws nothing.

While an answer streams, only its last top-level block can still change: `BlockParser` keeps the
blocks before it and parses from there on.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

_TASK = re.compile(r"<li>\s*(<p>)?\[([ xX])\] ")
OPENABLE = ("http://", "https://", "mailto:")


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Rich text: a paragraph, heading, list or table, as HTML.

    Attributes:
        html: the body.
        indent: list levels it stands in.
    """

    html: str
    indent: int = 0


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A code block.

    Attributes:
        code: the text, without the last newline.
        language: as written behind the fence, "" if none.
        indent: list levels it stands in.
    """

    code: str
    language: str
    indent: int = 0


@dataclass(frozen=True, slots=True)
class QuoteBlock:
    """A quotation and what is in it."""

    blocks: tuple[Block, ...]
    indent: int = 0


@dataclass(frozen=True, slots=True)
class RuleBlock:
    """A horizontal line."""

    indent: int = 0


Block = TextBlock | CodeBlock | QuoteBlock | RuleBlock


class _Renderer(RendererHTML):
    """HTML for Qt's rich text: no remote images, the odd tag Qt wants."""

    def image(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Show a picture as a link: nothing is fetched without a click."""
        token = tokens[idx]
        label = html.escape(token.content or "image")
        target = html.escape(str(token.attrs.get("src", "")))
        return f'<a href="{target}">[{label}]</a>'

    def s_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Strike out."""
        return "<s>"

    def table_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Begin a table: Qt takes padding and lines from attributes."""
        return '<table cellspacing="0" border="1">'

    def th_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Begin a heading cell: left, unless the text says otherwise (Qt would centre it)."""
        return f'<th align="{_alignment(tokens[idx])}">'

    def td_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Begin a cell; an inline style would cost it its lines."""
        return f'<td align="{_alignment(tokens[idx])}">'

    def heading_open(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Begin a heading as a paragraph of a class: Qt fixes the sizes of its own headings."""
        return f'<p class="{tokens[idx].tag}">'

    def heading_close(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """End a heading."""
        return "</p>"

    def fence(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        """Show code that stands where no widget can (inside a table or the like)."""
        return f"<pre>{html.escape(tokens[idx].content)}</pre>"


def _alignment(cell: Token) -> str:
    return str(cell.attrs.get("style", "text-align:left")).removeprefix("text-align:")


def _parser() -> MarkdownIt:
    made = MarkdownIt("commonmark", {"html": False, "breaks": False}, renderer_cls=_Renderer)
    return made.enable(["table", "strikethrough"])


class BlockParser:
    """Parses a text that grows.

    Attributes:
        blocks: of the text given last.
    """

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self._markdown = _parser()
        self._settled_text = ""
        self._settled: list[Block] = []

    def update(self, text: str, *, is_final: bool = True) -> list[Block]:
        """Parse.

        Args:
            text: the whole text.
            is_final: whether nothing is appended any more; then everything is parsed once more,
                since a link's target may stand below it.

        Returns:
            The blocks, which equal the earlier ones as far as nothing changed.
        """
        if is_final or not text.startswith(self._settled_text):
            self._settled_text, self._settled = "", []
        rest = text[len(self._settled_text) :]
        tree = SyntaxTreeNode(self._markdown.parse(rest))
        tops = list(tree.children)
        if not is_final and len(tops) > 1 and tops[-1].map is not None:
            lines = rest.splitlines(keepends=True)
            settled = "".join(lines[: tops[-1].map[0]])
            # Two line separators differ between the parser and splitlines; trust only a fit.
            if rest.startswith(settled) and "\u2028" not in settled and "\x0b" not in settled:
                for node in tops[:-1]:
                    self._settled += self._blocks_of(node, 0)
                self._settled_text += settled
                tops = tops[-1:]
        self.blocks = list(self._settled)
        for node in tops:
            self.blocks += self._blocks_of(node, 0)
        return self.blocks

    def _blocks_of(self, node: SyntaxTreeNode, indent: int) -> list[Block]:
        if node.type in ("fence", "code_block"):
            language = node.info.split(maxsplit=1)[0] if node.info.strip() else ""
            return [CodeBlock(node.content.removesuffix("\n"), language, indent)]
        if node.type == "hr":
            return [RuleBlock(indent)]
        if node.type == "blockquote":
            inner = [block for child in node.children for block in self._blocks_of(child, 0)]
            return [QuoteBlock(tuple(inner), indent)]
        if node.type in ("bullet_list", "ordered_list") and _holds_code(node):
            return self._list_with_code(node, indent)
        return [TextBlock(self._html(node), indent)]

    def _list_with_code(self, node: SyntaxTreeNode, indent: int) -> list[Block]:
        """Cut a list at its code blocks, so that these get widgets too."""
        number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
        blocks: list[Block] = []
        for item in node.children:
            is_first = True
            for child in item.children:
                if is_first and child.type == "paragraph":
                    tag = "ul" if number is None else f'ol start="{number}"'
                    body = self._html(child)
                    blocks.append(TextBlock(f"<{tag}><li>{body}</li></{tag.split()[0]}>", indent))
                else:
                    blocks += self._blocks_of(child, indent + 1)
                is_first = False
            number = None if number is None else number + 1
        return blocks

    def _html(self, node: SyntaxTreeNode) -> str:
        rendered = self._markdown.renderer.render(
            node.to_tokens(), self._markdown.options, {}
        ).strip()
        return _TASK.sub(lambda m: f"<li>{m[1] or ''}{'☐' if m[2] == ' ' else '☑'} ", rendered)


def _holds_code(node: SyntaxTreeNode) -> bool:
    return any(inner.type in ("fence", "code_block") for inner in node.walk())
