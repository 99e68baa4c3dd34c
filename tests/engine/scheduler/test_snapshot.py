"""What the dashboard is shown of the pool."""

from __future__ import annotations

import pytest

from engine.scheduler.snapshot import aged
from tests.engine.scheduler.rig import Rig, make_shape


def test_chunks_name_their_holders_and_used_cells() -> None:
    rig = Rig(make_shape(chunk_cells=64, context_tokens=640), span_tokens=256)
    rig.add("a", [1] * 150, max_tokens=2)
    rig.run()
    rig.add("b", [*([1] * 70), 2], max_tokens=9)
    rig.step()
    pool = rig.scheduler.snapshot().kv_pool
    assert [(one.sessions, one.n_cells_used) for one in pool.chunks[:5]] == [
        (("s1", "s2"), 64),
        (("s1",), 64),
        (("s1",), 23),
        (("s2",), 7),
        ((), 0),
    ]
    assert (pool.cells, pool.free, pool.held) == (640, 6 * 64, 4 * 64)
    first, second = pool.sessions
    assert (first.state, first.n_tokens, first.cells, first.bytes) == ("idle", 151, 192, 768)
    assert (second.state, second.n_tokens, second.n_shared_chunks) == ("writing", 71, 1)
    rig.run()


def test_aged_snapshot_counts_idle_time_on_and_lets_speeds_fade() -> None:
    rig = Rig()
    rig.add("a", [1, 2, 3], max_tokens=3)
    rig.run()
    now = rig.scheduler.snapshot()
    later = aged(now, by_s=2.0)
    assert later.kv_pool.sessions[0].idle_s == pytest.approx(now.kv_pool.sessions[0].idle_s + 2.0)
    assert later.work == now.work
    assert now.work.decode_tokens_per_s > 0
    assert aged(now, by_s=6.0).work.decode_tokens_per_s == 0.0


def test_aged_snapshot_of_a_busy_engine_keeps_its_speeds() -> None:
    rig = Rig()
    rig.add("a", [1, 2, 3], max_tokens=30)
    rig.step()
    rig.step()
    now = rig.scheduler.snapshot()
    later = aged(now, by_s=6.0)
    assert later.kv_pool.sessions[0].idle_s == 0.0
    assert later.work == now.work
