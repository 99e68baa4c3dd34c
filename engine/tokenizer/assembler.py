"""From a stream of token ids to text: whole characters only, and cut at stop strings.

A token may hold half a character or half a stop string, so what is not certain yet is held back.
Which ids end an answer is left to `engine.scheduler`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

from engine.tokenizer.tokenizer import Tokenizer


class Detokenizer:
    """Turns ids into text one by one; what it gives together is `Tokenizer.decode` of them all."""

    def __init__(
        self, tokenizer: Tokenizer, *, keep_special: bool = False, is_start: bool = False
    ) -> None:
        """Begin a text.

        Args:
            tokenizer: of the model.
            keep_special: whether control tokens show as their marker.
            is_start: whether the text begins here, so that the space SentencePiece-style
                tokenizers put in front of a text is taken off. An answer continues its prompt,
                where that space belongs to the text.
        """
        self._tokenizer = tokenizer
        self._keep_special = keep_special
        self._drops_space = is_start and tokenizer.adds_space_prefix
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Return the characters that are whole with this token; may be empty."""
        piece = self._tokenizer.token_bytes(token_id, keep_special=self._keep_special)
        return self._cut(self._decoder.decode(piece))

    def flush(self) -> str:
        """Return what is left; bytes that never became a character show as U+FFFD."""
        return self._cut(self._decoder.decode(b"", final=True))

    def _cut(self, text: str) -> str:
        if self._drops_space and text:
            self._drops_space = False
            return text.removeprefix(" ")
        return text


class StopFinder:
    """Cuts text at the first of several stop strings, however the text comes in pieces.

    "First" is the one that is complete first, as that is what a stream can know.

    Attributes:
        matched: the stop string found, None before.
    """

    def __init__(self, stop: Iterable[str]) -> None:
        """Begin a text.

        Args:
            stop: the stop strings; empty ones are dropped.
        """
        self.matched: str | None = None
        self._stop = tuple(dict.fromkeys(text for text in stop if text))
        self._reach = max((len(text) - 1 for text in self._stop), default=0)
        firsts = sorted({text[0] for text in self._stop if len(text) > 1})
        self._first = re.compile(f"[{re.escape(''.join(firsts))}]") if firsts else None
        self._held = ""

    def push(self, text: str) -> str:
        """Return what certainly comes before any stop string; nothing after one was found."""
        if self.matched is not None or not text:
            return ""
        if not self._stop:
            return text
        text = self._held + text
        found = [(text.find(stop), stop) for stop in self._stop]
        ends = [(at + len(stop), at, stop) for at, stop in found if at >= 0]
        if ends:
            _, at, self.matched = min(ends)
            self._held = ""
            return text[:at]
        keep = self._held_from(text)
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """Return what was held back, at the end of the text."""
        text, self._held = self._held, ""
        return text

    def _held_from(self, text: str) -> int:
        """Return where the longest end of the text starts that may become a stop string."""
        if self._first is not None:
            for match in self._first.finditer(text, max(0, len(text) - self._reach)):
                ending = text[match.start() :]
                if any(stop.startswith(ending) for stop in self._stop):
                    return match.start()
        return len(text)


class TextAssembler:
    """The text of one answer: whole characters, cut at the first stop string."""

    def __init__(self, tokenizer: Tokenizer, stop: Iterable[str] = ()) -> None:
        """Begin an answer.

        Args:
            tokenizer: of the model.
            stop: strings that end the answer and are not part of it; empty ones are dropped.
        """
        self._detokenizer = Detokenizer(tokenizer)
        self._finder = StopFinder(stop)

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was found; nothing more will come."""
        return self._finder.matched is not None

    @property
    def matched(self) -> str | None:
        """The stop string that was found, None if none was."""
        return self._finder.matched

    def push(self, token_id: int) -> str:
        """Return the text that became certain with this token; may be empty."""
        return self._finder.push(self._detokenizer.push(token_id))

    def flush(self) -> str:
        """Return what was held back, when no more tokens come."""
        return self._finder.push(self._detokenizer.flush()) + self._finder.flush()
