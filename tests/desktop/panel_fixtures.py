"""Fixtures of the panels: view-models fed by hand, with a clock that is moved by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.status_feed import StatusFeed
from strata_desktop.viewmodels.memory import MemoryModel
from strata_desktop.viewmodels.memory_throttle import Throttle
from tests.desktop.manual_clock import ManualClock
from tests.desktop.snapshots import Held, make_pool, make_status


@pytest.fixture
def clock() -> ManualClock:
    """Time, moved by the test."""
    return ManualClock()


@pytest.fixture
def feed(client: ApiClient) -> StatusFeed:
    """A feed that says only what the test emits."""
    return StatusFeed(client)


@pytest.fixture
def memory(client: ApiClient, feed: StatusFeed, clock: ManualClock) -> MemoryModel:
    """The memory page's state."""
    throttle = Throttle(interval_s=0.1, clock=clock, schedule=clock.schedule)
    return MemoryModel(feed, client, throttle=throttle)


@pytest.fixture
def show(feed: StatusFeed, clock: ManualClock) -> Callable[..., None]:
    """Send a pool and let a second go by."""

    def send(*held: Held, n_chunks: int = 16) -> None:
        feed.status.emit(make_status(make_pool(n_chunks, held), time_s=1000 + clock()))
        clock.advance(1)

    return send
