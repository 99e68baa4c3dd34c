"""The state of the server: health, one snapshot, and snapshots as they change.

Numbers are read by `engine.service`; this only sends them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

from fastapi import Request
from starlette.responses import Response

from engine import __version__
from engine.api.schema import HealthReply, StatusSnapshot, format_status
from engine.api.served import Engine, EngineDep
from engine.api.sse import EventStreamResponse, data_event

BUSY_INTERVAL_S = 0.1
"""Time between snapshots while something runs or loads."""

IDLE_INTERVAL_S = 2.0
"""Time between snapshots while nothing changes."""


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
    while not engine.is_stopping:
        snapshot = engine.status()
        is_due = time.monotonic() - sent_s >= IDLE_INTERVAL_S
        if is_due or before is None or is_busy(snapshot) or has_changed(before, snapshot):
            yield data_event(format_status(snapshot))
            sent_s = time.monotonic()
            before = snapshot
        await asyncio.sleep(BUSY_INTERVAL_S)


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
