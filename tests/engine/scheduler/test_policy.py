"""Whose prompt is read, and who gives way."""

from __future__ import annotations

from dataclasses import dataclass

from engine.scheduler.policy import choose_reader, lane_yields, overtaken


@dataclass(frozen=True)
class Read:
    number: int
    n_left: int
    n_yields: int = 0


def test_shortest_rest_is_read_first_and_the_earlier_among_equals() -> None:
    reads = [Read(1, 90), Read(2, 30), Read(3, 30)]
    assert choose_reader(reads, last=None, max_yields=2) == reads[1]
    assert choose_reader([], last=None, max_yields=2) is None


def test_read_that_gave_way_often_enough_is_not_overtaken_again() -> None:
    worn = Read(2, 90, n_yields=2)
    assert choose_reader([worn, Read(3, 30)], last=None, max_yields=2) == worn
    earlier = Read(1, 50)
    assert choose_reader([earlier, worn, Read(3, 30)], last=None, max_yields=2) == earlier
    assert choose_reader([Read(1, 99), worn, Read(3, 30)], last=None, max_yields=2) == worn


def test_read_that_has_overtaken_is_finished_first() -> None:
    worn, at_it = Read(1, 90, n_yields=2), Read(2, 30)
    assert choose_reader([worn, at_it, Read(3, 5)], last=at_it, max_yields=2) == at_it
    assert choose_reader([worn, Read(3, 5)], last=at_it, max_yields=2) == worn


def test_only_earlier_reads_are_overtaken_and_only_when_the_turn_changes() -> None:
    reads = [Read(1, 90), Read(2, 30), Read(3, 60)]
    assert overtaken(reads, reads[1], last=reads[0]) == [reads[0]]
    assert overtaken(reads, reads[1], last=None) == [reads[0]]
    assert overtaken(reads, reads[1], last=reads[1]) == []
    assert overtaken(reads, reads[0], last=reads[1]) == []


def test_lane_goes_to_a_prompt_less_than_half_as_long() -> None:
    reads = [Read(1, 60), Read(2, 90)]
    assert list(lane_yields([Read(3, 44)], reads, max_yields=2)) == [(Read(3, 44), reads[1])]
    assert list(lane_yields([Read(3, 45)], reads, max_yields=2)) == []
    worn = Read(2, 90, n_yields=2)
    assert list(lane_yields([Read(1, 29)], [reads[0], worn], max_yields=2)) == [
        (Read(1, 29), reads[0])
    ]
    assert list(lane_yields([Read(1, 29)], [worn], max_yields=2)) == []


def test_waiting_prompts_are_asked_in_order_of_arrival() -> None:
    reads = [Read(1, 90)]
    waiting = [Read(3, 80), Read(4, 20), Read(5, 10)]
    assert list(lane_yields(waiting, reads, max_yields=2)) == [
        (waiting[1], reads[0]),
        (waiting[2], reads[0]),
    ]


def test_worn_read_keeps_its_lane_and_nobody_passes_it() -> None:
    worn = Read(1, 90, n_yields=2)
    assert list(lane_yields([Read(4, 10)], [worn, Read(2, 95)], max_yields=2)) == []
    parked = Read(2, 70, n_yields=2)
    assert list(lane_yields([parked, Read(4, 10)], [Read(1, 60)], max_yields=2)) == []
    assert list(lane_yields([parked, Read(4, 10)], [Read(3, 200)], max_yields=2)) == [
        (parked, Read(3, 200))
    ]
