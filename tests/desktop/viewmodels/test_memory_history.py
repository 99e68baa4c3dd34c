from __future__ import annotations

from strata_desktop.viewmodels.memory_history import MemoryHistory, MemorySample


def sample(time_s: float) -> MemorySample:
    return MemorySample(
        time_s=time_s, ram_used_bytes=int(time_s), commit_used_bytes=0, process_bytes=0
    )


def test_one_sample_a_second() -> None:
    history = MemoryHistory()
    taken = [history.add(sample(100 + 0.1 * number)) for number in range(31)]
    assert sum(taken) == 4
    assert [round(one.time_s) for one in history.samples] == [100, 101, 102, 103]


def test_five_minutes_and_no_more() -> None:
    history = MemoryHistory()
    for second in range(1000):
        history.add(sample(second))
    assert history.samples[0].time_s == 699
    assert len(history.samples) == 301


def test_a_clock_set_back_starts_anew() -> None:
    history = MemoryHistory()
    history.add(sample(1000))
    assert history.add(sample(10))
    assert [one.time_s for one in history.samples] == [10]


def test_nearest() -> None:
    history = MemoryHistory()
    assert history.nearest(5) is None
    for second in (10, 20, 30):
        history.add(sample(second))
    found = history.nearest(24)
    assert found is not None
    assert found.time_s == 20
