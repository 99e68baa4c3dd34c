"""A session: the token state of one conversation, which outlives its requests.

Where its cells lie is `engine.scheduler.rows`; what it is used for is the scheduler's.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_FIRST_CAPACITY = 256


class Session:
    """The tokens of a conversation whose K/V is known, and the row its chunks are in.

    Attributes:
        number: counts up in the order of making.
        key: the client's own name of the conversation, or "".
        row: lane or parking row.
        is_busy: whether a request runs in it.
        is_live: whether the recurrent state of its lane stands after exactly its tokens; means
            nothing for models without one.
        last_used: counts up with every request that ends, over all sessions.
        idle_since_s: when its last request ended.
        tokens_per_s: decode speed of its last request.
    """

    def __init__(self, number: int, *, key: str, row: int) -> None:
        self.number = number
        self.key = key
        self.row = row
        self.is_busy = False
        self.is_live = False
        self.last_used = 0
        self.idle_since_s = 0.0
        self.tokens_per_s = 0.0
        self._ids = np.empty(_FIRST_CAPACITY, np.int32)
        self._n_tokens = 0

    @property
    def id(self) -> str:
        """Name shown outside."""
        return f"s{self.number}"

    @property
    def n_tokens(self) -> int:
        """Tokens whose K/V is known; the next cell to write."""
        return self._n_tokens

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        """i32[n_tokens], a view: good until the next `append` or `rewind`."""
        return self._ids[: self._n_tokens]

    def append(self, ids: npt.NDArray[np.int32]) -> None:
        """Note that the K/V of these tokens is known now; the state is not moved by it."""
        n_tokens = self._n_tokens + len(ids)
        if n_tokens > len(self._ids):
            grown = np.empty(max(n_tokens, 2 * len(self._ids)), np.int32)
            grown[: self._n_tokens] = self.tokens
            self._ids = grown
        self._ids[self._n_tokens : n_tokens] = ids
        self._n_tokens = n_tokens

    def rewind(self, n_tokens: int) -> None:
        """Forget all but the first tokens.

        Raises:
            ValueError: it does not know that many.
        """
        if not 0 <= n_tokens <= self._n_tokens:
            raise ValueError(
                f"session {self.id}: rewind to {n_tokens}, but it knows {self._n_tokens}"
            )
        self.is_live = self.is_live and n_tokens == self._n_tokens
        self._n_tokens = n_tokens
