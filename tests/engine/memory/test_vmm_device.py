"""The arena's rules on a real card: the same play as on the fake driver, and its premises."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from engine.errors import DeviceError
from engine.memory.arena import Arena
from engine.memory.budget import VramOwner
from engine.memory.vmm import DriverError
from tests.arena_rules import Play, Turn
from tests.device_driver import DeviceDriver

pytestmark = pytest.mark.gpu

N_EXTENTS = 24
PLACES = {
    VramOwner.WEIGHTS: 6,
    VramOwner.KV: 12,
    VramOwner.STATE: 2,
    VramOwner.WORKSPACE: 10,
    VramOwner.EXPERTS: 24,
}
RESERVE_BYTES = 8 << 20
SLACK_BYTES = 64 << 20
"""What the driver itself may keep (page tables), or another program on the card take meanwhile."""


@pytest.fixture(scope="module")
def card() -> Iterator[DeviceDriver]:
    try:
        driver = DeviceDriver()
    except DeviceError as fault:
        pytest.skip(str(fault))
    yield driver
    driver.close()


def make_arena(card: DeviceDriver) -> Arena:
    """An arena that may hold N_EXTENTS of the smallest size, whatever the card has."""
    unit = card.granularity_bytes
    memory = card.card_memory()
    others = memory.total_bytes - memory.free_bytes
    return Arena(
        card,
        PLACES,
        limit_bytes=others + RESERVE_BYTES + N_EXTENTS * unit,
        reserve_bytes=RESERVE_BYTES,
        extent_bytes=unit,
    )


def test_a_small_limit_makes_the_card_small(card: DeviceDriver) -> None:
    arena = make_arena(card)
    try:
        n_usable = arena.usable_bytes // card.granularity_bytes
        assert n_usable == N_EXTENTS
        assert arena.grow(VramOwner.EXPERTS, N_EXTENTS) is not None
        assert arena.grow(VramOwner.KV, 1) is None
    finally:
        arena.close()


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_keep_bytes_sums_and_addresses(card: DeviceDriver, seed: int) -> None:
    rng = random.Random(seed)
    free_before = card.card_memory().free_bytes
    play = Play(make_arena(card), card)
    try:
        for _ in range(200):
            play.run(
                [
                    Turn(
                        *(rng.randrange(1000) for _ in range(3)),
                        rng.randrange(6),
                        rng.randrange(20),
                    )
                ]
            )
        assert play.n_failed == 0
        assert play.arena.snapshot().n_moved_extents > 20
    finally:
        play.arena.close()
    card.synchronize()  # work on memory taken away too early would show here
    assert card.card_memory().free_bytes >= free_before - SLACK_BYTES


def test_memory_is_taken_while_its_last_user_still_runs(card: DeviceDriver) -> None:
    arena = make_arena(card)
    unit = arena.extent_bytes
    try:
        arena.grow(VramOwner.EXPERTS, 12)
        experts, kv = arena.range_of(VramOwner.EXPERTS), arena.range_of(VramOwner.KV)
        for _ in range(20):
            event = card.launch(experts.address, 12 * unit)
            value = card.last_value
            arena.move(
                VramOwner.EXPERTS,
                VramOwner.KV,
                from_places=range(6, 12),
                to_places=range(6),
                after=event,
            )
            card.synchronize()
            assert card.read(kv.address, 6 * unit) == bytes([value]) * (6 * unit)
            event = card.launch(kv.address, 6 * unit)
            arena.move(
                VramOwner.KV,
                VramOwner.EXPERTS,
                from_places=range(6),
                to_places=range(6, 12),
                after=event,
            )
            card.synchronize()
    finally:
        arena.close()


def test_more_than_the_card_has_is_out_of_memory(card: DeviceDriver) -> None:
    total = card.card_memory().total_bytes
    n_bytes = -(-(total + 1) // card.granularity_bytes) * card.granularity_bytes
    with pytest.raises(DriverError) as caught:
        card.create(n_bytes)
    assert caught.value.is_out_of_memory


def test_the_card_refuses_what_the_fake_forbids(card: DeviceDriver) -> None:
    unit = card.granularity_bytes
    base = card.reserve(4 * unit)
    handle, other = card.create(unit), card.create(unit)
    card.map(base, unit, handle)
    card.set_access(base, unit)
    try:
        with pytest.raises(DriverError, match="cuMemMap"):
            card.map(base, unit, other)
        with pytest.raises(DriverError, match="cuMemMap"):
            card.map(base + unit + unit // 2, unit, other)
        with pytest.raises(DriverError, match="cuMemUnmap"):
            card.unmap(base, unit // 2)
        with pytest.raises(DriverError, match="cuMemSetAccess"):
            card.set_access(base, 2 * unit)
        with pytest.raises(DriverError, match="cuMemCreate"):
            card.create(unit // 2)
    finally:
        card.unmap(base, unit)
        card.release(handle)
        card.release(other)
        card.free(base, 4 * unit)


def test_memory_may_have_two_addresses_for_a_moment(card: DeviceDriver) -> None:
    unit = card.granularity_bytes
    base = card.reserve(2 * unit)
    handle = card.create(unit)
    card.map(base, unit, handle)
    card.set_access(base, unit)
    card.write(base, b"kept")
    card.map(base + unit, unit, handle)
    card.set_access(base + unit, unit)
    assert card.read(base + unit, 4) == b"kept"
    card.unmap(base, unit)
    assert card.read(base + unit, 4) == b"kept"
    card.unmap(base + unit, unit)
    card.release(handle)
    card.free(base, 2 * unit)
