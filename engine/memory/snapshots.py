"""Which recurrent states are kept, for whom, and which gives way: rules over numbers alone.

The states themselves are the backend's; when one is saved or loaded is `engine.scheduler.states`'.

    cells of a session  [.................................]   K and V can be taken up anywhere
    its states                  ^           ^    ^        ^   the conversation only here
                         system prompt      |    |       live, in its lane
                                before and after the last message
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from engine.step import SnapshotId

NEAR_TOKENS = 8
"""A state so few tokens before another serves as well: reading them again is cheaper than RAM."""

MOST_A_SESSION = 4
"""Snapshots of one conversation: the system prompt's, and around its last two messages."""

MIN_ROOT_TOKENS = 32
"""A start that two conversations share is worth a snapshot from this many unread tokens on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """A position of a prompt whose state is kept when it is read.

    Attributes:
        n_tokens: tokens before it.
        is_root: whether other conversations are likely to begin the same.
    """

    n_tokens: int
    is_root: bool = False


def plan_marks(
    message_ends: Sequence[int],
    *,
    n_prompt: int,
    n_known: int,
    common: Mark | None = None,
) -> tuple[Mark, ...]:
    """Choose where the read of a prompt stops to keep the state.

    Wanted are the end of the first message (the system prompt), the start of the last one (for
    when it is edited), its end (for when the answer is generated again, or comes back without its
    thoughts), and the start that another conversation shares. The last token is computed in any
    case, so a state just before it serves where no message ends near.

    Args:
        message_ends: positions where messages of the prompt end, ascending; may be empty.
        n_prompt: tokens of the prompt.
        n_known: of those, how many need no reading.
        common: the longest start known from another conversation.

    Returns:
        The marks behind `n_known`, ascending, none within `NEAR_TOKENS` of the one before.
    """
    is_root = dict.fromkeys([*message_ends[-2:], n_prompt - 1], False)
    if len(message_ends) > 1:
        is_root[message_ends[0]] = True
    if common is not None and common.n_tokens - n_known >= MIN_ROOT_TOKENS:
        is_root[common.n_tokens] = is_root.get(common.n_tokens, False) or common.is_root
    marks: list[Mark] = []
    n_last = n_known
    for n_tokens in sorted(is_root):
        if n_last + NEAR_TOKENS <= n_tokens < n_prompt:
            marks.append(Mark(n_tokens=n_tokens, is_root=is_root[n_tokens]))
            n_last = n_tokens
    return tuple(marks)


@dataclass(kw_only=True, slots=True)
class _Kept:
    """A kept state.

    Attributes:
        n_tokens: after so many tokens it was taken.
        is_root: as of its mark.
        last_used: counts up with every save and load, over all snapshots.
        holders: numbers of the sessions that can be taken up there; never empty.
    """

    n_tokens: int
    is_root: bool
    last_used: int
    holders: set[int]


class SnapshotShelf:
    """The books of the snapshots: how many, where they stand, and whose they are.

    A snapshot belongs to every session whose tokens begin as it was read, and is gone when the
    last of them lets go. Names are never used twice.

    Attributes:
        limit: snapshots kept at most.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._kept: dict[SnapshotId, _Kept] = {}
        self._ids = itertools.count(1)
        self._uses = itertools.count(1)

    def __len__(self) -> int:
        return len(self._kept)

    def positions(self, number: int) -> tuple[int, ...]:
        """Where a session can be taken up, ascending."""
        return tuple(sorted(one.n_tokens for one in self._of(number)))

    def at(self, number: int, n_tokens: int) -> SnapshotId | None:
        """The session's snapshot after exactly so many tokens."""
        for name, one in self._kept.items():
            if one.n_tokens == n_tokens and number in one.holders:
                return name
        return None

    def names(self, number: int) -> set[SnapshotId]:
        """All snapshots of a session."""
        return {name for name, one in self._kept.items() if number in one.holders}

    def add(self, number: int, n_tokens: int, *, is_root: bool) -> SnapshotId:
        """Name a new snapshot of a session; there must be room, and none at that position."""
        assert len(self._kept) < self.limit, f"the shelf holds {self.limit} snapshots already"
        assert self.at(number, n_tokens) is None, f"session {number} has one at {n_tokens}"
        name = SnapshotId(next(self._ids))
        self._kept[name] = _Kept(
            n_tokens=n_tokens, is_root=is_root, last_used=next(self._uses), holders={number}
        )
        return name

    def touch(self, name: SnapshotId) -> None:
        """Note that a snapshot is used."""
        self._kept[name].last_used = next(self._uses)

    def share(self, source: int, target: int, n_tokens: int) -> None:
        """Let another session hold the snapshots of the first `n_tokens` tokens too."""
        for one in self._of(source):
            if one.n_tokens <= n_tokens:
                one.holders.add(target)

    def rename(self, number: int, other: int) -> None:
        """Hand everything one session holds over to another, which holds nothing yet."""
        for one in self._of(number):
            one.holders.remove(number)
            one.holders.add(other)

    def cut(self, number: int, n_tokens: int) -> tuple[SnapshotId, ...]:
        """Let a session let go of its snapshots behind `n_tokens` tokens.

        Returns:
            Those that nobody holds any more, and so are gone.
        """
        names = [name for name in self.names(number) if self._kept[name].n_tokens > n_tokens]
        return self._let_go(number, names)

    def thin(self, number: int) -> tuple[SnapshotId, ...]:
        """Make a session let go of its oldest turns, so that it may hold one snapshot more.

        Returns:
            Those that nobody holds any more, and so are gone.
        """
        order = sorted(
            self.names(number), key=lambda name: (self._is_root(name), self._kept[name].n_tokens)
        )
        return self._let_go(number, order[: max(0, len(order) + 1 - MOST_A_SESSION)])

    def victim(self, pinned: Collection[SnapshotId]) -> SnapshotId | None:
        """Choose what gives way to a new snapshot.

        The longest unused goes first. Roots go last as long as they take half of the shelf at
        most, so that a hundred short chats do not fill it with theirs.

        Args:
            pinned: snapshots that cannot be done without.

        Returns:
            Its name; None when all are pinned.
        """
        n_roots = sum(one.is_root for one in self._kept.values())
        are_roots_last = 2 * n_roots <= self.limit
        return min(
            (name for name in self._kept if name not in pinned),
            key=lambda name: (are_roots_last and self._is_root(name), self._kept[name].last_used),
            default=None,
        )

    def drop(self, name: SnapshotId) -> frozenset[int]:
        """Take a snapshot from all its holders; their numbers are returned."""
        return frozenset(self._kept.pop(name).holders)

    def check(self, numbers: Collection[int]) -> None:
        """Verify every invariant.

        Args:
            numbers: of all sessions.

        Raises:
            AssertionError: too many are kept, or one belongs to nobody who is there.
        """
        assert len(self._kept) <= self.limit, f"{len(self._kept)} snapshots, limit {self.limit}"
        for name, one in self._kept.items():
            assert one.holders, f"nobody holds snapshot {name}"
            assert one.holders <= set(numbers), f"snapshot {name} is held by {one.holders}"

    def _of(self, number: int) -> Iterator[_Kept]:
        return (one for one in self._kept.values() if number in one.holders)

    def _is_root(self, name: SnapshotId) -> bool:
        return self._kept[name].is_root

    def _let_go(self, number: int, names: Sequence[SnapshotId]) -> tuple[SnapshotId, ...]:
        gone = []
        for name in names:
            holders = self._kept[name].holders
            holders.remove(number)
            if not holders:
                del self._kept[name]
                gone.append(name)
        return tuple(gone)
