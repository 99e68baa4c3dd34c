"""The way in: how a prompt gets a session, cells and a lane.

It is planned first, changing nothing, so that a prompt that cannot be held costs nobody anything.
Which prompt is asked about is `engine.scheduler.admission`'s.

    rewound to 6 of 9:    chunks [ 3 | 0 | 7 ] -> [ 3 | 0 | .. ]      cells behind are given back
    end in a shared one:  chunks [ 3 | 0 | 7 ] -> [ 3 | 5 | .. ]      0 stays with the other, its
                                                                      first cells are copied to 5
    fork at 6:            other  [ 3 | 0 | 7 ]    new [ 3 | 5 | .. ]  3 is shared, 0 copied to 5
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.memory.eviction import plan_eviction
from engine.memory.prefix import (
    MIN_COPIED_CELLS,
    KnownTokens,
    Use,
    choose_session,
    common_prefix,
)
from engine.memory.snapshots import Mark
from engine.scheduler.rows import SessionRows
from engine.scheduler.session import Session
from engine.step import CellCopy, ChunkId


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Entry:
    """A way in for a prompt, planned and not yet taken.

    Attributes:
        use: what happens to `source`.
        source: the session the prompt goes on from, or whose lane is taken over; None = none.
        n_reused: prompt tokens that need no reading.
        n_cells: cells to reserve.
        evicted: numbers of the idle sessions that give way first.
        common: the longest start that any session knows, if that start must be read again for
            want of a recurrent state; a state kept there would have saved it.
    """

    use: Use
    source: Session | None
    n_reused: int
    n_cells: int
    evicted: tuple[int, ...] = ()
    common: Mark | None = None


def plan_entry(
    rows: SessionRows, prompt_ids: npt.NDArray[np.int32], *, key: str, n_cells: int
) -> Entry | None:
    """Find the best way in for a prompt, changing nothing.

    Args:
        rows: the sessions.
        prompt_ids: i32[n_prompt].
        key: the client's name of the conversation, or "".
        n_cells: cells it must hold.

    Returns:
        The way in, or None when the pool cannot hold it even if every idle session gave way.
    """
    sessions = {session.number: session for session in rows.sessions}
    known = [_known(rows, one) for one in sessions.values()]
    choice = choose_session(prompt_ids, known, key=key, shape=rows.shape)
    source = None if choice.number is None else sessions[choice.number]
    use, n_reused = choice.use, choice.n_reused
    if not rows.shape.is_pooled and source is None and rows.empty_lane() is None:
        source = rows.idle()[0]
        n_reused = min(_known(rows, source).usable_for(prompt_ids), len(prompt_ids) - 1)
    is_fork = use is not Use.CONTINUE
    if source is not None and is_fork and not rows.states.can_fork(source, n_reused):
        use, n_reused = Use.NEW, 0
        source = None if rows.shape.is_pooled else source
    common = _common(rows, prompt_ids, use=use)
    if not rows.shape.is_pooled:
        return Entry(use=use, source=source, n_reused=n_reused, n_cells=n_cells, common=common)
    if use is Use.FORK and source is not None and not rows.can_stay(source):
        use = Use.CONTINUE
    holders = rows.tables.holders()
    candidates = rows.idle()
    n_kept = 0
    if source is not None:
        held = list(rows.tables.chunks(source.row))
        if use is Use.FORK:
            n_kept = n_reused // rows.shape.chunk_cells
            holders[held[:n_kept]] += 1
        else:
            n_reused = _rewindable(rows, source, n_reused)
            n_kept = _n_kept(rows, source, n_reused)
            holders[held[n_kept:]] -= 1
            candidates.remove(source)
    evicted = plan_eviction(
        [rows.candidate(one) for one in candidates],
        holders,
        n_wanted=rows.shape.n_chunks_for(n_cells) - n_kept,
    )
    if evicted is None:
        return None
    return Entry(
        use=use,
        source=source,
        n_reused=n_reused,
        n_cells=n_cells,
        evicted=evicted,
        common=common,
    )


def enter(rows: SessionRows, entry: Entry, *, key: str) -> Session:
    """Take a way in that was just planned; a lane must be empty or idle.

    Args:
        rows: the sessions, unchanged since `plan_entry`.
        entry: from `plan_entry`.
        key: the client's name of the conversation, or "".

    Returns:
        The session, busy and in a lane, knowing `n_reused` tokens and holding `n_cells`; its
        recurrent state stands there.
    """
    source = entry.source
    last = None
    for one in rows.sessions:
        if one.number in entry.evicted:
            if one is source:
                last = one  # its chunks are shared first
            else:
                rows.evict(one)
    if entry.use is Use.CONTINUE and source is not None:
        session = source
        session.is_busy = True
        if entry.n_reused == session.n_tokens:
            rows.states.keep_turn(session)
        copy = _rewind(rows, session, entry.n_reused)
        rows.bring_to_lane(session)
        session.key = key or session.key
    else:
        tokens = np.empty(0, np.int32)
        if source is not None:
            tokens = source.tokens[: entry.n_reused].copy()
            rows.states.begin_fork(source, entry.n_reused)
            if not rows.shape.is_pooled:
                rows.evict(source)
        session = rows.make(rows.clear_lane(keep=source), key=key)
        session.append(tokens)
        rows.states.end_fork(session)
        copy = None if source is None else _share(rows, source, session)
    if last is not None:
        rows.evict(last)
    is_held = rows.tables.reserve(session.row, entry.n_cells)
    assert is_held, f"session {session.id}: planned {entry.n_cells} cells are not free"
    if copy is not None:
        chunk, n_cells = copy
        target = rows.tables.chunks(session.row)[session.n_tokens // rows.shape.chunk_cells]
        if chunk != target:  # else it was freed and taken again, and holds the cells already
            rows.copies.append(CellCopy(source=chunk, target=target, n_cells=n_cells))
    rows.states.restore(session)
    return session


def _common(rows: SessionRows, prompt_ids: npt.NDArray[np.int32], *, use: Use) -> Mark | None:
    """The longest start of the prompt that any session knows, where it takes a state to use it."""
    if not rows.states.is_needed:
        return None
    n_most = max((common_prefix(prompt_ids, one.tokens) for one in rows.sessions), default=0)
    n_tokens = min(n_most, len(prompt_ids) - 1)
    return Mark(n_tokens=n_tokens, is_root=use is not Use.CONTINUE)


def _known(rows: SessionRows, session: Session) -> KnownTokens:
    return KnownTokens(
        number=session.number,
        key=session.key,
        tokens=session.tokens,
        is_idle=not session.is_busy,
        last_used=session.last_used,
        stops=rows.states.stops(session),
    )


def _is_shared_at(rows: SessionRows, session: Session, n_tokens: int) -> bool:
    """Whether the started chunk that ends at `n_tokens` is held by another session too."""
    if n_tokens % rows.shape.chunk_cells == 0:
        return False
    chunk = rows.tables.chunks(session.row)[n_tokens // rows.shape.chunk_cells]
    return bool(rows.tables.holders()[chunk] > 1)


def _rewindable(rows: SessionRows, session: Session, n_tokens: int) -> int:
    """Tokens worth keeping: a short start of a shared chunk is read again, not copied.

    A recurrent state cannot go back to the start of the chunk, so there it is copied.
    """
    n_started = n_tokens % rows.shape.chunk_cells
    if rows.states.is_needed:
        return n_tokens
    if n_started < MIN_COPIED_CELLS and _is_shared_at(rows, session, n_tokens):
        return n_tokens - n_started
    return n_tokens


def _n_kept(rows: SessionRows, session: Session, n_tokens: int) -> int:
    """Chunks that stay when the session is rewound to `n_tokens`."""
    if _is_shared_at(rows, session, n_tokens):
        return n_tokens // rows.shape.chunk_cells
    return rows.shape.n_chunks_for(n_tokens)


def _rewind(rows: SessionRows, session: Session, n_tokens: int) -> tuple[ChunkId, int] | None:
    """Rewind; returns the shared chunk to copy from and its cells, if the end lies in one."""
    copy = None
    if _is_shared_at(rows, session, n_tokens):
        n_whole, n_started = divmod(n_tokens, rows.shape.chunk_cells)
        copy = rows.tables.chunks(session.row)[n_whole], n_started
    n_kept = _n_kept(rows, session, n_tokens)
    rows.tables.shrink(session.row, n_kept * rows.shape.chunk_cells)
    rows.rewind(session, n_tokens)
    return copy


def _share(rows: SessionRows, source: Session, session: Session) -> tuple[ChunkId, int] | None:
    """Share the whole chunks of what `session` knows; returns what is left to copy."""
    if not rows.shape.is_pooled:
        return None
    n_whole, n_started = divmod(session.n_tokens, rows.shape.chunk_cells)
    rows.share(source, session, n_whole)
    return (rows.tables.chunks(source.row)[n_whole], n_started) if n_started else None
