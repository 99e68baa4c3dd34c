"""Which parts of a program get which colour: Pygments finds them, a few quiet colours show them."""

from __future__ import annotations

from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Token
from pygments.util import ClassNotFound

LineSpans = tuple[tuple[int, int, str], ...]
"""Start, length and kind of each coloured part of a line (in UTF-16 units, as Qt counts)."""

_KINDS = (
    (Comment, "comment"),
    (String, "string"),
    (Number, "number"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (Name.Function, "function"),
    (Name.Class, "class"),
    (Name.Tag, "keyword"),
    (Name.Attribute, "function"),
    (Name.Decorator, "class"),
    (Name.Builtin, "builtin"),
    (Name.Exception, "class"),
    (Name.Constant, "number"),
    (Token.Generic.Inserted, "string"),
    (Token.Generic.Deleted, "number"),
    (Token.Generic.Heading, "function"),
)

_LIGHT = {
    "comment": ("#667079", True),
    "string": ("#23703f", False),
    "number": ("#9a4a08", False),
    "keyword": ("#7a3a9c", False),
    "function": ("#1e5fa8", False),
    "class": ("#0f6e84", False),
    "builtin": ("#0f6e84", False),
}

_DARK = {
    "comment": ("#8a949d", True),
    "string": ("#8fce9b", False),
    "number": ("#e6a86c", False),
    "keyword": ("#cfa3ea", False),
    "function": ("#86b9f0", False),
    "class": ("#6fd0e2", False),
    "builtin": ("#6fd0e2", False),
}


def token_colors(*, is_dark: bool) -> dict[str, tuple[str, bool]]:
    """Return kind -> (colour, whether italic)."""
    return _DARK if is_dark else _LIGHT


def token_spans(code: str, language: str) -> list[LineSpans]:
    """Return the coloured parts of each line; none if the language is not known."""
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False) if language else None
    except ClassNotFound:
        lexer = None
    if lexer is None:
        return [() for _ in code.split("\n")]
    lines: list[LineSpans] = []
    spans: list[tuple[int, int, str]] = []
    column = 0
    for kind_of, text in lexer.get_tokens(code):
        kind = next((name for group, name in _KINDS if kind_of in group), "")
        for number, piece in enumerate(text.split("\n")):
            if number:
                lines.append(tuple(spans))
                spans, column = [], 0
            length = len(piece.encode("utf-16-le")) // 2
            if kind and length:
                spans.append((column, length, kind))
            column += length
    lines.append(tuple(spans))
    return lines
