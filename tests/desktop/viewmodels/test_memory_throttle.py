from __future__ import annotations

import pytest

from strata_desktop.viewmodels.memory_throttle import Throttle
from tests.desktop.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def throttle(clock: ManualClock) -> Throttle:
    return Throttle(interval_s=0.1, clock=clock, schedule=clock.schedule)


def test_first_call_goes_through_at_once(throttle: Throttle) -> None:
    fired = []
    throttle.fired.connect(lambda: fired.append(1))
    throttle.trigger()
    assert fired == [1]
    assert not throttle.is_armed


def test_hundred_calls_a_second_fire_ten_times(clock: ManualClock, throttle: Throttle) -> None:
    fired: list[float] = []
    throttle.fired.connect(lambda: fired.append(clock()))
    for _ in range(100):
        throttle.trigger()
        clock.advance(0.01)
    assert 10 <= len(fired) <= 11
    gaps = [after - before for before, after in zip(fired, fired[1:], strict=False)]
    assert min(gaps) >= 0.1 - 1e-9


def test_last_call_is_never_lost(clock: ManualClock, throttle: Throttle) -> None:
    seen: list[int] = []
    state = 0
    throttle.fired.connect(lambda: seen.append(state))
    for state in range(1, 6):  # noqa: B007 - the lambda reads it
        throttle.trigger()
        clock.advance(0.01)
    clock.advance(1)
    assert seen == [1, 5]


def test_nothing_runs_while_nobody_calls(clock: ManualClock, throttle: Throttle) -> None:
    throttle.trigger()
    clock.advance(5)
    assert clock.due == []
    throttle.trigger()
    assert clock.due == []


def test_qt_timer_is_single_shot(qtbot) -> None:
    throttle = Throttle(interval_s=0.01)
    throttle.trigger()
    with qtbot.waitSignal(throttle.fired, timeout=2000):
        throttle.trigger()
    assert not throttle.is_armed
    assert throttle._timer is not None
    assert not throttle._timer.isActive()
