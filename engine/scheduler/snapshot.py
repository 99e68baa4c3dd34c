"""The pool and its sessions as a frozen value for the dashboard."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from engine.scheduler.counts import WINDOW_S
from engine.scheduler.request import OpenRequest, Phase
from engine.scheduler.rows import SessionRows
from engine.scheduler.session import Session
from engine.stats import ChunkHolding, EngineSnapshot, KvPoolSnapshot, SessionHolding, StateSnapshot

_STATES = {Phase.WAITING: "waiting", Phase.READING: "reading", Phase.WRITING: "writing"}


def pool_snapshot(
    rows: SessionRows,
    open_requests: Iterable[OpenRequest],
    *,
    bytes_per_cell: int,
    backing: str,
    now_s: float,
) -> KvPoolSnapshot:
    """Describe who holds what.

    Args:
        rows: the sessions.
        open_requests: requests that have not ended.
        bytes_per_cell: K and V of all layers.
        backing: where the cells lie.
        now_s: the time on the scheduler's clock.

    Returns:
        The pool with every chunk and every session.
    """
    shape = rows.shape
    running = {one.session.number: one for one in open_requests if one.session is not None}
    owners: list[list[str]] = [[] for _ in range(shape.n_chunks)]
    n_used = [0] * shape.n_chunks
    sessions = rows.sessions
    for session in sessions:
        for index, chunk in enumerate(rows.tables.chunks(session.row)):
            owners[chunk].append(session.id)
            used = min(shape.chunk_cells, session.n_tokens - index * shape.chunk_cells)
            n_used[chunk] = max(n_used[chunk], used)
    n_free = sum(not ids for ids in owners)
    return KvPoolSnapshot(
        is_pooled=shape.is_pooled,
        cells=shape.cells,
        free=n_free * shape.chunk_cells,
        held=(shape.n_chunks - n_free) * shape.chunk_cells,
        chunk_cells=shape.chunk_cells,
        bytes_per_cell=bytes_per_cell,
        backing=backing,
        chunks=tuple(
            ChunkHolding(id=chunk, sessions=tuple(ids), n_cells_used=n_used[chunk])
            for chunk, ids in enumerate(owners)
        ),
        sessions=tuple(
            _holding(
                session,
                running.get(session.number),
                rows=rows,
                n_shared=sum(len(owners[one]) > 1 for one in rows.tables.chunks(session.row)),
                bytes_per_cell=bytes_per_cell,
                now_s=now_s,
            )
            for session in sessions
        ),
    )


def state_snapshot(rows: SessionRows, *, bytes_each: int) -> StateSnapshot:
    """Describe the kept recurrent states.

    Args:
        rows: the sessions.
        bytes_each: of one.
    """
    shelf = rows.states.shelf
    return StateSnapshot(
        count=len(shelf),
        limit=shelf.limit,
        bytes=len(shelf) * bytes_each,
        bytes_each=bytes_each,
    )


def aged(snapshot: EngineSnapshot, *, by_s: float) -> EngineSnapshot:
    """The same snapshot seen `by_s` seconds later, when nothing has happened since.

    Args:
        snapshot: the last one published.
        by_s: how long ago that was.

    Returns:
        Idle sessions are idle for longer, and speeds of an idle engine fade after `WINDOW_S`.
    """
    sessions = tuple(
        dataclasses.replace(one, idle_s=one.idle_s + by_s) if one.state == "idle" else one
        for one in snapshot.kv_pool.sessions
    )
    work = snapshot.work
    if not snapshot.is_busy and by_s > WINDOW_S:
        work = dataclasses.replace(work, prefill_tokens_per_s=0.0, decode_tokens_per_s=0.0)
    pool = dataclasses.replace(snapshot.kv_pool, sessions=sessions)
    return dataclasses.replace(snapshot, kv_pool=pool, work=work)


def _holding(
    session: Session,
    request: OpenRequest | None,
    *,
    rows: SessionRows,
    n_shared: int,
    bytes_per_cell: int,
    now_s: float,
) -> SessionHolding:
    n_chunks = len(rows.tables.chunks(session.row))
    cells = n_chunks * rows.shape.chunk_cells
    return SessionHolding(
        id=session.id,
        key=session.key,
        lane=rows.lane_of(session),
        state="idle" if request is None else _STATES[request.phase],
        n_tokens=session.n_tokens,
        cells=cells,
        n_chunks=n_chunks,
        n_shared_chunks=n_shared,
        bytes=cells * bytes_per_cell,
        idle_s=0.0 if session.is_busy else max(0.0, now_s - session.idle_since_s),
        n_prompt_tokens=0 if request is None else request.n_prompt,
        n_completion_tokens=0 if request is None else request.n_written,
        tokens_per_s=session.tokens_per_s if request is None else request.tokens_per_s,
        n_snapshots=len(rows.states.shelf.names(session.number)),
    )
