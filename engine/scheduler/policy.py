"""Whose prompt is read next and who gives way: pure functions over how much is left to read.

a short read overtakes a long one        at most `max_yields` times
a waiting prompt takes a reader's lane   if it is less than half of what is left there
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar


class Read(Protocol):
    """A prompt to read, as far as the policy looks at it."""

    @property
    def number(self) -> int:
        """Order of arrival."""

    @property
    def n_left(self) -> int:
        """Tokens still to read."""

    @property
    def n_yields(self) -> int:
        """How often it gave way."""


R = TypeVar("R", bound=Read)


def choose_reader(readers: Sequence[R], *, last: R | None, max_yields: int) -> R | None:
    """Choose whose span is read in the next step.

    The shortest rest first, the earlier arrival among equals; but nobody overtakes a read that has
    given way `max_yields` times, except who has done so already and is still at it.

    Args:
        readers: prompts that have a lane.
        last: whose turn it was in the step before.
        max_yields: how often one read gives way.

    Returns:
        The next one, None if there is none.
    """
    allowed = _not_overtaking(readers, readers, max_yields=max_yields)
    return min(
        [read for read in readers if read is last or read in allowed],
        key=lambda read: (read.n_left, read.number),
        default=None,
    )


def overtaken(readers: Sequence[R], chosen: R, *, last: R | None) -> list[R]:
    """Those that gave way when `chosen` was taken: earlier arrivals, if the turn changed.

    Args:
        readers: prompts that have a lane.
        chosen: whose turn it is now.
        last: whose turn it was in the step before.

    Returns:
        Reads whose `n_yields` goes up by one.
    """
    if chosen is last:
        return []
    return [read for read in readers if read.number < chosen.number]


def lane_yields(
    waiting: Sequence[R], readers: Sequence[R], *, max_yields: int
) -> Iterator[tuple[R, R]]:
    """Waiting prompts that should get a reader's lane, each with that reader, best first.

    Args:
        waiting: prompts without a lane, the earliest first.
        readers: prompts that have a lane; no lane is empty or idle.
        max_yields: how often one read gives way.

    Yields:
        (waiting, reader): of those that may give way the reader has most left to read, and more
            than twice as much as the waiting prompt.
    """
    ready = [reader for reader in readers if reader.n_yields < max_yields]
    longest = max(ready, key=lambda read: (read.n_left, read.number), default=None)
    if longest is None:
        return
    for one in _not_overtaking(waiting, [*readers, *waiting], max_yields=max_yields):
        if 2 * one.n_left < longest.n_left:
            yield one, longest


def _not_overtaking(reads: Sequence[R], others: Sequence[R], *, max_yields: int) -> list[R]:
    """Those of `reads` that arrived before every one of `others` that may not give way again."""
    fixed = min((read.number for read in others if read.n_yields >= max_yields), default=None)
    return [read for read in reads if fixed is None or read.number <= fixed]
