"""Fixtures of the window's tests: a staged engine, a client that is closed again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from strata_desktop.client.api_client import ApiClient
from tests.desktop.fake_engine import FakeEngine


@pytest.fixture(autouse=True)
def garbage_stays_on_this_thread() -> Iterator[None]:
    """Free Qt objects on the thread they were made on, as the program itself does."""
    gc.collect()
    gc.disable()
    yield
    gc.collect()
    gc.enable()


@pytest.fixture
def engine() -> Iterator[FakeEngine]:
    """A staged engine on a loopback port."""
    fake = FakeEngine()
    yield fake
    fake.close()


@pytest.fixture
def client(qapp: object, engine: FakeEngine) -> Iterator[ApiClient]:
    """A client of the staged engine."""
    made = ApiClient(engine.address)
    yield made
    made.close()
