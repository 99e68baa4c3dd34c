"""Where sessions live: rows, their chunks, and every way in and out of a lane.

It moves conversations and keeps the books of the pool; whose turn it is decides the scheduler.

    lanes          [ s4 | s7 | .. | s2 ]    read by the backend
    parking rows   [ s1 | .. | s5 ]         host only; a swap of two tables moves a conversation
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.memory.chunks import ChunkTables, IdentityTables, PoolShape, Table, Tables
from engine.memory.eviction import Candidate, Rank, plan_eviction
from engine.memory.prefix import (
    MIN_COPIED_CELLS,
    KnownTokens,
    Use,
    choose_session,
    common_prefix,
)
from engine.scheduler.session import Session
from engine.step import CellCopy, ChunkId, LaneId


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Entry:
    """A way in for a prompt, planned and not yet taken.

    Attributes:
        use: what happens to `source`.
        source: the session the prompt goes on from, or whose lane is taken over; None = none.
        n_reused: prompt tokens that need no reading.
        n_cells: cells to reserve.
        evicted: numbers of the idle sessions that give way first.
    """

    use: Use
    source: Session | None
    n_reused: int
    n_cells: int
    evicted: tuple[int, ...]


class SessionRows:
    """All sessions, the rows they live in and the chunks they hold.

    Attributes:
        shape: sizes of the pool.
        tables: chunks of each row.
        n_swaps: table swaps so far.
        n_evictions: idle conversations that gave way so far.
    """

    def __init__(self, shape: PoolShape) -> None:
        self.shape = shape
        self._pool = ChunkTables(shape) if shape.is_pooled else None
        self.tables: Tables = self._pool if self._pool is not None else IdentityTables(shape)
        self.n_swaps = 0
        self.n_evictions = 0
        self._rows: list[Session | None] = [None] * shape.n_rows
        self._n_made = 0
        self._n_ended = 0
        self._copies: list[CellCopy] = []
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
        return any(session is None or not session.is_busy for session in self._lanes)

    @property
    def cells_free(self) -> int:
        """Cells of free chunks."""
        return self.tables.n_free * self.shape.chunk_cells

    def lane_of(self, session: Session) -> LaneId | None:
        """The session's lane, None while it is parked."""
        return LaneId(session.row) if session.row < self.shape.n_lanes else None

    # The way in

    def plan_entry(
        self, prompt_ids: npt.NDArray[np.int32], *, key: str, n_cells: int
    ) -> Entry | None:
        """Find the best way in for a prompt, changing nothing.

        Args:
            prompt_ids: i32[n_prompt].
            key: the client's name of the conversation, or "".
            n_cells: cells it must hold.

        Returns:
            The way in, or None when the pool cannot hold it even if every idle session gave way.
        """
        sessions = {session.number: session for session in self.sessions}
        choice = choose_session(
            prompt_ids, (_known(one) for one in sessions.values()), key=key, shape=self.shape
        )
        source = None if choice.number is None else sessions[choice.number]
        if self._pool is None:
            return self._plan_lane_entry(prompt_ids, source, choice.n_reused, n_cells)
        use = choice.use
        if use is Use.FORK and source is not None and not self._can_stay(source):
            use = Use.CONTINUE
        holders = self._pool.holders()
        kept: tuple[ChunkId, ...] = ()
        candidates = [one for one in sessions.values() if not one.is_busy]
        n_reused = choice.n_reused
        if source is not None:
            held = self._pool.chunks(source.row)
            if use is Use.FORK:
                kept = held[: n_reused // self.shape.chunk_cells]
                holders[list(kept)] += 1
            else:
                n_reused = self._rewindable(source, n_reused)
                kept = held[: self._n_kept(source, n_reused)]
                holders[list(held[len(kept) :])] -= 1
                candidates.remove(source)
        evicted = plan_eviction(
            [self._candidate(one) for one in candidates],
            holders,
            n_wanted=self.shape.n_chunks_for(n_cells) - len(kept),
        )
        if evicted is None:
            return None
        return Entry(use=use, source=source, n_reused=n_reused, n_cells=n_cells, evicted=evicted)

    def enter(self, entry: Entry, *, key: str) -> Session:
        """Take a way in that was just planned; a lane must be empty or idle.

        Args:
            entry: from `plan_entry`, with nothing changed since.
            key: the client's name of the conversation, or "".

        Returns:
            The session, busy and in a lane, knowing `n_reused` tokens and holding `n_cells`.
        """
        source = entry.source
        last = None
        for session in self.sessions:
            if session.number in entry.evicted:
                if session is source:
                    last = session
                else:
                    self._evict(session)
        if entry.use is Use.CONTINUE and source is not None:
            session = source
            session.is_busy = True
            self._bring_to_lane(session)
            copy = self._rewind(session, entry.n_reused)
            session.key = key or session.key
        else:
            tokens = _no_tokens() if source is None else source.tokens[: entry.n_reused].copy()
            if self._pool is None and source is not None:
                self._evict(source)
            session = self._make(self._clear_lane(keep=source), key=key)
            session.append(tokens)
            copy = self._share(source, session) if self._pool is not None else None
        if last is not None:
            self._evict(last)
        is_held = self.tables.reserve(session.row, entry.n_cells)
        assert is_held, f"session {session.id}: planned {entry.n_cells} cells are not free"
        if copy is not None:
            source_chunk, n_cells = copy
            target = self.tables.chunks(session.row)[session.n_tokens // self.shape.chunk_cells]
            if source_chunk != target:
                self._copies.append(CellCopy(source=source_chunk, target=target, n_cells=n_cells))
        return session

    def park(self, session: Session, *, keep: Session | None) -> bool:
        """Move a session out of its lane, letting the oldest idle conversation go if need be.

        Args:
            session: in a lane, busy.
            keep: must not be the one that goes.

        Returns:
            Whether there was a parking row.
        """
        row = self._empty_row(self.shape.n_lanes, self.shape.n_rows)
        if row is None:
            idle = [
                one for one in self._idle() if one is not keep and one.row >= self.shape.n_lanes
            ]
            if not idle:
                return False
            row = idle[0].row
            self._evict(idle[0])
        self._swap(session.row, row)
        return True

    def exchange(self, session: Session, parked: Session) -> None:
        """Let a parked session take the lane of another, which is parked in its stead."""
        self._swap(session.row, parked.row)

    def unpark(self, session: Session) -> None:
        """Bring a parked session to a lane that is empty or idle."""
        self._bring_to_lane(session)

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
            [self._candidate(one) for one in self._idle()],
            self.tables.holders(),
            n_wanted=n_lacking,
        )
        if evicted is None:
            return False
        for one in self.sessions:
            if one.number in evicted:
                self._evict(one)
        return self.tables.reserve(session.row, cells)

    def end_use(self, session: Session, *, now_s: float) -> None:
        """Make a session idle: it keeps what it knows and gives back what it only reserved."""
        self._n_ended += 1
        session.is_busy = False
        session.last_used = self._n_ended
        session.idle_since_s = now_s
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
        copies = tuple(self._copies)
        self._copies.clear()
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
        holders = self.tables.holders()
        for row, session in enumerate(self._rows):
            held = self.tables.chunks(row)
            if session is None:
                assert not held, f"empty row {row} holds {held}"
                continue
            assert session.row == row, f"session {session.id} is in row {row}, not {session.row}"
            n_known = self.shape.n_chunks_for(session.n_tokens)
            assert n_known <= len(held), f"session {session.id} knows more than it holds"
            writable = held[session.n_tokens // self.shape.chunk_cells :]
            if session.is_busy:
                assert all(holders[chunk] == 1 for chunk in writable), (
                    f"session {session.id} may write a shared chunk of {writable}"
                )

    # Parts of the above

    @property
    def _lanes(self) -> list[Session | None]:
        return self._rows[: self.shape.n_lanes]

    def _idle(self) -> list[Session]:
        """Idle sessions, the longest unused first."""
        return sorted(
            (one for one in self._rows if one is not None and not one.is_busy),
            key=lambda one: (one.last_used, one.number),
        )

    def _empty_row(self, start: int, stop: int) -> int | None:
        return next((row for row in range(start, stop) if self._rows[row] is None), None)

    def _plan_lane_entry(
        self,
        prompt_ids: npt.NDArray[np.int32],
        source: Session | None,
        n_reused: int,
        n_cells: int,
    ) -> Entry:
        """The way in without a pool: the session's own lane, an empty one, or the oldest's."""
        use = Use.CONTINUE if source is not None else Use.NEW
        if source is None and self._empty_row(0, self.shape.n_lanes) is None:
            source = self._idle()[0]
            n_reused = min(common_prefix(prompt_ids, source.tokens), len(prompt_ids) - 1)
        return Entry(use=use, source=source, n_reused=n_reused, n_cells=n_cells, evicted=())

    def _can_stay(self, source: Session) -> bool:
        """Whether a new session finds a row without `source` being dropped."""
        return (
            source.is_busy
            or self._empty_row(0, self.shape.n_rows) is not None
            or any(one is not source for one in self._idle())
        )

    def _candidate(self, session: Session) -> Candidate:
        is_short = session.n_tokens < MIN_COPIED_CELLS
        return Candidate(
            number=session.number,
            rank=Rank.WORTHLESS if is_short else Rank.CACHED,
            last_used=session.last_used,
            chunks=self.tables.chunks(session.row),
        )

    def _is_shared_at(self, session: Session, n_tokens: int) -> bool:
        """Whether the started chunk that ends at `n_tokens` is held by another session too."""
        if n_tokens % self.shape.chunk_cells == 0:
            return False
        chunk = self.tables.chunks(session.row)[n_tokens // self.shape.chunk_cells]
        return bool(self.tables.holders()[chunk] > 1)

    def _rewindable(self, session: Session, n_tokens: int) -> int:
        """Tokens worth keeping: a short start of a shared chunk is read again, not copied."""
        n_started = n_tokens % self.shape.chunk_cells
        if self._is_shared_at(session, n_tokens) and n_started < MIN_COPIED_CELLS:
            return n_tokens - n_started
        return n_tokens

    def _n_kept(self, session: Session, n_tokens: int) -> int:
        """Chunks that stay when the session is rewound to `n_tokens`."""
        if self._is_shared_at(session, n_tokens):
            return n_tokens // self.shape.chunk_cells
        return self.shape.n_chunks_for(n_tokens)

    def _rewind(self, session: Session, n_tokens: int) -> tuple[ChunkId, int] | None:
        """Rewind; returns the shared chunk to copy from and its cells, if the end lies in one."""
        copy = None
        if self._is_shared_at(session, n_tokens):
            chunk = self.tables.chunks(session.row)[n_tokens // self.shape.chunk_cells]
            copy = chunk, n_tokens % self.shape.chunk_cells
        self.tables.shrink(session.row, self._n_kept(session, n_tokens) * self.shape.chunk_cells)
        session.rewind(n_tokens)
        return copy

    def _share(self, source: Session | None, session: Session) -> tuple[ChunkId, int] | None:
        """Share the whole chunks of what `session` knows; returns what is left to copy."""
        if source is None or self._pool is None:
            return None
        n_whole, n_started = divmod(session.n_tokens, self.shape.chunk_cells)
        self._pool.share(source.row, session.row, n_whole)
        return (self._pool.chunks(source.row)[n_whole], n_started) if n_started else None

    def _make(self, row: int, *, key: str) -> Session:
        self._n_made += 1
        session = Session(self._n_made, key=key, row=row)
        session.is_busy = True
        self._rows[row] = session
        return session

    def _drop(self, session: Session) -> None:
        self.tables.release(session.row)
        self._rows[session.row] = None

    def _evict(self, session: Session) -> None:
        assert not session.is_busy, f"busy session {session.id} cannot give way"
        self.n_evictions += 1
        self._drop(session)

    def _swap(self, row_a: int, row_b: int) -> None:
        assert self._pool is not None, "without a pool nothing moves"
        self._pool.swap(row_a, row_b)
        self._rows[row_a], self._rows[row_b] = self._rows[row_b], self._rows[row_a]
        for row in (row_a, row_b):
            session = self._rows[row]
            if session is not None:
                session.row = row
        self.n_swaps += 1

    def _bring_to_lane(self, session: Session) -> None:
        if session.row < self.shape.n_lanes:
            return
        row = self._empty_row(0, self.shape.n_lanes)
        if row is None:
            row = next(one.row for one in self._idle() if one.row < self.shape.n_lanes)
        self._swap(session.row, row)

    def _clear_lane(self, *, keep: Session | None) -> int:
        """An empty lane, made by parking the longest idle session of a lane if there is none.

        Without a parking row the longest idle conversation but `keep` is dropped.
        """
        lane = self._empty_row(0, self.shape.n_lanes)
        if lane is not None:
            return lane
        idle = self._idle()
        longest = next(one for one in idle if one.row < self.shape.n_lanes)
        row = self._empty_row(self.shape.n_lanes, self.shape.n_rows)
        if row is None:
            gone = next(one for one in idle if one is not keep)
            row = gone.row
            self._evict(gone)
            if row < self.shape.n_lanes:
                return row
        lane = longest.row
        self._swap(lane, row)
        return lane


def _known(session: Session) -> KnownTokens:
    return KnownTokens(
        number=session.number,
        key=session.key,
        tokens=session.tokens,
        is_idle=not session.is_busy,
        last_used=session.last_used,
    )


def _no_tokens() -> npt.NDArray[np.int32]:
    return np.empty(0, np.int32)
