"""Health, the snapshot and its stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from engine.api import status
from engine.api.schema import StatusSnapshot, format_status, parse_status
from tests.engine.api.api_rig import ApiRig

MakeRig = Callable[..., ApiRig]


def test_a_snapshot_survives_the_way_through_json(rig: ApiRig) -> None:
    rig.chat()
    snapshot = rig.service.status()
    assert parse_status(format_status(snapshot)) == snapshot
    sent = parse_status(rig.get("/v1/status").content)
    assert sent.model == snapshot.model
    assert sent.engine is not None
    assert snapshot.engine is not None
    assert sent.engine.kv_pool.chunks == snapshot.engine.kv_pool.chunks
    assert sent.model.state == "ready"
    assert sent.model.summary is not None
    assert sent.model.summary.id == "tiny"
    assert sent.model.context_tokens == 256
    assert sent.model.n_lanes == 2
    assert sent.model.backend == "scripted"
    assert sent.memory.ram_total_bytes > 0
    assert not sent.experts.is_present
    assert sent.experts.reason


def test_a_snapshot_without_a_model(make_rig: MakeRig) -> None:
    rig = make_rig(is_loaded=False)
    sent = parse_status(rig.get("/v1/status").content)
    assert sent.model.state == "none"
    assert sent.engine is None


def test_a_broken_snapshot_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="model"):
        parse_status('{"time_s": 1}')


def test_health(rig: ApiRig) -> None:
    health = rig.get("/health").json()
    assert health["status"] == "ok"
    assert health["service"] == "strata"
    assert health["model"] == "tiny"
    assert health["model_state"] == "ready"
    assert health["max_context"] == 256


async def collect(rig: ApiRig, *, for_s: float) -> list[tuple[float, StatusSnapshot]]:
    """Follow the events for some time; (when, what)."""
    seen: list[tuple[float, StatusSnapshot]] = []
    frames = status.snapshot_frames(rig.service)
    started_s = time.monotonic()
    try:
        while (left_s := started_s + for_s - time.monotonic()) > 0:
            try:
                frame = await asyncio.wait_for(anext(frames), left_s)
            except (TimeoutError, StopAsyncIteration):
                break
            payload = frame.removeprefix(b"data: ").removesuffix(b"\n\n")
            seen.append((time.monotonic() - started_s, parse_status(payload)))
    finally:
        await frames.aclose()  # type: ignore[attr-defined]
    return seen


def test_an_idle_server_sends_one_snapshot_and_then_keeps_quiet(rig: ApiRig) -> None:
    seen = asyncio.run(collect(rig, for_s=1.0))
    assert len(seen) == 1
    assert not status.is_busy(seen[0][1])


def test_an_idle_server_still_sends_every_two_seconds(rig: ApiRig) -> None:
    seen = asyncio.run(collect(rig, for_s=2.5))
    assert len(seen) == 2
    assert seen[1][0] >= status.IDLE_INTERVAL_S


def test_a_busy_server_sends_often_but_not_too_often(make_rig: MakeRig) -> None:
    rig = make_rig(delay_s=0.02)

    async def go() -> list[tuple[float, StatusSnapshot]]:
        asking = asyncio.create_task(asyncio.to_thread(rig.chat, max_tokens=60, ignore_eos=True))
        seen = await collect(rig, for_s=1.0)
        await asking
        return seen

    seen = asyncio.run(go())
    assert 3 <= len(seen) <= 11
    assert any(status.is_busy(snapshot) for _, snapshot in seen)


def test_a_change_is_told_at_once(rig: ApiRig) -> None:
    rig.chat()

    async def go() -> list[tuple[float, StatusSnapshot]]:
        following = asyncio.create_task(collect(rig, for_s=1.5))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(rig.post, "/v1/sessions/forget", {})
        return await following

    seen = asyncio.run(go())
    pools = [snapshot.engine.kv_pool for _, snapshot in seen if snapshot.engine is not None]
    assert [len(pool.sessions) for pool in pools] == [1, 0]
    assert pools[-1].free == pools[-1].cells


def test_the_stream_ends_when_the_service_stops(rig: ApiRig) -> None:
    async def go() -> None:
        following = asyncio.create_task(collect(rig, for_s=20))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(rig.service.stop)
        await asyncio.wait_for(following, 2)

    asyncio.run(go())
