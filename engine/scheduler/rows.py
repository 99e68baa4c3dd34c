"""Where sessions live: rows, their chunks, and the moves between lanes and parking rows.

It keeps the books of the pool. How a prompt gets in is `engine.scheduler.entry`, whose turn it is
`engine.scheduler.admission`.

    lanes          [ s4 | s7 | .. | s2 ]    read by the backend
    parking rows   [ s1 | .. | s5 ]         host only; a swap of two tables moves a conversation
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from engine.memory.chunks import ChunkTables, IdentityTables, PoolShape, Table, Tables
from engine.memory.eviction import Candidate, Rank, plan_eviction
from engine.memory.prefix import MIN_COPIED_CELLS
from engine.scheduler.session import Session
from engine.scheduler.states import SessionStates
from engine.step import CellCopy, LaneId


class SessionRows:
    """All sessions, the rows they live in and the chunks they hold.

    Args:
        shape: sizes of the pool.
        n_snapshots: recurrent states kept at most; None = the model has none.

    Attributes:
        shape: sizes of the pool.
        tables: chunks of each row.
        states: where recurrent states stand.
        copies: cells to be copied before the next spans.
        n_swaps: table swaps so far.
        n_evictions: idle conversations that gave way so far.
    """

    def __init__(self, shape: PoolShape, *, n_snapshots: int | None = None) -> None:
        self.shape = shape
        self.states = SessionStates(n_snapshots, on_stranded=self._cut_to_last_stop)
        self._pool = ChunkTables(shape) if shape.is_pooled else None
        self.tables: Tables = self._pool if self._pool is not None else IdentityTables(shape)
        self.copies: list[CellCopy] = []
        self.n_swaps = 0
        self.n_evictions = 0
        self._rows: list[Session | None] = [None] * shape.n_rows
        self._n_made = 0
        self._n_ended = 0
        self._sent: list[Table | None] = [None] * shape.n_lanes

    # What is there

    @property
    def sessions(self) -> list[Session]:
        """Every session, the oldest first."""
        return sorted(
            (session for session in self._rows if session is not None),
            key=lambda session: session.number,
        )

    @property
    def has_place(self) -> bool:
        """Whether a lane is empty or its session idle."""
        lanes = self._rows[: self.shape.n_lanes]
        return any(session is None or not session.is_busy for session in lanes)

    @property
    def cells_free(self) -> int:
        """Cells of free chunks."""
        return self.tables.n_free * self.shape.chunk_cells

    def lane_of(self, session: Session) -> LaneId | None:
        """The session's lane, None while it is parked."""
        return LaneId(session.row) if session.row < self.shape.n_lanes else None

    def idle(self) -> list[Session]:
        """Idle sessions, the longest unused first."""
        return sorted(
            (one for one in self._rows if one is not None and not one.is_busy),
            key=lambda one: (one.last_used, one.number),
        )

    def empty_lane(self) -> int | None:
        """The first lane without a session."""
        return self._empty_row(0, self.shape.n_lanes)

    def can_stay(self, source: Session) -> bool:
        """Whether a new session finds a row without `source` being dropped."""
        return (
            source.is_busy
            or self._empty_row(0, self.shape.n_rows) is not None
            or any(one is not source for one in self.idle())
        )

    def candidate(self, session: Session) -> Candidate:
        """An idle session as the eviction plan looks at it."""
        is_short = session.n_tokens < MIN_COPIED_CELLS
        return Candidate(
            number=session.number,
            rank=Rank.WORTHLESS if is_short else Rank.CACHED,
            last_used=session.last_used,
            chunks=self.tables.chunks(session.row),
        )

    # Moves

    def make(self, row: int, *, key: str) -> Session:
        """A new session, busy, in an empty row."""
        assert self._rows[row] is None, f"row {row} is taken"
        self._n_made += 1
        session = Session(self._n_made, key=key, row=row)
        session.is_busy = True
        self._rows[row] = session
        self.states.open(session)
        return session

    def bring_to_lane(self, session: Session) -> None:
        """Move a session to a lane that is empty or else idle the longest; no cell is copied."""
        if session.row < self.shape.n_lanes:
            return
        row = self.empty_lane()
        if row is None:
            longest = next(one for one in self.idle() if one.row < self.shape.n_lanes)
            row = longest.row
            self._leave_lane(longest)
        self._swap(session.row, row)

    def clear_lane(self, *, keep: Session | None) -> int:
        """An empty lane, made by parking the longest idle session of a lane if there is none.

        Without a parking row the longest idle conversation but `keep` is dropped.
        """
        lane = self.empty_lane()
        if lane is not None:
            return lane
        idle = self.idle()
        longest = next(one for one in idle if one.row < self.shape.n_lanes)
        row = self._empty_row(self.shape.n_lanes, self.shape.n_rows)
        if row is None:
            gone = next(one for one in idle if one is not keep)
            row = gone.row
            self.evict(gone)
            if row < self.shape.n_lanes:
                return row
        lane = longest.row
        if self._leave_lane(longest):
            self._swap(lane, row)
        return lane

    def park(self, session: Session, *, keep: Session | None) -> bool:
        """Move a session out of its lane, letting the oldest idle conversation go if need be.

        Args:
            session: in a lane, busy.
            keep: must not be the one that goes.

        Returns:
            Whether there was a parking row, and room for its recurrent state.
        """
        row = self._empty_row(self.shape.n_lanes, self.shape.n_rows)
        if row is None:
            idle = [one for one in self.idle() if one is not keep and one.row >= self.shape.n_lanes]
            if not idle:
                return False
            row = idle[0].row
        if not self.states.save(session):
            return False
        in_row = self._rows[row]
        if in_row is not None:
            self.evict(in_row)
        self._swap(session.row, row)
        return True

    def exchange(self, session: Session, parked: Session) -> bool:
        """Let a parked session take the lane of another, which is parked in its stead.

        Returns:
            Whether there was room for the recurrent state of the other. It may be the parked
            one's that gave way; then the lane is empty or the parked one is cut back.
        """
        row = parked.row
        if not self.states.save(session):
            return False
        self._swap(session.row, row)
        return True

    def rewind(self, session: Session, n_tokens: int) -> None:
        """Let a session forget all but the first tokens; its chunks are the caller's."""
        session.rewind(n_tokens)
        self.states.cut(session)

    def share(self, source: Session, session: Session, n_chunks: int) -> None:
        """Let a session that holds nothing hold the first, full chunks of another too."""
        assert self._pool is not None, "without a pool nothing is shared"
        self._pool.share(source.row, session.row, n_chunks)

    def evict(self, session: Session) -> None:
        """Let an idle conversation give way."""
        assert not session.is_busy, f"busy session {session.id} cannot give way"
        self.n_evictions += 1
        self._drop(session)

    # While it runs, and the way out

    def grow(self, session: Session, cells: int) -> bool:
        """Make a busy session hold `cells` cells, if need be at the cost of idle ones.

        Returns:
            Whether it does; if not, nothing changed.
        """
        n_lacking = self.shape.n_chunks_for(cells) - len(self.tables.chunks(session.row))
        if n_lacking <= 0:
            return True
        evicted = plan_eviction(
            [self.candidate(one) for one in self.idle()],
            self.tables.holders(),
            n_wanted=n_lacking,
        )
        if evicted is None:
            return False
        for one in self.sessions:
            if one.number in evicted:
                self.evict(one)
        return self.tables.reserve(session.row, cells)

    def end_use(self, session: Session, *, now_s: float, is_ahead: bool = False) -> None:
        """Make a session idle: it keeps what it knows and gives back what it only reserved.

        Args:
            session: busy so far.
            now_s: the time.
            is_ahead: a span of it is being computed that it will never know of, so that the
                recurrent state of its lane is no longer its own.
        """
        self._n_ended += 1
        session.is_busy = False
        session.last_used = self._n_ended
        session.idle_since_s = now_s
        if is_ahead:
            session.is_live = False
            self.states.cut(session)
            self.rewind(session, self.states.last_stop(session))
        if session.n_tokens == 0:
            self._drop(session)
        else:
            self.tables.shrink(session.row, session.n_tokens)

    def forget(self, session_ids: Iterable[str] | None) -> tuple[str, ...]:
        """Drop idle sessions.

        Args:
            session_ids: which; busy and unknown ones are passed over. None = all idle ones.

        Returns:
            Ids of those dropped.
        """
        wanted = None if session_ids is None else set(session_ids)
        dropped = [
            session
            for session in self.sessions
            if not session.is_busy and (wanted is None or session.id in wanted)
        ]
        for session in dropped:
            self._drop(session)
        return tuple(session.id for session in dropped)

    # For the step plan

    def take_copies(self) -> tuple[CellCopy, ...]:
        """Copies to be made before the next spans; they are handed over once."""
        copies = tuple(self.copies)
        self.copies.clear()
        return copies

    def take_tables(self) -> dict[LaneId, Table]:
        """Tables of the lanes that differ from what was handed over last; all at first."""
        changed: dict[LaneId, Table] = {}
        if self._pool is None:
            return changed
        for lane in range(self.shape.n_lanes):
            table = self._pool.table(lane)
            sent = self._sent[lane]
            if sent is None or not np.array_equal(sent, table):
                self._sent[lane] = table
                changed[LaneId(lane)] = table
        return changed

    def check(self) -> None:
        """Verify every invariant of rows, sessions and chunks.

        Raises:
            AssertionError: a session is not where it says, knows more than it holds, or may
                write into a chunk that another holds.
        """
        self.tables.check()
        self.states.check()
        holders = self.tables.holders()
        for row, session in enumerate(self._rows):
            held = self.tables.chunks(row)
            if session is None:
                assert not held, f"empty row {row} holds {held}"
                continue
            assert session.row == row, f"session {session.id} is in row {row}, not {session.row}"
            assert not session.is_live or row < self.shape.n_lanes, f"{session.id} lives parked"
            n_known = self.shape.n_chunks_for(session.n_tokens)
            assert n_known <= len(held), f"session {session.id} knows more than it holds"
            writable = held[session.n_tokens // self.shape.chunk_cells :]
            if session.is_busy:
                assert all(holders[chunk] == 1 for chunk in writable), (
                    f"session {session.id} may write a shared chunk of {writable}"
                )

    def _empty_row(self, start: int, stop: int) -> int | None:
        return next((row for row in range(start, stop) if self._rows[row] is None), None)

    def _drop(self, session: Session) -> None:
        self.tables.release(session.row)
        self._rows[session.row] = None
        self.states.close(session)

    def _leave_lane(self, session: Session) -> bool:
        """Keep the state of an idle session that loses its lane; without room it is cut back.

        Returns:
            Whether there is anything left of it.
        """
        if not self.states.save(session):
            session.is_live = False
            self._cut_to_last_stop(session)
        return self._rows[session.row] is session

    def _cut_to_last_stop(self, session: Session) -> None:
        """Cut an idle session back to where it can be taken up, or drop it."""
        n_tokens = self.states.last_stop(session)
        if n_tokens == 0:
            self.evict(session)
        else:
            self.rewind(session, n_tokens)
            self.tables.shrink(session.row, n_tokens)

    def _swap(self, row_a: int, row_b: int) -> None:
        assert self._pool is not None, "without a pool nothing moves"
        self._pool.swap(row_a, row_b)
        self._rows[row_a], self._rows[row_b] = self._rows[row_b], self._rows[row_a]
        for row in (row_a, row_b):
            session = self._rows[row]
            if session is not None:
                session.row = row
                session.is_live = False  # a state stays in its lane
        self.n_swaps += 1
