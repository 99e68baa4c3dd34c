"""Owners, extents and loans on a card of ten extents of 32 bytes; exact calls, places and sums."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.memory.arena import Arena
from engine.memory.budget import VramOwner
from engine.memory.vmm import DriverError
from tests.arena_rules import KINDS, OWNERS, Play, Turn
from tests.fake_driver import FakeDriver

E = 32
WEIGHTS, KV, STATE, WORKSPACE, EXPERTS = VramOwner
PLACES = {WEIGHTS: 3, KV: 6, STATE: 1, WORKSPACE: 5, EXPERTS: 10}


def make_arena(driver: FakeDriver, *, usable: int = 10, reserve: int = 2) -> Arena:
    driver.total_bytes = (usable + reserve) * E
    return Arena(driver, PLACES, reserve_bytes=reserve * E, extent_bytes=E)


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


@pytest.fixture
def arena(driver: FakeDriver) -> Arena:
    return make_arena(driver)


def held(arena: Arena) -> list[int]:
    """Extents of each owner, then free ones."""
    arena.check()
    owners = [arena.bytes_of(owner) // E for owner in VramOwner]
    assert sum(owners) + arena.free_bytes // E == arena.usable_bytes // E
    return [*owners, arena.free_bytes // E]


def test_starts_with_addresses_and_no_memory(driver: FakeDriver, arena: Arena) -> None:
    assert driver.names() == ["reserve"] * 5
    assert driver.n_extents == 0
    assert held(arena) == [0, 0, 0, 0, 0, 10]
    addresses = [arena.range_of(owner).address for owner in VramOwner]
    assert len(set(addresses)) == 5


def test_growing_takes_the_first_holes_and_sets_access_once_a_run(
    driver: FakeDriver, arena: Arena
) -> None:
    n_calls = len(driver.calls)
    assert arena.grow(KV, 3) == (0, 1, 2)
    assert driver.names(n_calls) == ["create"] * 3 + ["map"] * 3 + ["set_access"]
    base = arena.range_of(KV).address
    assert driver.calls[-1] == ("set_access", (base, 3 * E))
    assert held(arena) == [0, 3, 0, 0, 0, 7]


def test_growing_into_a_gap_sets_access_run_by_run(driver: FakeDriver, arena: Arena) -> None:
    arena.map_at(KV, [1])
    n_calls = len(driver.calls)
    assert arena.grow(KV, 3) == (0, 2, 3)
    base = arena.range_of(KV).address
    assert driver.calls[n_calls + 6 :] == [
        ("set_access", (base, E)),
        ("set_access", (base + 2 * E, 2 * E)),
    ]


def test_growing_past_the_limit_is_none_and_touches_nothing(
    driver: FakeDriver, arena: Arena
) -> None:
    arena.grow(EXPERTS, 8)
    n_calls = len(driver.calls)
    assert arena.grow(KV, 3) is None
    assert len(driver.calls) == n_calls
    assert arena.grow(KV, 2) == (0, 1)
    assert held(arena) == [0, 2, 0, 0, 8, 0]


def test_growing_past_the_addresses_is_a_fault(arena: Arena) -> None:
    with pytest.raises(ValueError, match="Cannot give state 2 extents more: .* room for 1"):
        arena.grow(STATE, 2)


def test_another_programs_memory_is_a_refusal_not_a_fault(
    driver: FakeDriver, arena: Arena, caplog: pytest.LogCaptureFixture
) -> None:
    driver.foreign_bytes = 10 * E  # of 12; 2 are left, though 10 should be
    with caplog.at_level(logging.WARNING):
        assert arena.grow(KV, 3) is None
    assert "CUDA_ERROR_OUT_OF_MEMORY" in caplog.text
    assert driver.n_extents == 0
    assert arena.snapshot().n_refusals == 1
    assert held(arena) == [0, 0, 0, 0, 0, 10]
    assert arena.remeasure() == 0
    assert held(arena) == [0, 0, 0, 0, 0, 0]


def test_shrinking_takes_the_last_places_after_the_event(driver: FakeDriver, arena: Arena) -> None:
    arena.grow(KV, 4)
    base = arena.range_of(KV).address
    event = driver.launch(base, 4 * E)
    n_calls = len(driver.calls)
    assert arena.shrink(KV, 2, after=event) == (2, 3)
    assert driver.calls[n_calls:] == [
        ("wait", (event,)),
        ("unmap", (base + 2 * E, E)),
        ("unmap", (base + 3 * E, E)),
        ("release", (3,)),
        ("release", (4,)),
    ]
    assert held(arena) == [0, 2, 0, 0, 0, 8]


def test_shrinking_by_more_than_there_is_is_a_fault(arena: Arena) -> None:
    arena.grow(KV, 1)
    with pytest.raises(ValueError, match="Cannot take 2 extents from kv: it has 1 of its own"):
        arena.shrink(KV, 2, after=None)


def test_moving_keeps_bytes_and_maps_the_new_place_before_the_wait(
    driver: FakeDriver, arena: Arena
) -> None:
    arena.grow(EXPERTS, 3)
    experts, kv = arena.range_of(EXPERTS), arena.range_of(KV)
    driver.write(experts.place_address(1), b"one")
    driver.write(experts.place_address(2), b"two")
    event = driver.launch(experts.address, 3 * E)
    n_calls = len(driver.calls)
    arena.move(EXPERTS, KV, from_places=[1, 2], to_places=[0, 4], after=event)
    assert driver.names(n_calls) == [
        *["map", "map", "set_access", "set_access"],
        *["wait", "unmap", "unmap"],
    ]
    assert driver.read(kv.place_address(0), 3) == b"one"
    assert driver.read(kv.place_address(4), 3) == b"two"
    assert experts.mapped_places() == [0]
    assert kv.mapped_places() == [0, 4]
    assert driver.n_extents == 3
    assert held(arena) == [0, 2, 0, 0, 1, 7]
    assert arena.snapshot().n_moved_extents == 2
    driver.assert_settled()


def test_moving_within_an_owner(driver: FakeDriver, arena: Arena) -> None:
    arena.grow(EXPERTS, 2)
    experts = arena.range_of(EXPERTS)
    driver.write(experts.place_address(0), b"zero")
    arena.move(EXPERTS, EXPERTS, from_places=[0], to_places=[5], after=None)
    assert experts.mapped_places() == [1, 5]
    assert driver.read(experts.place_address(5), 4) == b"zero"


@pytest.mark.parametrize(
    ("from_places", "to_places", "words"),
    [
        ([3], [0], r"\[3\] must be extents of experts's own .*\[3\] are not"),
        ([0], [1], r"\[1\] must be free places of kv"),
        ([0], [6], r"\[6\] must be free places of kv"),
        ([1, 0], [2, 3], "in ascending order"),
        ([0, 0], [2, 3], "in ascending order"),
        ([0, 1], [2], "Cannot move 2 extents of experts to 1 places of kv"),
    ],
)
def test_moves_that_do_not_fit_change_nothing(
    driver: FakeDriver, arena: Arena, from_places: list[int], to_places: list[int], words: str
) -> None:
    arena.grow(EXPERTS, 2)
    arena.grow(KV, 2)
    n_calls = len(driver.calls)
    with pytest.raises(ValueError, match=words):
        arena.move(EXPERTS, KV, from_places=from_places, to_places=to_places, after=None)
    assert len(driver.calls) == n_calls


def test_a_loan_comes_back_to_where_it_was(driver: FakeDriver, arena: Arena) -> None:
    arena.grow(WORKSPACE, 1)
    arena.grow(EXPERTS, 6)
    experts, workspace = arena.range_of(EXPERTS), arena.range_of(WORKSPACE)
    driver.write(experts.place_address(5), b"five")
    loan = arena.lend(EXPERTS, WORKSPACE, places=[2, 5], after=None)
    assert loan.borrower_places == (1, 2)
    assert held(arena) == [0, 0, 0, 3, 4, 3]
    assert driver.read(workspace.place_address(2), 4) == b"five"
    parts = {part.owner: part for part in arena.snapshot().owners}
    assert (parts["experts"].bytes, parts["experts"].lent_bytes) == (4 * E, 2 * E)
    assert (parts["workspace"].bytes, parts["workspace"].borrowed_bytes) == (3 * E, 2 * E)

    assert arena.grow(EXPERTS, 1) == (6,)  # 2 and 5 wait for the loan
    with pytest.raises(ValueError, match=r"\[2\] must be free places of experts"):
        arena.map_at(EXPERTS, [2])
    with pytest.raises(ValueError, match=r"\[1\] must be extents of workspace's own"):
        arena.move(WORKSPACE, KV, from_places=[1], to_places=[0], after=None)
    assert arena.shrink(WORKSPACE, 1, after=None) == (0,)  # its own, not the borrowed ones

    arena.give_back(loan, after=None)
    assert arena.loans == ()
    assert experts.mapped_places() == [0, 1, 2, 3, 4, 5, 6]
    assert driver.read(experts.place_address(5), 4) == b"five"
    assert held(arena) == [0, 0, 0, 0, 7, 3]
    with pytest.raises(ValueError, match="given back already"):
        arena.give_back(loan, after=None)


def test_lending_more_than_the_borrower_has_room_for_is_a_fault(arena: Arena) -> None:
    arena.grow(EXPERTS, 3)
    with pytest.raises(ValueError, match="Cannot give state 3 extents more"):
        arena.lend(EXPERTS, STATE, places=[0, 1, 2], after=None)
    assert held(arena) == [0, 0, 0, 0, 3, 7]


def test_a_smaller_card_counts_what_others_hold(driver: FakeDriver) -> None:
    driver.total_bytes, driver.foreign_bytes = 100 * E, 3 * E
    arena = Arena(driver, PLACES, limit_bytes=12 * E, reserve_bytes=2 * E, extent_bytes=E)
    assert arena.usable_bytes == 7 * E
    arena = Arena(driver, PLACES, limit_bytes=4 * E, reserve_bytes=2 * E, extent_bytes=E)
    assert arena.usable_bytes == 0
    arena = Arena(driver, PLACES, limit_bytes=500 * E, reserve_bytes=2 * E, extent_bytes=E)
    assert arena.usable_bytes == 95 * E


def test_remeasuring_says_what_is_held_too_much(driver: FakeDriver, arena: Arena) -> None:
    arena.grow(EXPERTS, 8)
    driver.foreign_bytes = 3 * E
    assert arena.remeasure() == 1
    assert held(arena) == [0, 0, 0, 0, 8, 0]
    assert arena.grow(KV, 1) is None
    arena.shrink(EXPERTS, 1, after=None)
    assert arena.remeasure() == 0
    assert held(arena) == [0, 0, 0, 0, 7, 0]
    assert arena.remeasure(reserve_bytes=0) == 0
    assert held(arena) == [0, 0, 0, 0, 7, 2]
    driver.foreign_bytes = 0
    assert arena.remeasure(reserve_bytes=6 * E) == 1
    assert arena.snapshot().reserve_bytes == 6 * E


def test_closing_waits_and_leaves_nothing(driver: FakeDriver, arena: Arena) -> None:
    arena.grow(EXPERTS, 3)
    arena.lend(EXPERTS, WORKSPACE, places=[1], after=None)
    driver.launch(arena.range_of(EXPERTS).address, E)
    arena.close()
    driver.assert_clean()
    n_calls = len(driver.calls)
    arena.close()
    assert driver.names(n_calls) == ["synchronize"]


def test_extents_must_be_multiples_of_the_granularity(driver: FakeDriver) -> None:
    with pytest.raises(ValueError, match="An extent of 40 bytes cannot be mapped: .* 16 bytes"):
        Arena(driver, PLACES, extent_bytes=40)
    driver.assert_clean()


@pytest.mark.parametrize("n_before", range(5))
def test_a_failed_start_leaves_nothing(driver: FakeDriver, n_before: int) -> None:
    driver.fail_at = n_before
    with pytest.raises(DriverError, match="reserve"):
        make_arena(driver)
    driver.assert_clean()


def grow(arena: Arena, _driver: FakeDriver) -> None:
    arena.grow(KV, 3)  # one hole before, two behind what is mapped


def shrink(arena: Arena, driver: FakeDriver) -> None:
    arena.shrink(EXPERTS, 3, after=driver.launch(arena.range_of(EXPERTS).address, 6 * E))


def move_some(arena: Arena, driver: FakeDriver) -> None:
    event = driver.launch(arena.range_of(EXPERTS).address, 6 * E)
    arena.move(EXPERTS, KV, from_places=[1, 2, 5], to_places=[0, 2, 3], after=event)


def lend(arena: Arena, driver: FakeDriver) -> None:
    event = driver.launch(arena.range_of(EXPERTS).address, 6 * E)
    arena.lend(EXPERTS, WORKSPACE, places=[1, 4], after=event)


def give_back(arena: Arena, _driver: FakeDriver) -> None:
    arena.give_back(arena.loans[0], after=None)


def prepare(driver: FakeDriver, change: Callable[[Arena, FakeDriver], None]) -> Arena:
    arena = make_arena(driver)
    arena.grow(EXPERTS, 6)
    arena.map_at(KV, [1])
    for owner in (EXPERTS, KV):
        for place in arena.range_of(owner).mapped_places():
            address = arena.range_of(owner).place_address(place)
            driver.write(address, f"{owner}{place}".encode())
    if change is give_back:
        arena.lend(EXPERTS, WORKSPACE, places=[1, 2, 4], after=None)
    return arena


def picture(arena: Arena, driver: FakeDriver) -> dict[str, object]:
    """Everything a caller can see: who has which bytes where, and the sums."""
    cells = {
        (owner, place): driver.read(arena.range_of(owner).place_address(place), E)
        for owner in VramOwner
        for place in arena.range_of(owner).mapped_places()
    }
    return {"cells": cells, "loans": arena.loans, "snapshot": arena.snapshot()}


@pytest.mark.parametrize("change", [grow, shrink, move_some, lend, give_back])
def test_whichever_call_fails_nothing_or_everything_has_changed(
    change: Callable[[Arena, FakeDriver], None],
) -> None:
    rehearsal = FakeDriver()
    arena = prepare(rehearsal, change)
    n_before = len(rehearsal.calls)
    change(arena, rehearsal)
    names = rehearsal.names(n_before)
    assert len(names) > 4
    for fails, name in enumerate(names):
        driver = FakeDriver()
        arena = prepare(driver, change)
        before = picture(arena, driver)
        driver.fail_at = len(driver.calls) + fails
        if name == "release":  # the memory has left its owner; only the driver keeps it longer
            change(arena, driver)
        else:
            with pytest.raises(DriverError, match=name):
                change(arena, driver)
            assert picture(arena, driver) == before
            change(arena, driver)  # nothing in the way of trying again
        arena.check()
        driver.assert_settled()
        arena.close()
        driver.assert_clean()


def test_memory_the_driver_would_not_take_back_is_used_first(
    driver: FakeDriver, arena: Arena, caplog: pytest.LogCaptureFixture
) -> None:
    arena.grow(KV, 2)
    driver.fail_at = len(driver.calls) + 2  # unmap, unmap, release
    arena.shrink(KV, 2, after=None)
    assert "will be used again" in caplog.text
    assert (driver.n_extents, held(arena)) == (1, [0, 0, 0, 0, 0, 10])
    assert arena.remeasure() == 0
    assert held(arena) == [0, 0, 0, 0, 0, 10]
    n_calls = len(driver.calls)
    arena.grow(EXPERTS, 2)
    assert driver.names(n_calls) == ["create", "map", "map", "set_access"]
    assert held(arena) == [0, 0, 0, 0, 2, 8]


def test_out_of_memory_in_a_move_is_a_fault_and_changes_nothing(
    driver: FakeDriver, arena: Arena
) -> None:
    arena.grow(EXPERTS, 2)
    driver.fail_at, driver.fail_code = len(driver.calls) + 1, "CUDA_ERROR_OUT_OF_MEMORY"
    with pytest.raises(DriverError, match="map answered CUDA_ERROR_OUT_OF_MEMORY"):
        arena.move(EXPERTS, KV, from_places=[0, 1], to_places=[0, 1], after=None)
    assert held(arena) == [0, 0, 0, 0, 2, 8]


@pytest.mark.parametrize("change", [grow, shrink, move_some, lend, give_back])
def test_a_driver_that_dies_is_reported_and_closing_can_be_tried_again(
    change: Callable[[Arena, FakeDriver], None],
) -> None:
    rehearsal = FakeDriver()
    arena = prepare(rehearsal, change)
    n_before = len(rehearsal.calls)
    change(arena, rehearsal)
    for dies in range(len(rehearsal.calls) - n_before - 3):
        driver = FakeDriver()
        arena = prepare(driver, change)
        driver.fail_from = len(driver.calls) + dies
        with pytest.raises(DriverError):
            change(arena, driver)
        with pytest.raises(DriverError):
            arena.close()
        driver.fail_from = None
        arena.close()
        driver.assert_clean()


def test_whichever_step_of_closing_fails_the_others_are_done() -> None:
    rehearsal = FakeDriver()
    arena = prepare(rehearsal, give_back)
    n_before = len(rehearsal.calls)
    arena.close()
    for fails in range(len(rehearsal.calls) - n_before):
        driver = FakeDriver()
        arena = prepare(driver, give_back)
        driver.fail_at = len(driver.calls) + fails
        with pytest.raises(DriverError):
            arena.close()
        arena.close()
        driver.assert_clean()


turns = st.builds(
    Turn,
    kind=st.integers(0, len(KINDS) - 1),
    owner=st.integers(0, len(OWNERS) - 1),
    other=st.integers(0, len(OWNERS) - 1),
    amount=st.integers(0, 5),
    pick=st.integers(0, 9),
)
failing_turns = st.tuples(
    turns,
    st.none() | st.integers(0, 12),  # which of its calls fails
    st.integers(0, 4),  # extents of another program
)


@settings(max_examples=150, deadline=None)
@given(st.lists(failing_turns, max_size=30))
def test_random_changes_with_random_failures_keep_bytes_sums_and_addresses(
    script: list[tuple[Turn, int | None, int]],
) -> None:
    driver = FakeDriver()
    play = Play(make_arena(driver), driver)
    for turn, fails, n_foreign in script:
        driver.foreign_bytes = n_foreign * E
        driver.fail_at = None if fails is None else len(driver.calls) + fails
        play.take(turn)
        driver.fail_at = None
        play.check()
        driver.assert_settled()
    play.arena.close()
    driver.assert_clean()


def test_the_play_does_succeed_and_does_fail() -> None:
    """Guards the property test: it would pass if every turn were refused."""
    driver = FakeDriver()
    play = Play(make_arena(driver), driver)
    play.run(
        Turn(kind, owner, other, 2, 1) for kind in (0, 5) for owner in (4, 1) for other in (3,)
    )
    assert (play.n_done, len(play.tags), len(play.arena.loans)) == (4, 4, 2)
    driver.fail_at = len(driver.calls)
    play.take(Turn(6, 0, 0, 0, 0))
    assert play.n_failed == 1
    play.check()
