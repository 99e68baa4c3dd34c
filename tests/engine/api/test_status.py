"""Health, the snapshot and its stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

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


class Looks:
    """The server's clock, moved by hand: each wait of the stream is one look at the engine.

    Attributes:
        now_s: the time.
        waits_s: how long the stream wanted to wait, each time.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.waits_s: list[float] = []
        monkeypatch.setattr(status, "time", self)
        monkeypatch.setattr(status, "asyncio", self)

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, wait_s: float) -> None:
        self.waits_s.append(wait_s)
        self.now_s += wait_s


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


async def collect(
    rig: ApiRig, looks: Looks, *, n_frames: int, after: Callable[[int], None] = lambda _n: None
) -> list[tuple[float, StatusSnapshot]]:
    """Take frames, each with its time by the server's clock; `after` is called behind each."""
    seen: list[tuple[float, StatusSnapshot]] = []
    frames = status.snapshot_frames(rig.service)
    began_s = looks.now_s
    async for frame in frames:
        payload = frame.removeprefix(b"data: ").removesuffix(b"\n\n")
        seen.append((looks.now_s - began_s, parse_status(payload)))
        if len(seen) == n_frames:
            break
        await asyncio.to_thread(after, len(seen))
    await frames.aclose()  # type: ignore[attr-defined]
    return seen


def test_an_idle_server_sends_every_two_seconds_and_no_more(rig: ApiRig, looks: Looks) -> None:
    seen = asyncio.run(collect(rig, looks, n_frames=3))
    assert not any(status.is_busy(snapshot) for _, snapshot in seen)
    assert [at_s for at_s, _ in seen] == pytest.approx([0, 2, 4], abs=status.BUSY_INTERVAL_S)
    assert set(looks.waits_s) == {status.BUSY_INTERVAL_S}


def test_a_busy_server_sends_ten_times_a_second(make_rig: MakeRig, looks: Looks) -> None:
    rig = make_rig(delay_s=0.02)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(rig.chat, max_tokens=200, ignore_eos=True)
        rig.wait_until(lambda: rig.snapshot().requests.running == 1)
        rig.gate.clear()
        seen = asyncio.run(collect(rig, looks, n_frames=5))
        rig.gate.set()
        asked.result()
    assert all(status.is_busy(snapshot) for _, snapshot in seen)
    assert [at_s for at_s, _ in seen] == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])


def test_a_change_is_told_at_once(rig: ApiRig, looks: Looks) -> None:
    rig.chat()
    rig.wait_until(lambda: not rig.snapshot().is_busy)

    def forget(_n_seen: int) -> None:
        rig.post("/v1/sessions/forget", {})

    seen = asyncio.run(collect(rig, looks, n_frames=2, after=forget))
    assert seen[1][0] == pytest.approx(status.BUSY_INTERVAL_S)
    pools = [snapshot.engine.kv_pool for _, snapshot in seen if snapshot.engine is not None]
    assert [len(pool.sessions) for pool in pools] == [1, 0]
    assert pools[-1].free == pools[-1].cells


def test_the_stream_ends_when_the_service_stops(rig: ApiRig) -> None:
    async def go() -> None:
        frames = status.snapshot_frames(rig.service)
        await anext(frames)
        await asyncio.to_thread(rig.service.stop)
        assert [frame async for frame in frames] == []

    asyncio.run(go())
