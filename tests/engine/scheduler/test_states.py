"""Models with recurrent state: exact plans of what is saved, loaded, read and never read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engine.step import (
    CellCopy,
    DropState,
    FinishReason,
    LoadState,
    SaveState,
    StateOp,
    StepPlan,
)
from tests.engine.scheduler.rig import Rig, make_shape
from tests.engine.scheduler.rig import alone as run_alone

BIG: dict[str, Any] = {"chunk_cells": 64, "context_tokens": 640}
LANES: dict[str, Any] = {"n_parked": 0, "n_chunks": 20, "is_pooled": False, **BIG}

SYSTEM = [1] * 50
FIRST = [*SYSTEM, *[2] * 30, 3, 4, 5]
"""A system prompt, a message, and three tokens that begin the answer."""
MARKS = (50, 80)


def make_rig(shape: dict[str, Any] | None = None, **config: Any) -> Rig:
    return Rig(make_shape(**(shape or BIG)), is_recurrent=True, **({"span_tokens": 256} | config))


def alone(ids: Sequence[int], **changes: Any) -> str:
    return run_alone(ids, is_recurrent=True, **changes).text("alone")


def spans(plan: StepPlan | None) -> list[tuple[int, int, int]]:
    """(lane, start, tokens) of each span."""
    assert plan is not None
    return [(one.lane, one.start, len(one.ids)) for one in plan.spans]


def ops(operations: Sequence[StateOp]) -> list[str]:
    """Operations in short: "save 1 of 0", "load 1 to 0", "drop 1"."""
    return [short(one) for one in operations]


def short(op: StateOp) -> str:
    match op:
        case SaveState(lane=lane, snapshot=name):
            return f"save {name} of {lane}"
        case LoadState(snapshot=name, lane=lane):
            return f"load {name} to {lane}"
        case DropState(snapshot=name):
            return f"drop {name}"
        case _:
            raise AssertionError(f"nobody swaps the states of lanes: {op}")


def run(rig: Rig, request_id: str, ids: Sequence[int], **changes: Any) -> list[StepPlan]:
    """Run one request to its end, compare its text with the one alone, return its plans."""
    n_plans = len(rig.backend.plans)
    settings = {"max_tokens": 3} | changes
    rig.add(request_id, ids, **settings)
    rig.run()
    assert rig.text(request_id) == alone(ids, max_tokens=settings["max_tokens"])
    return rig.backend.plans[n_plans:]


def read(plans: Sequence[StepPlan]) -> list[tuple[int, int]]:
    """(start, tokens) of the spans that read a prompt of one request alone on the engine."""
    reads = []
    for plan in plans:
        reads += [(one.start, len(one.ids)) for one in plan.spans]
        if plan.spans[-1].wants_logits:
            return reads
    raise AssertionError("no prompt was read to its end")


# Reading a prompt


def test_spans_end_at_marks_and_states_are_saved_there() -> None:
    rig = make_rig()
    plans = run(rig, "a", FIRST, marks=MARKS)
    assert [spans(plan) for plan in plans[:3]] == [[(0, 0, 50)], [(0, 50, 30)], [(0, 80, 3)]]
    assert [ops(plan.saves) for plan in plans[:3]] == [["save 1 of 0"], ["save 2 of 0"], []]
    assert all(not plan.state_ops for plan in plans)
    assert rig.backend.snapshots[1].n_tokens == 50  # type: ignore[index]
    states = rig.scheduler.snapshot().states
    assert (states.count, states.limit, states.bytes, states.bytes_each) == (2, 64, 200, 100)
    assert rig.sessions()["s1"].n_snapshots == 2


def test_long_spans_between_marks_are_cut_as_ever() -> None:
    rig = make_rig(span_tokens=20)
    assert read(run(rig, "a", FIRST, marks=MARKS)) == [
        (0, 20), (20, 20), (40, 10), (50, 20), (70, 10), (80, 3)
    ]  # fmt: skip


def test_without_marks_the_state_before_the_last_token_is_kept() -> None:
    rig = make_rig()
    assert read(run(rig, "a", FIRST)) == [(0, 82), (82, 1)]
    assert read(run(rig, "b", FIRST)) == [(82, 1)]
    assert rig.finish("b").usage.n_cached_tokens == 82


def test_model_without_recurrent_state_ignores_marks() -> None:
    rig = Rig(make_shape(**BIG), span_tokens=256)
    rig.add("a", FIRST, marks=MARKS, max_tokens=3)
    rig.run()
    assert [spans(plan) for plan in rig.backend.plans[:2]] == [[(0, 0, 83)], [(0, 83, 1)]]
    assert all(not plan.state_ops and not plan.saves for plan in rig.backend.plans)
    states = rig.scheduler.snapshot().states
    assert (states.count, states.limit, states.bytes_each) == (0, 0, 0)


# The next turn


def second(rig: Rig) -> tuple[list[int], tuple[int, ...]]:
    """A second turn after `FIRST` as "a": prompt and marks."""
    known = [*FIRST, *rig.ids("a")]
    return [*known, 6, *[7] * 20, 3, 4, 5], (*MARKS, len(known) + 1, len(known) + 21)


def test_follow_up_reads_only_what_is_new() -> None:
    rig = make_rig()
    run(rig, "a", FIRST, marks=MARKS, max_tokens=10)
    prompt, marks = second(rig)
    plans = run(rig, "b", prompt, marks=marks)
    assert ops(plans[0].state_ops) == ["save 3 of 0"]  # the end of the first turn, at 92
    assert read(plans) == [(92, 22), (114, 3)]
    assert rig.finish("b").usage.n_cached_tokens == 92
    assert list(rig.sessions()) == ["s1"]


def test_edited_last_message_reads_only_what_is_new() -> None:
    rig = make_rig()
    run(rig, "a", FIRST, marks=MARKS, max_tokens=10)
    prompt, marks = second(rig)
    run(rig, "b", prompt, marks=marks)
    edited = [*prompt[:93], *[8] * 9, 3, 4, 5]
    plans = run(rig, "c", edited, marks=(*marks[:3], 102))
    assert ops(plans[0].state_ops) == ["drop 4", "load 3 to 0"]
    assert read(plans) == [(92, 10), (102, 3)]
    assert rig.finish("c").usage.n_cached_tokens == 92
    assert list(rig.sessions()) == ["s1"]


def test_regenerated_answer_reads_only_where_it_begins() -> None:
    rig = make_rig()
    run(rig, "a", FIRST, marks=MARKS, max_tokens=10)
    plans = run(rig, "b", FIRST, marks=MARKS, max_tokens=12)
    assert ops(plans[0].state_ops) == ["load 2 to 0"]
    assert read(plans) == [(80, 3)]
    assert rig.finish("b").usage.n_cached_tokens == 80
    prompt, marks = second(rig)
    run(rig, "c", prompt, marks=marks)
    assert read(run(rig, "d", prompt, marks=marks)) == [(114, 3)]


def test_answer_that_comes_back_changed_is_read_from_the_message_before_it() -> None:
    rig = make_rig()
    run(rig, "a", FIRST, marks=MARKS, max_tokens=10)
    prompt = [*FIRST, 60, 6, *[7] * 20, 3, 4, 5]  # without its thoughts
    assert read(run(rig, "b", prompt, marks=(*MARKS, 85, 105))) == [(80, 25), (105, 3)]


def test_long_conversation_keeps_the_newest_turns() -> None:
    rig = make_rig()
    prompt, marks = FIRST, MARKS
    for turn in range(6):
        run(rig, f"r{turn}", prompt, marks=marks, max_tokens=10)
        known = [*prompt, *rig.ids(f"r{turn}")]
        prompt = [*known, 6, *[7] * 20, 3, 4, 5]
        marks = (*marks, len(known) + 1, len(known) + 21)
    assert rig.sessions()["s1"].n_snapshots == 4
    kept = sorted(one.n_tokens for one in rig.backend.snapshots.values())
    last_but_one, last = marks[-5], marks[-3]
    assert kept == [50, last_but_one, last - 22, last]  # between them the end of a turn


# Other conversations


def test_new_conversation_goes_on_behind_the_same_system_prompt() -> None:
    rig = make_rig()
    run(rig, "a", FIRST, marks=MARKS, max_tokens=30)
    other = [*SYSTEM, *[9] * 20, 3, 4, 5]
    plans = run(rig, "b", other, marks=(50, 70))
    assert plans[0].copies == (CellCopy(source=0, target=2, n_cells=50),)
    assert ops(plans[0].state_ops) == ["load 1 to 1"]
    assert spans(plans[0]) == [(1, 50, 20)]
    held = rig.sessions()
    assert (held["s1"].n_snapshots, held["s2"].n_snapshots) == (2, 2)
    assert rig.scheduler.snapshot().states.count == 3  # the root is shared
    assert rig.finish("b").usage.n_cached_tokens == 50


def test_root_that_no_mark_tells_of_is_found_by_the_second_conversation() -> None:
    rig = make_rig()
    run(rig, "a", [*SYSTEM, *[2] * 20])
    second_read = read(run(rig, "b", [*SYSTEM, *[9] * 20]))
    assert second_read == [(0, 50), (50, 19), (69, 1)]
    assert read(run(rig, "c", [*SYSTEM, *[8] * 20])) == [(50, 19), (69, 1)]


def test_idle_conversation_is_forked_where_it_stands() -> None:
    rig = make_rig()
    run(rig, "a", FIRST, marks=MARKS, session_key="a")
    prompt = [*FIRST, *rig.ids("a"), 9]
    plans = run(rig, "b", prompt, session_key="b")
    assert ops(plans[0].state_ops) == ["save 3 of 0", "load 3 to 1"]
    assert spans(plans[0]) == [(1, 85, 2)]
    assert sorted(rig.sessions()) == ["s1", "s2"]


def test_running_conversation_is_forked_where_it_stands() -> None:
    rig = make_rig()
    rig.add("a", FIRST, marks=MARKS, max_tokens=30)
    for _ in range(8):
        rig.step()
    n_known = rig.sessions()["s1"].n_tokens
    prompt = [*FIRST, *rig.ids("a"), 9]
    rig.add("b", prompt, max_tokens=3)
    plan = rig.step()
    assert plan is not None
    assert ops(plan.state_ops) == ["save 3 of 0", "load 3 to 1"]
    assert spans(plan)[1][:2] == (1, n_known)
    rig.run()
    assert rig.text("a") == alone(FIRST, max_tokens=30)
    assert rig.text("b") == alone(prompt, max_tokens=3)


# Lanes and parking


def fill(rig: Rig, *names: str, n: int = 40) -> None:
    for name in names:
        run(rig, name, [ord(name) % 64] * n, max_tokens=1)


def test_state_goes_with_a_conversation_that_loses_its_lane() -> None:
    rig = make_rig({**BIG, "n_lanes": 1})
    run(rig, "a", FIRST, marks=MARKS, max_tokens=10)
    plans = run(rig, "b", [9] * 20, max_tokens=1)
    assert ops(plans[0].state_ops) == ["save 3 of 0"]
    prompt, marks = second(rig)
    plans = run(rig, "c", prompt, marks=marks)
    assert ops(plans[0].state_ops) == ["save 5 of 0", "load 3 to 0"]
    assert read(plans) == [(92, 22), (114, 3)]


def test_state_that_is_kept_already_is_not_saved_again() -> None:
    rig = make_rig({**BIG, "n_lanes": 1})
    run(rig, "a", [7] * 40, max_tokens=1)
    fill(rig, "b")  # parks a, with its state after 40 tokens
    rig.add("c", [*[7] * 40, *rig.ids("a"), 5])
    plan = rig.scheduler.plan()
    assert plan is not None
    rig.scheduler.cancel("c")
    rig.note(rig.scheduler.commit(plan, rig.backend.run(plan)))
    assert rig.sessions()["s1"].lane == 0
    plans = run(rig, "d", [9] * 40, max_tokens=1)
    assert plans[0].state_ops == ()
    assert (rig.sessions()["s1"].lane, rig.sessions()["s1"].n_tokens) == (None, 40)


def test_long_read_takes_its_state_along_when_it_gives_way() -> None:
    rig = make_rig({**BIG, "n_lanes": 1}, span_tokens=40)
    rig.add("long", [1] * 300, max_tokens=3)
    rig.step()
    rig.add("short", [2] * 20, max_tokens=2)
    plan = rig.step()
    assert plan is not None
    assert (ops(plan.state_ops), spans(plan)) == (["save 1 of 0"], [(0, 0, 19)])
    rig.run()
    reads = [one for plan in rig.backend.plans for one in plan.spans if one.ids[0] == 1]
    assert [one.start for one in reads[:8]] == [0, 40, 80, 120, 160, 200, 240, 280]
    assert rig.finish("long").usage.n_cached_tokens == 0
    assert rig.text("long") == alone([1] * 300, max_tokens=3)
    assert rig.text("short") == alone([2] * 20, max_tokens=2)


def test_read_keeps_its_lane_when_there_is_no_room_for_its_state() -> None:
    rig = make_rig({**BIG, "n_lanes": 1}, span_tokens=40, max_snapshots=0)
    rig.add("long", [1] * 300, max_tokens=3)
    rig.step()
    rig.add("short", [2] * 20, max_tokens=2)
    rig.step()
    assert rig.sessions()["s1"].state == "reading"
    rig.run()
    assert rig.text("short") == alone([2] * 20, max_tokens=2)


def test_snapshot_of_a_waiting_read_never_gives_way() -> None:
    rig = make_rig({**BIG, "n_lanes": 1}, span_tokens=40, max_snapshots=1)
    rig.add("long", [1] * 300, max_tokens=3)
    rig.step()
    rig.add("short", [2] * 60, max_tokens=2)
    rig.step()
    rig.step()
    assert rig.sessions()["s1"].state == "waiting"
    assert [one.n_tokens for one in rig.backend.snapshots.values()] == [40]
    rig.run()
    assert rig.text("long") == alone([1] * 300, max_tokens=3)
    assert rig.text("short") == alone([2] * 60, max_tokens=2)


# Bounds


def test_longest_unused_state_gives_way_and_cuts_its_conversation_back() -> None:
    rig = make_rig({**BIG, "n_lanes": 1}, max_snapshots=3)
    run(rig, "a", FIRST, marks=MARKS, max_tokens=10)  # 1 at 50, 2 at 80
    fill(rig, "b")  # parks a: 3 at 92; then b's own at 39 takes the place of 2
    assert rig.sessions()["s1"].n_tokens == 92
    assert sorted(rig.backend.snapshots) == [1, 3, 4]
    fill(rig, "c")  # b's end at 40 takes the place of 3, so that a ends at its root
    assert rig.sessions()["s1"].n_tokens == 50
    assert rig.sessions()["s1"].n_chunks == 1
    assert 1 in rig.backend.snapshots
    prompt, marks = second(rig)
    assert read(run(rig, "d", prompt, marks=marks))[0][0] == 50
    assert rig.backend.most_snapshots == 3


def test_bytes_bound_the_count() -> None:
    rig = make_rig(snapshot_bytes=250)
    run(rig, "a", FIRST, marks=(30, 50, 80))
    assert rig.scheduler.snapshot().states.limit == 2
    assert rig.backend.most_snapshots == 2


def test_without_room_for_any_state_conversations_live_in_lanes_alone() -> None:
    rig = make_rig(max_snapshots=0)
    run(rig, "a", FIRST, marks=MARKS)
    assert read(run(rig, "b", [*FIRST, *rig.ids("a"), 9])) == [(85, 2)]
    fill(rig, "c", "d")  # two lanes: the first conversation has nowhere to go
    assert sorted(rig.sessions()) == ["s2", "s3"]
    assert rig.backend.most_snapshots == 0


def test_forgotten_conversations_leave_no_state_behind() -> None:
    rig = make_rig()
    run(rig, "a", FIRST, marks=MARKS, max_tokens=30)
    run(rig, "b", [*SYSTEM, *[9] * 20, 3, 4, 5], marks=(50, 70))
    assert len(rig.backend.snapshots) == 3
    rig.scheduler.forget(["s1"])
    plan = rig.step()
    assert plan is not None
    assert (plan.spans, ops(plan.state_ops)) == ((), ["drop 2"])
    rig.scheduler.forget()
    rig.run()
    assert rig.backend.snapshots == {}
    assert rig.scheduler.snapshot().states.count == 0
    assert rig.step() is None


# Faults and cancellations


@pytest.mark.parametrize(("n_steps", "n_known"), [(0, 0), (1, 50), (2, 80)])
def test_cancelled_in_the_middle_of_a_step_goes_back_to_the_last_state(
    n_steps: int, n_known: int
) -> None:
    rig = make_rig()
    rig.add("a", FIRST, marks=MARKS)
    for _ in range(n_steps):
        rig.step()
    plan = rig.scheduler.plan()
    assert plan is not None
    rig.scheduler.cancel("a")
    rig.note(rig.scheduler.commit(plan, rig.backend.run(plan)))
    rig.scheduler.check()
    assert [one.n_tokens for one in rig.sessions().values()] == ([n_known] if n_known else [])
    reads = read(run(rig, "b", FIRST, marks=MARKS))
    assert reads[0][0] == n_known
    assert len(rig.backend.snapshots) == rig.scheduler.snapshot().states.count == 2


def test_cancelled_between_steps_keeps_what_is_known() -> None:
    rig = make_rig(span_tokens=30)
    rig.add("a", FIRST)
    rig.step()
    rig.scheduler.cancel("a")
    rig.run()
    assert read(run(rig, "b", FIRST))[0] == (30, 30)


def test_full_pool_ends_a_writer_whose_state_stays_good() -> None:
    rig = make_rig({**BIG, "n_chunks": 2})
    rig.add("a", [1] * 120)
    rig.run()
    assert rig.finish("a").finish is FinishReason.POOL
    assert rig.sessions()["s1"].n_tokens == 128
    assert len(rig.text("a")) == 9
    assert alone([1] * 120, max_tokens=9) == rig.text("a")
    assert read(run(rig, "b", [1] * 120, max_tokens=1)) == [(119, 1)]


# Without a pool


def test_without_a_pool_turns_edits_and_answers_again_are_the_same() -> None:
    rig = make_rig(LANES)
    run(rig, "a", FIRST, marks=MARKS, max_tokens=10)
    prompt, marks = second(rig)
    assert read(run(rig, "b", prompt, marks=marks)) == [(92, 22), (114, 3)]
    assert read(run(rig, "c", prompt, marks=marks)) == [(114, 3)]
    edited = [*prompt[:93], *[8] * 9, 3, 4, 5]
    assert read(run(rig, "d", edited, marks=(*marks[:3], 102))) == [(92, 10), (102, 3)]
    assert all(not plan.tables and not plan.copies for plan in rig.backend.plans)


def test_without_a_pool_a_lane_is_taken_over_with_its_root() -> None:
    rig = make_rig({**LANES, "n_lanes": 1, "n_chunks": 10})
    run(rig, "a", [*FIRST, *[6] * 90], marks=MARKS)
    other = [*SYSTEM, *[9] * 20, 3, 4, 5]
    plans = run(rig, "b", other, marks=(50, 70))
    assert ops(plans[0].state_ops)[-1] == "load 1 to 0"
    assert read(plans) == [(50, 20), (70, 3)]
    assert sorted(rig.sessions()) == ["s2"]
    assert rig.finish("b").usage.n_cached_tokens == 50


def test_without_a_pool_a_fork_is_read_by_itself() -> None:
    rig = make_rig(LANES)
    run(rig, "a", FIRST, marks=MARKS, session_key="a", max_tokens=60)
    other = [*SYSTEM, *[9] * 20, 3, 4, 5]
    plans = run(rig, "b", other, marks=(50, 70), session_key="b")
    assert spans(plans[0]) == [(1, 0, 50)]
