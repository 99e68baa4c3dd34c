"""Pieces behind each other, on extents of 512 bytes."""

from __future__ import annotations

import pytest

from engine.memory.arena import Arena
from engine.memory.budget import VramOwner
from engine.memory.bump import Bump
from engine.memory.vmm import DriverError
from tests.fake_driver import FakeDriver

E = 512
WEIGHTS = VramOwner.WEIGHTS


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver(total_bytes=3 * E)


@pytest.fixture
def arena(driver: FakeDriver) -> Arena:
    return Arena(driver, {WEIGHTS: 4, VramOwner.KV: 4}, reserve_bytes=0, extent_bytes=E)


def test_pieces_begin_at_multiples_of_256_and_memory_follows_them(arena: Arena) -> None:
    pieces = Bump(arena, WEIGHTS)
    base = arena.range_of(WEIGHTS).address
    assert pieces.alloc(1) == base
    assert pieces.alloc(256) == base + 256
    assert arena.bytes_of(WEIGHTS) == E
    assert pieces.alloc(257) == base + 512
    assert arena.bytes_of(WEIGHTS) == 2 * E
    assert pieces.alloc(10) == base + 1024
    assert (pieces.used_bytes, arena.bytes_of(WEIGHTS)) == (1034, 3 * E)


def test_a_piece_may_span_extents_and_is_writable_to_its_end(
    driver: FakeDriver, arena: Arena
) -> None:
    address = Bump(arena, WEIGHTS).alloc(3 * E)
    assert address is not None
    driver.write(address + 3 * E - 1, b"z")
    assert driver.names().count("set_access") == 1


def test_no_memory_now_is_none_and_changes_nothing(arena: Arena) -> None:
    pieces = Bump(arena, WEIGHTS)
    pieces.alloc(100)
    arena.grow(VramOwner.KV, 2)
    assert pieces.alloc(600) is None
    assert (pieces.used_bytes, arena.bytes_of(WEIGHTS)) == (100, E)
    arena.shrink(VramOwner.KV, 1, after=None)
    assert pieces.alloc(600) == arena.range_of(WEIGHTS).address + 256


def test_a_failing_driver_changes_nothing(driver: FakeDriver, arena: Arena) -> None:
    pieces = Bump(arena, WEIGHTS)
    driver.fail_at = len(driver.calls) + 1
    with pytest.raises(DriverError, match="map"):
        pieces.alloc(10)
    assert (pieces.used_bytes, arena.bytes_of(WEIGHTS), driver.n_extents) == (0, 0, 0)


def test_past_the_addresses_is_a_fault(arena: Arena) -> None:
    pieces = Bump(arena, WEIGHTS)
    pieces.alloc(10)
    with pytest.raises(ValueError, match="Cannot place 1793 bytes for weights behind the 256"):
        pieces.alloc(4 * E - 255)
    with pytest.raises(ValueError, match="Cannot place 0 bytes"):
        pieces.alloc(0)


def test_rewinding_uses_the_same_memory_again(driver: FakeDriver, arena: Arena) -> None:
    pieces = Bump(arena, WEIGHTS)
    pieces.alloc(100)
    mark = pieces.used_bytes
    first = pieces.alloc(900)
    pieces.rewind(mark)
    n_calls = len(driver.calls)
    assert pieces.alloc(900) == first
    assert len(driver.calls) == n_calls
    with pytest.raises(ValueError, match="Cannot rewind to 9999"):
        pieces.rewind(9999)
    pieces.rewind()
    assert pieces.used_bytes == 0
