"""What a chat template may use: time, loops and text, and the checks that keep it there.

Applying them to a running template is left to `engine.tokenizer.sandbox`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from jinja2.exceptions import SecurityError

MAX_SOURCE_CHARS = 1_000_000
"""Longest template that is compiled; the longest known ones have about 20,000."""
MAX_PADDING = 10_000
"""Widest field, indent or batch a template may ask for."""
MAX_INT_BITS = 4096
_BANNED_METHODS = frozenset({"translate", "maketrans", "format_map", "to_bytes", "expandtabs"})
_WIDE_FIELD = re.compile(r"\d{5}|%[-+ #0]*\*|%[^%a-zA-Z]*\.\*|\{[^{}]*:[^{}]*\{")


class TemplateLimitError(SecurityError):
    """The template wants more time, text or loops than any honest one needs."""


@dataclass(kw_only=True, slots=True)
class Allowance:
    """What one rendering may still use.

    Attributes:
        n_steps: loop rounds, calls and characters written, together.
        max_chars: longest text or list it may make.
        deadline_s: `time.monotonic()` at which it has to be done.
        now: the time `strftime_now` tells, the same during one rendering.
    """

    n_steps: int
    max_chars: int
    deadline_s: float
    now: datetime

    @classmethod
    def for_input(cls, n_chars: int, *, now: datetime, seconds: float = 10.0) -> Allowance:
        """Return the allowance for a conversation of so many characters."""
        return cls(
            n_steps=1_000_000 + 40 * n_chars,
            max_chars=500_000 + 8 * n_chars,
            deadline_s=time.monotonic() + seconds,
            now=now,
        )

    def spend(self, n_steps: int) -> None:
        """Use some of it.

        Raises:
            TemplateLimitError: nothing is left.
        """
        self.n_steps -= n_steps
        if self.n_steps < 0:
            raise TemplateLimitError("it loops or writes without end")
        if time.monotonic() > self.deadline_s:
            raise TemplateLimitError("it takes too long")

    def check_length(self, n_items: int) -> None:
        """Refuse a text or list that would be too long.

        Raises:
            TemplateLimitError: it would.
        """
        if n_items > self.max_chars:
            raise TemplateLimitError(f"it makes a text or list longer than {self.max_chars}")

    def check_value(self, value: object) -> None:
        """Refuse a value that would be too long when written out.

        Nested lists that hold one another many times are small in memory and endless in writing.

        Raises:
            TemplateLimitError: it would.
        """
        n_chars = 0
        pending = [value]
        while pending:
            item = pending.pop()
            if isinstance(item, str | bytes):
                n_chars += len(item)
            elif isinstance(item, Mapping):
                pending.extend(item.keys())
                pending.extend(item.values())
            elif isinstance(item, list | tuple):
                pending.extend(item)
            n_chars += 1
            if n_chars + len(pending) > self.max_chars:
                self.check_length(n_chars + len(pending))


def check_bits(n_bits: int) -> None:
    """Refuse a number of too many bits."""
    if n_bits > MAX_INT_BITS:
        raise TemplateLimitError("it computes a number of thousands of digits")


def check_product(allowance: Allowance, left: object, right: object) -> None:
    """Refuse `left * right` if it would be huge: repeated text, or a product of large numbers."""
    for many, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(many, str | bytes | list | tuple):
            allowance.check_length(len(many) * times)
    if isinstance(left, int) and isinstance(right, int):
        check_bits(left.bit_length() + right.bit_length())


def check_fields(pattern: str) -> None:
    """Refuse a format whose fields are enormous or have a computed width."""
    if _WIDE_FIELD.search(pattern):
        raise TemplateLimitError("it formats a field of enormous or computed width")


def checked_args(
    allowance: Allowance, owner: object, name: str, args: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Return the arguments for a method of a text or number, if its result cannot be huge."""
    if name in _BANNED_METHODS:
        raise TemplateLimitError(f"it calls {name}(), which no template may")
    if name in ("ljust", "rjust", "center", "zfill"):
        for value in args:
            if isinstance(value, int) and value > MAX_PADDING:
                raise TemplateLimitError(f"it pads a text to {value} characters")
    if isinstance(owner, str):
        if name == "replace" and len(args) >= 2:
            check_replacement(allowance, owner, args[0], args[1])
        if name == "join" and args:
            pieces = list(args[0])
            allowance.check_length(n_joined(owner, pieces))
            return (pieces, *args[1:])
    return args


def check_replacement(allowance: Allowance, text: str, old: object, new: object) -> None:
    """Refuse `text.replace(old, new)` if the result would be too long."""
    if isinstance(old, str) and isinstance(new, str):
        allowance.check_length(len(text) + text.count(old) * max(0, len(new) - len(old)))


def n_joined(separator: str, pieces: Sequence[object]) -> int:
    """Return how many characters the pieces have when joined."""
    n_chars = sum(len(piece) for piece in pieces if isinstance(piece, str | bytes))
    return n_chars + len(separator) * len(pieces)
