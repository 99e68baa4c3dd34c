"""Keeps markers that people write apart from markers that a template writes.

Before rendering, the first letter of each marker in message text is replaced by a stand-in that
occurs nowhere else; after rendering, the stand-ins show which markers are only text, wherever
the template has put, cut or trimmed them. Rendering is left to `engine.tokenizer.template`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from engine.tokenizer.markers import Segment, compile_texts

_STAND_INS = (*range(0xFDD0, 0xFDF0), *range(0x10F000, 0x10FFFE))
"""Code points no text should have: noncharacters first, then private ones."""


class Quoting:
    """Stand-ins for one conversation.

    Attributes:
        is_needed: whether any message text has a letter that a marker begins with.
    """

    def __init__(self, control_texts: Iterable[str], values: object) -> None:
        """Choose stand-ins.

        Args:
            control_texts: markers of all control tokens.
            values: the messages, tools and variables, nested as they are.
        """
        self._control_texts = sorted(text for text in control_texts if text)
        letters: set[str] = set()
        for text in _texts(values):
            letters.update(text)
        firsts = sorted({text[0] for text in self._control_texts})
        free = (chr(code) for code in _STAND_INS if chr(code) not in letters)
        self._stand_in = dict(zip(firsts, free, strict=False))
        self.is_needed = not letters.isdisjoint(firsts)
        self._table = str.maketrans(self._stand_in)
        self._back = str.maketrans({stand: first for first, stand in self._stand_in.items()})
        self._pattern = compile_texts(self._control_texts)
        self._longest = max(map(len, self._control_texts), default=0)
        self._found = re.compile(f"([{''.join(self._stand_in.values())}]+)") if firsts else None

    def quote_all(self, text: str) -> str:
        """Replace every letter that a marker can begin with.

        No marker can then come from the text in any way, but a template that looks for `<` in
        messages does not find it.
        """
        return text.translate(self._table)

    def quote_markers(self, text: str) -> str:
        """Replace the first letter of whole markers, and of one that the text's end begins."""
        if self._pattern is None:
            return text
        starts: list[int] = []
        at = 0
        while (match := self._pattern.search(text, at)) is not None:
            starts.append(match.start())
            at = match.start() + 1
        for start in range(max(at, len(text) - self._longest + 1), len(text)):
            ending = text[start:]
            if any(marker.startswith(ending) for marker in self._control_texts):
                starts.append(start)
        if not starts:
            return text
        letters = list(text)
        for start in starts:
            letters[start] = self._stand_in.get(letters[start], letters[start])
        return "".join(letters)

    def unquote(self, text: str) -> str:
        """Return the true text."""
        return text.translate(self._back)

    def segments(self, text: str) -> tuple[Segment, ...]:
        """Return a rendered text in pieces: what was quoted is not markup."""
        if self._found is None:
            return (Segment(text, is_markup=True),)
        return tuple(
            Segment(self.unquote(piece), is_markup=index % 2 == 0)
            for index, piece in enumerate(self._found.split(text))
            if piece
        )


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return the value with every text in it changed, keys that are no plain names too."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {
            key if not isinstance(key, str) or key.isidentifier() else change(key): map_texts(
                item, change
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]
    return value


def _texts(value: object) -> Iterator[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(item.keys())
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)
