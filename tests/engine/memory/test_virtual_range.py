"""Places of a range, and extents that move between two, on a driver that forbids mistakes."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from engine.memory.virtual_range import Extent, Placement, VirtualRange, move, runs
from engine.memory.vmm import DriverError, Event
from tests.fake_driver import FakeDriver, Misuse

E = 32


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


def make_range(driver: FakeDriver, n_places: int = 4) -> VirtualRange:
    return VirtualRange(driver, n_places=n_places, extent_bytes=E)


def fill(driver: FakeDriver, target: VirtualRange, places: list[int]) -> list[Extent]:
    extents = [Extent(driver.create(E), E) for _ in places]
    with ExitStack() as undo:
        target.map(places, extents, undo)
        undo.pop_all()
    for place in places:
        driver.write(target.place_address(place), bytes([place + 1]) * E)
    return extents


def test_places_follow_each_other(driver: FakeDriver) -> None:
    held = make_range(driver)
    assert held.n_bytes == 4 * E
    assert [held.place_address(place) - held.address for place in range(4)] == [0, E, 2 * E, 3 * E]
    assert held.holes() == [0, 1, 2, 3]
    fill(driver, held, [1, 3])
    assert (held.mapped_places(), held.holes(), held.n_mapped) == ([1, 3], [0, 2], 2)


@pytest.mark.parametrize(
    ("offset", "n_bytes", "places"),
    [
        (0, 1, [0]),
        (0, E, [0]),
        (E - 1, 2, [0, 1]),
        (E, 2 * E, [1, 2]),
        (E + 1, 2 * E, [1, 2, 3]),
        (7, 0, []),
    ],
)
def test_places_a_run_of_bytes_touches(
    driver: FakeDriver, offset: int, n_bytes: int, places: list[int]
) -> None:
    assert list(make_range(driver).places_of(offset, n_bytes)) == places


def test_neighbours_form_runs() -> None:
    assert runs([]) == []
    assert runs([2, 3, 7, 9, 10, 11]) == [range(2, 4), range(7, 8), range(9, 12)]


def test_unwinding_maps_the_same_extents_again(driver: FakeDriver) -> None:
    held = make_range(driver)
    extents = fill(driver, held, [0, 2])
    with ExitStack() as undo:
        assert held.unmap([0, 2], undo) == extents
        assert held.n_mapped == 0
    assert [held.extent(place) for place in range(4)] == [extents[0], None, extents[1], None]
    assert driver.read(held.place_address(2), E) == bytes([3]) * E
    assert [extent.n_maps for extent in extents] == [1, 1]
    driver.assert_settled()


def test_a_move_that_fails_late_is_taken_back_whole(driver: FakeDriver) -> None:
    source, target = make_range(driver), make_range(driver)
    fill(driver, source, [0, 1])
    driver.fail_at = len(driver.calls) + 4  # map, map, access, unmap, [unmap]
    undo = ExitStack()
    with pytest.raises(DriverError, match="unmap"):
        move(
            driver,
            Placement(range=source, places=[0, 1]),
            Placement(range=target, places=[2, 3]),
            after=None,
            undo=undo,
        )
    assert (source.mapped_places(), target.mapped_places()) == ([1], [2, 3])
    undo.close()
    assert (source.mapped_places(), target.mapped_places()) == ([0, 1], [])
    assert driver.read(source.place_address(1), E) == bytes([2]) * E
    driver.assert_settled()


def test_closing_keeps_addresses_that_are_still_mapped(driver: FakeDriver) -> None:
    held = make_range(driver)
    (extent,) = fill(driver, held, [1])
    held.close()
    assert "free" not in driver.names()
    with ExitStack() as undo:
        held.unmap([1], undo)
        undo.pop_all()
    held.close()
    held.close()
    assert driver.names().count("free") == 1
    driver.release(extent.handle)
    driver.assert_clean()


def test_an_empty_range_reserves_nothing(driver: FakeDriver) -> None:
    held = make_range(driver, 0)
    held.close()
    assert driver.calls == []
    assert held.holes() == []


# The fake must catch what it is there to catch; otherwise the tests above prove nothing.


def test_the_fake_refuses_wrong_calls(driver: FakeDriver) -> None:
    base = driver.reserve(4 * E)
    handle = driver.create(E)
    driver.map(base, E, handle)
    with pytest.raises(Misuse, match="without access"):
        driver.read(base, 4)
    with pytest.raises(Misuse, match="without access"):
        driver.launch(base, 4)
    driver.set_access(base, E)
    assert driver.read(base, 4) == b"\xcd" * 4
    other = driver.create(E)
    with pytest.raises(Misuse, match="mapped already"):
        driver.map(base, E, other)
    with pytest.raises(Misuse, match="outside a reservation"):
        driver.map(base + 4 * E, E, other)
    with pytest.raises(Misuse, match="no multiple of 16"):
        driver.map(base + E + 8, E, other)
    with pytest.raises(Misuse, match="no multiple of 16"):
        driver.create(20)
    with pytest.raises(Misuse, match="not the whole of it"):
        driver.map(base + E, 2 * E, other)
    with pytest.raises(Misuse, match="not exactly a mapping"):
        driver.unmap(base, 2 * E)
    with pytest.raises(Misuse, match="not all mapped"):
        driver.set_access(base, 2 * E)
    with pytest.raises(Misuse, match="while it is mapped"):
        driver.release(handle)
    with pytest.raises(Misuse, match="memory still mapped"):
        driver.free(base, 4 * E)
    with pytest.raises(Misuse, match="not exactly a reservation"):
        driver.free(base, E)
    with pytest.raises(Misuse, match="never recorded"):
        driver.wait(Event(1))
    event = driver.launch(base, 4)
    with pytest.raises(Misuse, match=f"work before event {event} uses it"):
        driver.unmap(base, E)
    driver.map(base + E, E, handle)
    driver.set_access(base + E, E)
    with pytest.raises(AssertionError, match="two addresses"):
        driver.assert_settled()
    driver.wait(event)
    driver.unmap(base, E)
    driver.assert_settled()
    with pytest.raises(AssertionError, match="still mapped"):
        driver.assert_clean()
    driver.unmap(base + E, E)
    driver.release(handle)
    with pytest.raises(AssertionError, match="never released"):
        driver.assert_clean()
    with pytest.raises(Misuse, match="no memory"):
        driver.release(handle)
    driver.release(other)
    with pytest.raises(AssertionError, match="never given back"):
        driver.assert_clean()
    driver.free(base, 4 * E)
    driver.assert_clean()
