"""The state of the server: health, one snapshot, and snapshots as they change.

Numbers are read by `engine.service`; this only sends them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.responses import Response

from engine import __version__
from engine.api.schema import ExpertPicks, HealthReply, StatusSnapshot, format_status
from engine.api.served import Engine, EngineDep
from engine.api.sse import EventStreamResponse, data_event

BUSY_INTERVAL_S = 0.1
"""Time between snapshots while something runs or loads."""

IDLE_INTERVAL_S = 2.0
"""Time between snapshots while nothing changes."""

COUNTS_S = 1.0
"""Time between two events that carry the counts of experts."""


async def health(request: Request, engine: EngineDep) -> HealthReply:
    """Say that the server lives."""
    model = engine.loaded
    return HealthReply(
        version=__version__,
        model=None if model is None else model.summary.id,
        model_state=engine.status().model.state,
        max_context=0 if model is None else model.context_tokens,
        has_api_key=request.app.state.config.api_key is not None,
    )


async def status(engine: EngineDep) -> Response:
    """Send one snapshot."""
    return Response(format_status(engine.status()), media_type="application/json")


async def status_events(engine: EngineDep) -> Response:
    """Send snapshots until the client goes or the server stops."""
    return EventStreamResponse(snapshot_frames(engine))


async def snapshot_frames(engine: Engine) -> AsyncIterator[bytes]:
    """Make frames: ten a second while busy, at once on a change, else every two seconds."""
    before: StatusSnapshot | None = None
    sent_s = 0.0
    counts = CountsGate()
    while not engine.is_stopping:
        snapshot = engine.status()
        is_due = time.monotonic() - sent_s >= IDLE_INTERVAL_S
        if is_due or before is None or is_busy(snapshot) or has_changed(before, snapshot):
            yield data_event(format_status(counts.pass_on(snapshot)))
            sent_s = time.monotonic()
            before = snapshot
        await asyncio.sleep(BUSY_INTERVAL_S)


class CountsGate:
    """Leaves the counts of experts out of a snapshot unless they are new and due.

    A large model has 24,576 of them (130 kB), which is too much for ten times a second.
    """

    def __init__(self) -> None:
        self._sent: ExpertPicks | None = None
        self._sent_s = 0.0

    def pass_on(self, snapshot: StatusSnapshot) -> StatusSnapshot:
        """Return the snapshot, with its counts at most once a second and only if they changed."""
        picks = snapshot.experts.picks
        if picks is None:
            # The model was given back; the next one's counts go out at once.
            self._sent = None
            return snapshot
        now_s = time.monotonic()
        if self._sent is None or (picks is not self._sent and now_s - self._sent_s >= COUNTS_S):
            self._sent, self._sent_s = picks, now_s
            return snapshot
        bare = dataclasses.replace(picks, counts=None)
        return dataclasses.replace(
            snapshot, experts=dataclasses.replace(snapshot.experts, picks=bare)
        )


def is_busy(snapshot: StatusSnapshot) -> bool:
    """Whether something runs, waits or loads."""
    is_working = snapshot.engine is not None and snapshot.engine.is_busy
    return is_working or snapshot.model.state == "loading"


def has_changed(before: StatusSnapshot, after: StatusSnapshot) -> bool:
    """Whether something happened between two idle snapshots; memory and clocks do not count."""
    if before.model != after.model or (before.engine is None) is not (after.engine is None):
        return True
    if before.engine is None or after.engine is None:
        return False
    return any(
        old != new
        for old, new in (
            (before.engine.requests, after.engine.requests),
            (before.engine.kv_pool.chunks, after.engine.kv_pool.chunks),
        )
    )
