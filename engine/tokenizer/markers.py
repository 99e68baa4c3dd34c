"""Finding special tokens in text: pieces of prompts and the pattern that finds their markers.

Which tokens are special is left to `engine.tokenizer.vocabulary`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a prompt.

    Attributes:
        text: the true text.
        is_markup: whether markers in it, such as `<|im_end|>`, become control tokens. A marker
            that is not wholly inside markup is ordinary text.
    """

    text: str
    is_markup: bool


class Marker(NamedTuple):
    """A special token found in a text, from `start` to one past `stop`."""

    start: int
    stop: int
    text: str


class MarkerFinder:
    """Finds the special tokens of a vocabulary, the longest one where several begin.

    Attributes:
        control_texts: texts that are tokens in markup only.
        open_texts: texts that are tokens wherever they stand (type USER_DEFINED).
    """

    def __init__(self, control_texts: Iterable[str], open_texts: Iterable[str]) -> None:
        self.control_texts = frozenset(text for text in control_texts if text)
        self.open_texts = frozenset(text for text in open_texts if text) - self.control_texts
        self._all = compile_texts(self.control_texts | self.open_texts)
        self._open = compile_texts(self.open_texts)

    def find(self, text: str, markup: Sequence[tuple[int, int]]) -> Iterator[Marker]:
        """Yield the special tokens of a text from left to right.

        Args:
            text: the whole text.
            markup: ranges (start, stop) of it that are markup, in order, apart from each other.
        """
        if not markup:
            if self._open is not None:
                for match in self._open.finditer(text):
                    yield Marker(match.start(), match.end(), match[0])
            return
        if self._all is None:
            return
        at, range_index = 0, 0
        while (found := self._all.search(text, at)) is not None:
            match = found
            start, stop = match.span()
            while range_index < len(markup) and markup[range_index][1] <= start:
                range_index += 1
            is_inside = (
                range_index < len(markup)
                and markup[range_index][0] <= start
                and stop <= markup[range_index][1]
            )
            if match[0] in self.control_texts and not is_inside:
                shorter = None if self._open is None else self._open.match(text, start)
                if shorter is None:
                    at = start + 1
                    continue
                match = shorter
            yield Marker(start, match.end(), match[0])
            at = match.end()


class _Tree:
    """Texts by their letters.

    Attributes:
        is_end: whether a text ends here.
        below: next letter -> the rest.
    """

    def __init__(self) -> None:
        self.is_end = False
        self.below: dict[str, _Tree] = {}

    def pattern(self) -> str:
        """Return the regular expression of what follows, longer texts first."""
        chain, node = "", self
        while len(node.below) == 1 and not node.is_end:
            ((char, node),) = node.below.items()
            chain += re.escape(char)
        branches = [re.escape(char) + tree.pattern() for char, tree in node.below.items()]
        if not branches:
            return chain
        return f"{chain}(?:{'|'.join(branches)})" + ("?" if node.is_end else "")


def compile_texts(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Return a pattern for any of the texts, the longest first; None for none.

    Shared beginnings are shared in the pattern too, so thousands of markers cost little.
    """
    tree = _Tree()
    for text in texts:
        node = tree
        for char in text:
            node = node.below.setdefault(char, _Tree())
        node.is_end = True
    return re.compile(tree.pattern()) if tree.below else None
