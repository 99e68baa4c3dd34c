"""Which known conversation a prompt goes on from: pure functions over token ids.

What is done with the answer (rewinding, sharing chunks, copying cells) is the scheduler's.

    session   a b c d e f          prompt   a b c d x y z
              ^^^^^^^ n_common = 4
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.memory.chunks import PoolShape

MIN_COPIED_CELLS = 32
"""A started chunk is copied from this many common cells on; fewer are read again instead."""

_BLOCK = 4096
"""Ids compared at once: a difference early in two long conversations is found early."""


class Use(enum.Enum):
    """What happens to the session a prompt goes on from."""

    CONTINUE = "continue"
    """It is rewound to the common prefix and goes on with the prompt."""
    FORK = "fork"
    """It stays as it is; a new session takes over the prefix."""
    NEW = "new"
    """Nothing is known of the prompt."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class KnownTokens:
    """One session, as far as the choice needs it.

    Attributes:
        number: identifies the session; smaller is older.
        key: the client's name of the conversation, or "".
        tokens: i32[n_tokens], ids whose K/V is known.
        is_idle: whether no request runs in it, so that it may be rewound.
        last_used: counts up with every request that ends; the larger was used later.
        stops: positions it can be taken up at, ascending; None = any (no recurrent state).
    """

    number: int
    key: str
    tokens: npt.NDArray[np.int32]
    is_idle: bool
    last_used: int
    stops: tuple[int, ...] | None = None

    def usable_for(self, prompt_ids: npt.NDArray[np.int32]) -> int:
        """How long a start of a prompt is known here and can be taken up.

        With stops it leaves the prompt's last token to compute; without, it may be all of it.
        """
        n_common = common_prefix(prompt_ids, self.tokens)
        if self.stops is None:
            return n_common
        n_most = min(n_common, len(prompt_ids) - 1)
        return max((stop for stop in self.stops if stop <= n_most), default=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """Where a prompt goes on from.

    Attributes:
        use: rewind, fork, or start with nothing.
        number: the session, None if `use` is NEW.
        n_reused: prompt tokens that need no reading; always less than the prompt has.
    """

    use: Use
    number: int | None = None
    n_reused: int = 0


def common_prefix(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> int:
    """Length of the longest common prefix of two id arrays.

    Args:
        a: i32[n].
        b: i32[m].

    Returns:
        The number of leading ids that are equal.
    """
    n = min(len(a), len(b))
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        differs = a[start:stop] != b[start:stop]
        if differs.any():
            return start + int(differs.argmax())
    return n


def reusable_by_fork(n_common: int, shape: PoolShape, *, is_exact: bool = False) -> int:
    """Cells a new session can take over from one with `n_common` common tokens.

    Whole chunks are shared; the started one behind them is worth a copy from
    `MIN_COPIED_CELLS` on.

    Args:
        n_common: common tokens.
        shape: sizes of the pool.
        is_exact: the new session can be taken up after `n_common` tokens only: all or nothing.
    """
    if is_exact:
        return n_common if n_common >= MIN_COPIED_CELLS else 0
    n_started = n_common % shape.chunk_cells
    return n_common if n_started >= MIN_COPIED_CELLS else n_common - n_started


def choose_session(
    prompt_ids: npt.NDArray[np.int32],
    sessions: Iterable[KnownTokens],
    *,
    key: str,
    shape: PoolShape,
) -> Choice:
    """Choose the session a prompt goes on from.

    In this order:
     1. an idle session of the request's own key, if it shares anything at all;
     2. the idle session with the longest common prefix, if the prompt continues it or shares at
        least half of it, and no other key owns it;
     3. a fork of the session, busy or idle, whose prefix saves most reading, if that is more
        than 2 saves;
     4. nothing.
    Among equals the one used last wins, then the older one. Without a pool there are no forks.
    Where sessions can be taken up at some positions only, a prefix counts up to the last of them.

    Args:
        prompt_ids: i32[n_prompt], at least one.
        sessions: every session there is.
        key: the client's name of the conversation, or "".
        shape: sizes of the pool.

    Returns:
        The choice; at least the last prompt token is always left to compute.
    """
    n_limit = len(prompt_ids) - 1
    shared = [(session, session.usable_for(prompt_ids)) for session in sessions]
    ranked = sorted(
        ((session, n_common) for session, n_common in shared if n_common > 0),
        key=lambda pair: (-pair[1], -pair[0].last_used, pair[0].number),
    )
    if key:
        for session, n_common in ranked:
            if session.is_idle and session.key == key:
                return Choice(
                    use=Use.CONTINUE, number=session.number, n_reused=min(n_common, n_limit)
                )
    kept = Choice(use=Use.NEW)
    for session, n_common in ranked:
        if session.is_idle and session.key in ("", key):
            if 2 * n_common >= len(session.tokens):
                n_reused = min(n_common, n_limit)
                kept = Choice(use=Use.CONTINUE, number=session.number, n_reused=n_reused)
            break
    if shape.is_pooled and ranked:
        source, n_common = ranked[0]
        is_exact = source.stops is not None
        n_reused = reusable_by_fork(min(n_common, n_limit), shape, is_exact=is_exact)
        if n_reused > kept.n_reused:
            return Choice(use=Use.FORK, number=source.number, n_reused=n_reused)
    return kept
