"""Where the recurrent states of the sessions stand, and the state ops that keep it true.

A hybrid model's session can go on only where a state stands. So each session with tokens is *live*
(the state of its lane stands after exactly its tokens) or has a snapshot there. Which snapshots
give way is `engine.memory.snapshots`'; without recurrent state nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.memory.snapshots import NEAR_TOKENS, Mark, SnapshotShelf
from engine.scheduler.session import Session
from engine.step import DropState, LaneId, LoadState, SaveState, SnapshotId, StateOp

_ENTERING = 0
"""Stands on the shelf for a session that is about to be made; real numbers start at 1."""


class SessionStates:
    """The snapshots of all sessions, and what must be done to them in the next step.

    Attributes:
        is_needed: whether the model has recurrent state.
        shelf: the books of the snapshots.

    Args:
        n_snapshots: kept at most; None = the model has no recurrent state.
        on_stranded: told of a session that is neither live nor has a snapshot at its end any more;
            it must be cut back.
    """

    def __init__(self, n_snapshots: int | None, *, on_stranded: Callable[[Session], None]) -> None:
        self.is_needed = n_snapshots is not None
        self.shelf = SnapshotShelf(n_snapshots or 0)
        self._sessions: dict[int, Session] = {}
        self._ops: list[StateOp] = []
        self._on_stranded = on_stranded

    @property
    def has_ops(self) -> bool:
        """Whether something is to be done."""
        return bool(self._ops)

    def take_ops(self) -> tuple[StateOp, ...]:
        """What must be done before the next spans; it is handed over once."""
        ops = tuple(self._ops)
        self._ops.clear()
        return ops

    # Where a session can be taken up

    def stops(self, session: Session) -> tuple[int, ...] | None:
        """Positions where the session can be taken up, ascending; None = anywhere."""
        if not self.is_needed:
            return None
        kept = self.shelf.positions(session.number)
        if session.is_live and session.n_tokens > max(kept, default=0):
            return (*kept, session.n_tokens)
        return kept

    def last_stop(self, session: Session) -> int:
        """The last position where the session can be taken up, 0 if it must start again."""
        stops = self.stops(session)
        return session.n_tokens if stops is None else max(stops, default=0)

    def can_fork(self, source: Session, n_tokens: int) -> bool:
        """Whether another session can be taken up where `source` can."""
        if not self.is_needed or self.shelf.at(source.number, n_tokens) is not None:
            return True
        return self._has_room()

    # As sessions come, run and go

    def open(self, session: Session) -> None:
        """Note a new session."""
        self._sessions[session.number] = session

    def close(self, session: Session) -> None:
        """Note that a session is gone: nobody else's snapshots go with it."""
        self._drop_all(self.shelf.cut(session.number, 0))
        del self._sessions[session.number]

    def cut(self, session: Session) -> None:
        """Let go of snapshots behind the session's end."""
        self._drop_all(self.shelf.cut(session.number, session.n_tokens))

    def keep_turn(self, session: Session) -> None:
        """Keep the end of a turn that the session is about to go on from, if there is room."""
        if not self.is_needed or not session.is_live or session.n_tokens == 0:
            return
        n_last = max(self.shelf.positions(session.number), default=0)
        if session.n_tokens - n_last >= NEAR_TOKENS:
            self.save(session)

    def save(self, session: Session) -> bool:
        """Make sure that the state in the session's lane is kept, so that it may leave the lane.

        Returns:
            Whether it is; if not, there was no room.
        """
        if not self.is_needed or session.n_tokens == 0:
            return True
        name = self.shelf.at(session.number, session.n_tokens)
        if name is not None:
            self.shelf.touch(name)
            return True
        assert session.is_live, f"session {session.id} has no state at {session.n_tokens}"
        op = self._new_save(session, Mark(n_tokens=session.n_tokens))
        if op is None:
            return False
        self._ops.append(op)
        return True

    def save_behind(self, session: Session, mark: Mark) -> SaveState | None:
        """Plan to keep the state that the next span of a session leaves at a mark.

        Returns:
            The save, to be done after the spans; None when there is no room.
        """
        return self._new_save(session, mark)

    def restore(self, session: Session) -> None:
        """Make a session that is in a lane live."""
        if not self.is_needed or session.n_tokens == 0:
            return
        name = self.shelf.at(session.number, session.n_tokens)
        if name is not None:
            self.shelf.touch(name)
        if not session.is_live:
            assert name is not None, f"session {session.id} has no state at {session.n_tokens}"
            self._ops.append(LoadState(snapshot=name, lane=LaneId(session.row)))
            session.is_live = True

    def begin_fork(self, source: Session, n_tokens: int) -> None:
        """Hold the snapshots of a source's first tokens for a session that is about to be made."""
        if not self.is_needed or n_tokens == 0:
            return
        if n_tokens == source.n_tokens:
            is_kept = self.save(source)
            assert is_kept, f"session {source.id} cannot be forked at {n_tokens}"
        self.shelf.share(source.number, _ENTERING, n_tokens)

    def end_fork(self, session: Session) -> None:
        """Hand what `begin_fork` holds over to the session, now that it is made."""
        self.shelf.rename(_ENTERING, session.number)

    def check(self) -> None:
        """Verify every invariant.

        Raises:
            AssertionError: a session cannot go on where it ends, or the books are wrong.
        """
        self.shelf.check(self._sessions)
        if not self.is_needed:
            return
        for session in self._sessions.values():
            assert session.n_tokens == 0 or session.is_live or self._end(session) is not None, (
                f"session {session.id} has no state at its end, {session.n_tokens}"
            )

    # Room on the shelf

    def _new_save(self, session: Session, mark: Mark) -> SaveState | None:
        if not self._has_room():
            return None
        self._drop_all(self.shelf.thin(session.number))
        if len(self.shelf) == self.shelf.limit:
            self._let_one_go()
        name = self.shelf.add(session.number, mark.n_tokens, is_root=mark.is_root)
        return SaveState(lane=LaneId(session.row), snapshot=name)

    def _has_room(self) -> bool:
        is_full = len(self.shelf) >= self.shelf.limit
        return not is_full or self.shelf.victim(self._pinned()) is not None

    def _let_one_go(self) -> None:
        victim = self.shelf.victim(self._pinned())
        assert victim is not None
        holders = self.shelf.drop(victim)
        self._ops.append(DropState(snapshot=victim))
        for number in sorted(holders):
            session = self._sessions[number]
            if not session.is_live and self._end(session) is None:
                self._on_stranded(session)

    def _pinned(self) -> set[SnapshotId]:
        """Snapshots that running requests will load: they were promised not to read again."""
        pinned = self.shelf.names(_ENTERING)
        for session in self._sessions.values():
            if session.is_busy and not session.is_live:
                name = self._end(session)
                if name is not None:
                    pinned.add(name)
        return pinned

    def _end(self, session: Session) -> SnapshotId | None:
        return self.shelf.at(session.number, session.n_tokens)

    def _drop_all(self, names: tuple[SnapshotId, ...]) -> None:
        self._ops.extend(DropState(snapshot=name) for name in names)
