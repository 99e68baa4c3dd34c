"""Counts and speeds."""

from __future__ import annotations

import pytest

from engine.errors import DeviceError, KvPoolFullError
from engine.scheduler.counts import Counts, Speed
from engine.step import FinishReason


def test_speed_is_tokens_by_the_time_of_their_steps() -> None:
    speed = Speed()
    assert speed.tokens_per_s(0.0) == 0.0
    speed.note(10, now_s=1.0, elapsed_s=0.5)
    speed.note(0, now_s=2.0, elapsed_s=0.9)
    speed.note(30, now_s=3.0, elapsed_s=1.5)
    assert speed.tokens_per_s(3.0) == pytest.approx(20.0)


def test_speed_forgets_after_five_seconds() -> None:
    speed = Speed()
    speed.note(10, now_s=1.0, elapsed_s=0.5)
    speed.note(30, now_s=3.0, elapsed_s=0.5)
    assert speed.tokens_per_s(6.1) == pytest.approx(60.0)
    assert speed.tokens_per_s(8.1) == 0.0


def test_each_end_counts_once() -> None:
    counts = Counts()
    full = KvPoolFullError(cells_wanted=2, cells_free=1, cells_total=1)
    ends: list[tuple[FinishReason, Exception | None]] = [
        (FinishReason.STOP, None),
        (FinishReason.LENGTH, None),
        (FinishReason.POOL, None),
        (FinishReason.CANCELLED, None),
        (FinishReason.ERROR, full),
        (FinishReason.ERROR, DeviceError("gone")),
    ]
    for finish, error in ends:
        counts.note_end(finish, error)
    requests = counts.requests(running=3, waiting=4)
    assert (requests.running, requests.waiting, requests.finished) == (3, 4, 2)
    assert requests.truncated == requests.cancelled == requests.refused == requests.failed == 1
