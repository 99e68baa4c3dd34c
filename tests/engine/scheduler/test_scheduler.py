"""The scheduler step by step: who computes what, who holds what, how each request ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import ContextLengthError, DeviceError, KvPoolFullError, QueueFullError
from engine.sampling import SamplingParams
from engine.step import CellCopy, EventKind, FinishReason, StepPlan
from tests.engine.scheduler.rig import Rig, alone, make_request, make_shape
from tests.scripted_backend import END_ID, LETTERS

BIG: dict[str, Any] = {"chunk_cells": 64, "context_tokens": 640}
"""Chunks large enough that a started one is worth a copy."""


def run_of(value: int, n: int) -> list[int]:
    return [value] * n


def spans(plan: StepPlan | None) -> list[tuple[int, int, int, bool]]:
    """(lane, start, ids, wants logits) of each span."""
    assert plan is not None
    return [(one.lane, one.start, len(one.ids), one.wants_logits) for one in plan.spans]


def test_prompt_is_read_in_spans_then_tokens_are_written() -> None:
    rig = Rig()
    rig.add("a", range(1, 19), max_tokens=3)
    assert spans(rig.step()) == [(0, 0, 8, False)]
    assert spans(rig.step()) == [(0, 8, 8, False)]
    assert spans(rig.step()) == [(0, 16, 2, True)]
    assert spans(rig.step()) == [(0, 18, 1, True)]
    assert spans(rig.step()) == [(0, 19, 1, True)]
    assert rig.step() is None
    kinds = [event.kind.value for event in rig.events["a"]]
    assert kinds == ["progress", "progress", "progress", "token", "token", "token", "finish"]
    assert [event.n_read for event in rig.events["a"]] == [8, 16, 18, 18, 18, 18, 18]
    assert rig.finish("a").finish is FinishReason.LENGTH
    assert rig.finish("a").usage.n_completion_tokens == 3


def test_session_knows_all_but_the_last_token() -> None:
    rig = Rig()
    rig.add("a", range(1, 6), max_tokens=4)
    rig.run()
    assert rig.sessions()["s1"].n_tokens == 5 + 3


def test_text_is_what_the_backend_says() -> None:
    answer = [5, 6, 7, 8]
    rig = Rig()
    rig.backend._next_id = lambda ids: answer[len(ids) - 3]
    rig.add("a", [1, 2, 3], max_tokens=4)
    rig.run()
    assert rig.ids("a") == answer
    assert rig.text("a") == "".join(LETTERS[one] for one in answer)


def test_times_are_told_apart() -> None:
    rig = Rig()
    rig.add("a", range(1, 19), max_tokens=3)
    rig.now_s += 5.0
    rig.step()
    rig.now_s += 1.0
    rig.step()
    rig.step()
    rig.now_s += 2.0
    rig.run()
    usage = rig.finish("a").usage
    assert usage.queued_s == pytest.approx(5.0, abs=0.1)
    assert usage.prefill_s == pytest.approx(1.0, abs=0.1)
    assert usage.decode_s == pytest.approx(2.0, abs=0.1)


def test_decode_goes_on_beside_a_prompt() -> None:
    rig = Rig()
    rig.add("a", range(1, 5), max_tokens=20)
    rig.step()
    rig.add("b", range(20, 39), max_tokens=1)
    assert spans(rig.step()) == [(0, 4, 1, True), (1, 0, 8, False)]
    assert spans(rig.step()) == [(0, 5, 1, True), (1, 8, 8, False)]
    assert spans(rig.step()) == [(0, 6, 1, True), (1, 16, 3, True)]


def test_changed_tables_are_sent_once() -> None:
    rig = Rig()
    rig.add("a", [1, 2], max_tokens=6)
    tables = [rig.step().tables for _ in range(6)]  # type: ignore[union-attr]
    sent = [{lane: list(table[:3]) for lane, table in one.items()} for one in tables]
    assert sent == [{0: [0, 10, 10], 1: [10, 10, 10]}, {}, {}, {0: [0, 1, 10]}, {}, {}]


# How requests end


def test_end_token_stops_and_has_no_text() -> None:
    rig = Rig()
    rig.backend._next_id = lambda ids: END_ID if len(ids) == 6 else 9
    rig.add("a", [1, 2, 3], ignores_end=False)
    rig.run()
    assert rig.finish("a").finish is FinishReason.STOP
    assert rig.ids("a") == [9, 9, 9, END_ID]
    assert rig.text("a") == 3 * LETTERS[9]


def test_end_token_may_be_ignored() -> None:
    rig = Rig()
    rig.backend._next_id = lambda ids: END_ID
    rig.add("a", [1, 2, 3], max_tokens=3)
    rig.run()
    assert rig.finish("a").finish is FinishReason.LENGTH
    assert rig.text("a") == 3 * LETTERS[END_ID]


def test_stop_string_ends_and_is_no_part_of_the_text() -> None:
    rig = Rig()
    rig.backend._next_id = lambda ids: len(ids)
    rig.add("a", [1, 2, 3], stop=(LETTERS[6] + LETTERS[7],))
    rig.run()
    assert rig.finish("a").finish is FinishReason.STOP
    assert rig.text("a") == LETTERS[3:6]
    assert rig.ids("a") == [3, 4, 5, 6, 7]


def test_text_held_back_comes_with_the_finish() -> None:
    rig = Rig()
    rig.backend._next_id = lambda ids: len(ids)
    rig.add("a", [1, 2, 3], stop=(LETTERS[5] + "?",), max_tokens=3)
    rig.run()
    assert rig.text("a") == LETTERS[3:6]
    assert rig.finish("a").text == LETTERS[5]


def test_context_is_the_limit() -> None:
    rig = Rig()
    rig.add("a", range(40))
    rig.add("b", range(39))
    rig.run()
    error = rig.finish("a").error
    assert isinstance(error, ContextLengthError)
    assert (error.n_prompt_tokens, error.context_tokens) == (40, 40)
    assert rig.finish("b").finish is FinishReason.LENGTH
    assert rig.finish("b").usage.n_completion_tokens == 1
    rig.add("c", range(20))
    rig.run()
    assert rig.finish("c").usage.n_completion_tokens == 20


@pytest.mark.parametrize("n_steps", [0, 1, 4])
def test_cancel_ends_at_once_and_keeps_what_is_known(n_steps: int) -> None:
    rig = Rig()
    rig.add("a", range(1, 15))
    for _ in range(n_steps):
        rig.step()
    rig.scheduler.cancel("a")
    rig.scheduler.cancel("a")
    assert rig.finish("a").finish is FinishReason.CANCELLED
    assert rig.step() is None
    n_known = {0: 0, 1: 8, 4: 16}[n_steps]
    known = {one.id: (one.n_tokens, one.n_chunks, one.state) for one in rig.sessions().values()}
    assert known == ({} if n_steps == 0 else {"s1": (n_known, n_known // 4, "idle")})
    assert rig.scheduler.snapshot().requests.cancelled == 1


def test_cancel_between_plan_and_commit_counts_nothing_of_the_step() -> None:
    rig = Rig()
    rig.add("a", range(1, 15))
    rig.step()
    plan = rig.scheduler.plan()
    assert plan is not None
    rig.scheduler.cancel("a")
    rig.note(rig.scheduler.commit(plan, rig.backend.run(plan)))
    assert [event.kind.value for event in rig.events["a"]] == ["progress", "finish"]
    assert rig.sessions()["s1"].n_tokens == 8
    rig.scheduler.check()


def test_fault_in_picking_ends_one_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    rig.add("a", range(1, 5), max_tokens=6)
    rig.add("b", range(1, 5), max_tokens=6)
    rig.step()
    rig.step()
    plan = rig.scheduler.plan()
    assert plan is not None
    result = rig.backend.run(plan)
    result.logits[0][:] = np.nan  # type: ignore[index]
    with caplog.at_level("CRITICAL"):
        rig.note(rig.scheduler.commit(plan, result))
    rig.run()
    assert rig.finish("a").finish is FinishReason.ERROR
    assert rig.finish("a").error is not None
    assert rig.finish("b").finish is FinishReason.LENGTH
    assert rig.text("b") == alone(range(1, 5), max_tokens=6).text("alone")
    assert rig.scheduler.snapshot().requests.failed == 1


def test_abort_tells_every_open_request() -> None:
    rig = Rig()
    for name in "abc":
        rig.add(name, range(1, 15))
    rig.step()
    rig.note(rig.scheduler.abort(DeviceError("gone")))
    for name in "abc":
        assert isinstance(rig.finish(name).error, DeviceError)
    assert not rig.scheduler.has_work
    rig.scheduler.check()


def test_one_more_than_may_wait_is_refused() -> None:
    rig = Rig(max_waiting=1)
    rig.add("a", [1, 2], max_tokens=3)
    rig.add("b", [1, 2], max_tokens=3)
    error = rig.finish("b").error
    assert isinstance(error, QueueFullError)
    rig.run()
    assert rig.finish("a").finish is FinishReason.LENGTH
    assert rig.scheduler.snapshot().requests.refused == 1


def test_id_in_use_is_a_fault_of_the_caller() -> None:
    rig = Rig()
    rig.add("a", [1, 2])
    with pytest.raises(ValueError, match="'a' is in use"):
        rig.add("a", [1, 2])


# Going on from what is known


def test_second_turn_reads_only_what_is_new() -> None:
    rig = Rig()
    rig.add("a", range(1, 11), max_tokens=3)
    rig.run()
    turn = [*range(1, 11), *rig.ids("a"), 50, 51]
    rig.add("b", turn, max_tokens=3)
    assert spans(rig.step()) == [(0, 12, 3, True)]
    rig.run()
    assert rig.finish("b").usage.n_cached_tokens == 12
    assert list(rig.sessions()) == ["s1"]
    assert rig.text("b") == alone(turn, max_tokens=3).text("alone")


def test_regenerating_computes_the_last_prompt_token() -> None:
    rig = Rig()
    rig.add("a", range(1, 11), max_tokens=3)
    rig.run()
    rig.add("b", range(1, 11), max_tokens=3)
    assert spans(rig.step()) == [(0, 9, 1, True)]
    rig.run()
    assert rig.text("b") == rig.text("a")


def test_fork_shares_whole_chunks_and_copies_the_started_one() -> None:
    rig = Rig(make_shape(**BIG), span_tokens=256)
    start = run_of(1, 64 + 40)
    rig.add("a", start + run_of(2, 200), max_tokens=1)
    rig.run()  # s1: 304 tokens, chunks 0-4
    rig.add("b", start + run_of(3, 20), max_tokens=2)
    plan = rig.step()
    assert spans(plan) == [(1, 104, 20, True)]
    assert plan is not None
    assert plan.copies == (CellCopy(source=1, target=5, n_cells=40),)
    assert rig.chunks()[:6] == ["s1 s2", "s1", "s1", "s1", "s1", "s2"]
    rig.run()
    assert rig.text("b") == alone(start + run_of(3, 20), max_tokens=2).text("alone")
    held = rig.sessions()
    assert (held["s1"].n_shared_chunks, held["s2"].n_shared_chunks) == (1, 1)
    assert rig.scheduler.snapshot().work.copied_bytes == 40 * 4


def test_busy_session_is_forked() -> None:
    rig = Rig(make_shape(**BIG), span_tokens=256)
    prompt = run_of(1, 130)
    rig.add("a", prompt, max_tokens=50)
    rig.step()
    rig.add("b", [*prompt, 7], max_tokens=50)
    assert spans(rig.step()) == [(0, 130, 1, True), (1, 128, 3, True)]
    rig.run()
    assert rig.text("a") == alone(prompt, max_tokens=50).text("alone")
    assert rig.text("b") == alone([*prompt, 7], max_tokens=50).text("alone")


def test_rewinding_into_a_shared_chunk_copies_it_first() -> None:
    rig = Rig(make_shape(**BIG), span_tokens=256)
    prompt = run_of(1, 200)
    rig.add("a", prompt, max_tokens=1, session_key="a")
    rig.run()  # s1: chunks 0-3
    rig.add("b", [*prompt[:128], 7, 8], max_tokens=1, session_key="b")
    rig.run()  # s2 shares 0, 1 and holds 4
    assert rig.chunks()[:5] == ["s1 s2", "s1 s2", "s1", "s1", "s2"]
    edited = [*prompt[:100], *run_of(9, 10)]
    rig.add("c", edited, max_tokens=3, session_key="a")
    plan = rig.step()
    assert plan is not None
    assert spans(plan) == [(0, 100, 10, True)]
    assert plan.copies == (CellCopy(source=1, target=2, n_cells=36),)
    assert rig.chunks()[:5] == ["s1 s2", "s2", "s1", "", "s2"]
    rig.run()
    assert rig.text("c") == alone(edited, max_tokens=3).text("alone")
    again = [*prompt[:128], 7, 8]
    rig.add("d", again, max_tokens=1, session_key="b")
    rig.run()
    assert rig.text("d") == alone(again, max_tokens=1).text("alone")


def test_rewinding_just_into_a_shared_chunk_reads_its_start_again() -> None:
    rig = Rig(make_shape(**BIG), span_tokens=256)
    prompt = run_of(1, 200)
    rig.add("a", prompt, max_tokens=1, session_key="a")
    rig.run()
    rig.add("b", [*prompt[:128], 7, 8], max_tokens=1, session_key="b")
    rig.run()
    edited = [*prompt[:70], *run_of(9, 10)]
    rig.add("c", edited, max_tokens=3, session_key="a")
    plan = rig.step()
    assert plan is not None
    assert (spans(plan), plan.copies) == ([(0, 64, 16, True)], ())
    rig.run()
    assert rig.text("c") == alone(edited, max_tokens=3).text("alone")


def test_title_request_does_not_push_the_main_chat_out() -> None:
    rig = Rig()
    rig.add("chat", range(1, 15), max_tokens=1)
    rig.run()
    rig.add("title", [60, 61, *range(1, 5)], max_tokens=1)
    rig.run()
    rig.add("more", [*range(1, 15), 30], max_tokens=1)
    rig.run()
    assert rig.finish("more").usage.n_cached_tokens == 14


# Lanes and parking


def fill(rig: Rig, *names: str, n: int = 5) -> None:
    """Run a short conversation of its own for each name, one after another."""
    for name in names:
        rig.add(name, run_of(ord(name), n), max_tokens=1)
        rig.run()


def lanes(rig: Rig) -> dict[str, int | None]:
    return {one.id: one.lane for one in rig.sessions().values()}


def test_longest_idle_conversation_is_parked_for_a_new_one() -> None:
    rig = Rig()
    fill(rig, "a", "b", "c")
    assert lanes(rig) == {"s1": None, "s2": 1, "s3": 0}
    work = rig.scheduler.snapshot().work
    assert (work.n_swaps, work.copied_bytes, work.n_evictions) == (1, 0, 0)


def test_parked_conversation_is_admitted_by_a_swap_that_copies_nothing() -> None:
    rig = Rig()
    fill(rig, "a", "b", "c")
    turn = [*run_of(ord("a"), 5), 3, 4]
    rig.add("again", turn, max_tokens=2)
    plan = rig.step()
    assert plan is not None
    assert (spans(plan), plan.copies) == ([(1, 5, 2, True)], ())
    assert lanes(rig) == {"s1": 1, "s2": None, "s3": 0}
    rig.run()
    assert rig.text("again") == alone(turn, max_tokens=2).text("alone")
    work = rig.scheduler.snapshot().work
    assert (work.n_swaps, work.copied_bytes) == (2, 0)


def test_oldest_conversation_is_dropped_when_no_row_is_left() -> None:
    rig = Rig()
    fill(rig, "a", "b", "c", "d", "e")
    assert list(rig.sessions()) == ["s2", "s3", "s4", "s5"]
    fill(rig, "f")
    assert list(rig.sessions()) == ["s3", "s4", "s5", "s6"]
    assert rig.scheduler.snapshot().work.n_evictions == 2


def test_without_parking_rows_the_oldest_lane_is_taken() -> None:
    rig = Rig(make_shape(n_parked=0))
    fill(rig, "a", "b", "c")
    assert lanes(rig) == {"s2": 1, "s3": 0}


def test_fork_without_a_row_of_its_own_goes_on_in_the_source() -> None:
    shape = make_shape(**BIG, n_lanes=1, n_parked=0)
    rig = Rig(shape, span_tokens=256)
    rig.add("a", run_of(1, 300), max_tokens=1)
    rig.run()
    prompt = [*run_of(1, 70), 5]
    rig.add("b", prompt, max_tokens=2)
    rig.run()
    assert rig.finish("b").usage.n_cached_tokens == 64
    assert rig.text("b") == alone(prompt, max_tokens=2).text("alone")
    assert list(rig.sessions()) == ["s1"]


def test_requests_wait_for_a_lane_in_order() -> None:
    rig = Rig()
    for name in "abcd":
        rig.add(name, run_of(ord(name), 5), max_tokens=3)
    rig.step()
    counts = rig.scheduler.snapshot().requests
    assert (counts.running, counts.waiting) == (2, 2)
    rig.run()
    assert [rig.finish(name).finish for name in "abcd"] == 4 * [FinishReason.LENGTH]
    starts = [rig.finish(name).usage.queued_s for name in "abcd"]
    assert starts == sorted(starts)


# A full pool


def test_idle_conversations_give_way_oldest_first() -> None:
    rig = Rig(make_shape(n_parked=8))
    fill(rig, "a", "b", "c", n=10)  # 3 chunks each, 1 free
    rig.add("d", run_of(9, 17), max_tokens=1)  # 5 chunks
    rig.step()
    assert list(rig.sessions()) == ["s3", "s4"]
    rig.run()
    assert rig.finish("d").finish is FinishReason.LENGTH
    assert rig.scheduler.snapshot().work.n_evictions == 2


def test_short_conversation_gives_way_before_an_older_long_one() -> None:
    rig = Rig(make_shape(**BIG, n_parked=8), span_tokens=256)
    fill(rig, "a", n=300)
    fill(rig, "b", n=10)
    rig.add("c", run_of(9, 310), max_tokens=1)  # 5 of 4 free chunks
    rig.run()
    assert list(rig.sessions()) == ["s1", "s3"]


def test_nobody_is_evicted_for_a_prompt_that_would_not_fit_anyway() -> None:
    rig = Rig(make_shape(n_lanes=3))
    rig.add("long", run_of(1, 18), max_tokens=20)  # 5 chunks
    for _ in range(4):
        rig.step()
    fill_ids = run_of(2, 5)
    rig.add("idle", fill_ids, max_tokens=1)  # 2 chunks, then idle
    rig.step()
    rig.add("big", run_of(3, 36), max_tokens=1)  # 10 chunks
    rig.add("next", run_of(4, 3), max_tokens=1)
    plan = rig.step()
    error = rig.finish("big").error
    assert isinstance(error, KvPoolFullError)
    assert (error.cells_wanted, error.cells_total) == (37, 40)
    assert [one[0] for one in spans(plan)] == [0, 2]  # the next one went on in the same plan
    assert "s2" in rig.sessions()
    rig.run()
    assert rig.text("long") == alone(run_of(1, 18), max_tokens=20).text("alone")
    counts = rig.scheduler.snapshot().requests
    assert (counts.finished, counts.refused) == (3, 1)


def test_prompt_larger_than_the_pool_is_refused_at_once() -> None:
    rig = Rig(make_shape(context_tokens=80))
    rig.add("a", run_of(1, 40))
    assert isinstance(rig.finish("a").error, KvPoolFullError)
    assert rig.step() is None


def test_refusal_leaves_no_cells_behind() -> None:
    rig = Rig(make_shape(chunk_cells=8, n_chunks=16, context_tokens=128))
    rig.add("busy", run_of(1, 116), max_tokens=4)  # 15 of 16 chunks
    for _ in range(3):
        rig.step()
    rig.add("new", run_of(2, 40), max_tokens=4)
    rig.step()
    assert isinstance(rig.finish("new").error, KvPoolFullError)
    assert rig.scheduler.snapshot().kv_pool.free == 8
    rig.run()
    rig.scheduler.forget()
    assert rig.scheduler.snapshot().kv_pool.free == 128


def test_ten_prompts_one_after_another_all_run() -> None:
    rig = Rig(make_shape(chunk_cells=16, n_chunks=8, context_tokens=128, n_parked=8))
    for value in range(1, 11):
        rig.add(f"r{value}", run_of(value, 50), max_tokens=4)
        rig.run()
        assert rig.finish(f"r{value}").finish is FinishReason.LENGTH
    pool = rig.scheduler.snapshot().kv_pool
    assert [one.id for one in pool.sessions] == ["s9", "s10"]
    assert pool.free == 128 - 2 * 64


def test_latest_writer_ends_when_the_pool_is_full_and_serves_the_others() -> None:
    rig = Rig(make_shape(n_lanes=3, n_chunks=6))
    prompts = {"a": run_of(1, 5), "b": run_of(2, 6), "c": run_of(3, 7)}  # 2 chunks each
    for name, prompt in prompts.items():  # all of them want a third in step 5
        rig.add(name, prompt, max_tokens=8)
    rig.run()
    assert [rig.finish(name).finish for name in "abc"] == [
        FinishReason.LENGTH,
        FinishReason.LENGTH,
        FinishReason.POOL,
    ]
    for name in "ab":
        assert rig.text(name) == alone(prompts[name], max_tokens=8).text("alone")
    cut = rig.text("c")
    assert cut == alone(prompts["c"], max_tokens=8).text("alone")[: len(cut)]
    assert len(cut) == 2
    counts = rig.scheduler.snapshot().requests
    assert (counts.finished, counts.truncated) == (2, 1)


def test_conversation_cut_short_is_kept() -> None:
    rig = Rig(make_shape(n_chunks=2))
    rig.add("a", run_of(1, 6))
    rig.run()
    assert rig.finish("a").finish is FinishReason.POOL
    assert rig.finish("a").usage.n_completion_tokens == 3
    assert rig.sessions()["s1"].n_tokens == 8


def test_forget_frees_everything_but_busy_sessions() -> None:
    rig = Rig()
    fill(rig, "a", "b")
    rig.add("c", run_of(9, 5), max_tokens=20)
    rig.step()
    assert rig.scheduler.forget(["s1", "s3", "s99"]) == ("s1",)
    assert rig.scheduler.forget() == ("s2",)
    rig.run()
    assert rig.scheduler.forget() == ("s3",)
    pool = rig.scheduler.snapshot().kv_pool
    assert (pool.free, pool.held, pool.sessions) == (40, 0, ())
    rig.scheduler.check()


# Reads that give way


def test_short_read_overtakes_a_long_one_twice_at_most() -> None:
    rig = Rig(make_shape(n_lanes=5, n_chunks=40, context_tokens=80), span_tokens=4)
    rig.add("long", run_of(1, 60), max_tokens=1)
    rig.step()
    read_by = []
    for name in "abcd":
        rig.add(name, run_of(ord(name), 8), max_tokens=1)
    for _ in range(12):
        plan = rig.step()
        read_by.append(spans(plan)[-1][0] if plan else None)
    # a and b go first, then the long one may not be overtaken again
    assert read_by[:5] == [1, 1, 2, 2, 0]
    assert set(read_by[4:]) == {0}
    rig.run()
    assert all(rig.finish(name).finish is FinishReason.LENGTH for name in ("long", *"abcd"))


def test_long_read_gives_its_lane_to_a_short_prompt_and_goes_on_later() -> None:
    rig = Rig(make_shape(n_lanes=1, n_chunks=20, context_tokens=60), span_tokens=4)
    rig.add("long", run_of(1, 40), max_tokens=3)
    rig.step()
    rig.add("short", run_of(2, 6), max_tokens=2)
    plan = rig.step()
    assert plan is not None
    assert (spans(plan), plan.copies) == ([(0, 0, 4, False)], ())
    state = {one.id: (one.state, one.lane, one.n_tokens) for one in rig.sessions().values()}
    assert state == {"s1": ("waiting", None, 4), "s2": ("reading", 0, 4)}
    rig.run()
    assert rig.text("short") == alone(run_of(2, 6), max_tokens=2).text("alone")
    assert rig.text("long") == alone(run_of(1, 40), max_tokens=3, shape=rig.shape).text("alone")
    assert rig.finish("long").usage.n_cached_tokens == 0
    reads = [event.n_read for event in rig.events["long"] if event.kind is EventKind.PROGRESS]
    assert reads == list(range(4, 44, 4))
    assert rig.scheduler.snapshot().work.copied_bytes == 0


def test_lane_is_given_away_twice_at_most() -> None:
    rig = Rig(make_shape(n_lanes=1, n_chunks=30, context_tokens=80), span_tokens=4)
    rig.add("long", run_of(1, 70), max_tokens=1)
    rig.step()
    for name in "abc":
        rig.add(name, run_of(ord(name), 6), max_tokens=1)
    rig.run()
    ended = sorted(("long", *"abc"), key=lambda name: rig.finish(name).usage.queued_s)
    assert ended == ["long", "a", "b", "c"]
    plans = [plan.spans[0] for plan in rig.backend.plans]
    firsts = [int(span.ids[0]) for span in plans]
    assert firsts.index(ord("b")) < firsts.index(1, 2) < firsts.index(ord("c"))
    assert ord("c") not in firsts[: len(firsts) - firsts[::-1].index(1)]


def test_prompt_not_much_shorter_waits() -> None:
    rig = Rig(make_shape(n_lanes=1, n_chunks=20, context_tokens=60), span_tokens=4)
    rig.add("long", run_of(1, 24), max_tokens=1)
    rig.step()
    rig.add("half", run_of(2, 10), max_tokens=1)
    rig.step()
    assert rig.sessions()["s1"].state == "reading"
    rig.run()
    assert rig.finish("half").finish is FinishReason.LENGTH


def test_read_does_not_give_way_where_the_short_one_would_be_refused() -> None:
    rig = Rig(make_shape(n_lanes=1), span_tokens=4)
    rig.add("long", run_of(1, 37), max_tokens=1)  # all ten chunks
    rig.step()
    rig.add("short", run_of(2, 6), max_tokens=1)
    rig.step()
    assert rig.sessions()["s1"].state == "reading"
    rig.run()
    assert rig.finish("long").finish is FinishReason.LENGTH
    assert rig.finish("short").finish is FinishReason.LENGTH


def test_cancelled_while_it_waits_a_read_is_kept() -> None:
    rig = Rig(make_shape(n_lanes=1, n_chunks=20, context_tokens=60), span_tokens=4)
    rig.add("long", run_of(1, 40), max_tokens=3)
    rig.step()
    rig.add("short", run_of(2, 6), max_tokens=2)
    rig.step()
    rig.scheduler.cancel("long")
    assert rig.finish("long").finish is FinishReason.CANCELLED
    one = rig.sessions()["s1"]
    assert (one.state, one.lane, one.n_chunks) == ("idle", None, 1)
    rig.run()


# Without a pool


LANES: dict[str, Any] = {"n_parked": 0, "n_chunks": 20, "is_pooled": False}


def test_without_a_pool_there_are_no_tables_and_the_same_text() -> None:
    rig = Rig(make_shape(**LANES))
    rig.add("a", range(1, 15), max_tokens=6)
    rig.add("b", range(1, 13), max_tokens=6)
    rig.run()
    assert all(not plan.tables and not plan.copies for plan in rig.backend.plans)
    assert rig.text("a") == alone(range(1, 15), max_tokens=6).text("alone")
    assert rig.text("b") == alone(range(1, 13), max_tokens=6).text("alone")
    pool = rig.scheduler.snapshot().kv_pool
    assert (pool.is_pooled, pool.cells, pool.free, pool.held) == (False, 80, 0, 80)
    assert [one.n_cells_used for one in pool.chunks] == [4, 4, 4, 4, 3, *5 * [0]] + [
        4, 4, 4, 4, 1, *5 * [0]
    ]  # fmt: skip


def test_without_a_pool_a_session_goes_on_in_its_lane() -> None:
    rig = Rig(make_shape(**LANES))
    fill(rig, "a", "b")
    turn = [*run_of(ord("b"), 5), 3]
    rig.add("more", turn, max_tokens=1)
    assert spans(rig.step()) == [(1, 5, 1, True)]
    rig.run()
    assert rig.text("more") == alone(turn, max_tokens=1).text("alone")


def test_without_a_pool_the_oldest_lane_is_taken_over() -> None:
    rig = Rig(make_shape(**LANES))
    rig.add("a", [*run_of(7, 3), *run_of(8, 9)], max_tokens=1)
    rig.run()
    fill(rig, "b")
    prompt = [*run_of(7, 3), *run_of(9, 4)]
    rig.add("c", prompt, max_tokens=2)
    assert spans(rig.step()) == [(0, 3, 4, True)]  # the common start needs no reading
    rig.run()
    assert list(rig.sessions()) == ["s2", "s3"]
    assert rig.text("c") == alone(prompt, max_tokens=2).text("alone")
    work = rig.scheduler.snapshot().work
    assert (work.n_swaps, work.n_evictions) == (0, 1)


# What the dashboard sees


def test_snapshot_counts_truthfully() -> None:
    rig = Rig()
    rig.add("a", range(1, 11), max_tokens=3, session_key="chat")
    rig.step()
    one = rig.sessions()["s1"]
    assert (one.key, one.state, one.lane, one.n_tokens) == ("chat", "reading", 0, 8)
    assert (one.n_chunks, one.cells, one.bytes) == (3, 12, 48)
    assert (one.n_prompt_tokens, one.n_completion_tokens, one.idle_s) == (10, 0, 0.0)
    rig.step()
    assert rig.sessions()["s1"].state == "writing"
    rig.run()
    rig.now_s += 3.0
    snapshot = rig.scheduler.snapshot()
    one = snapshot.kv_pool.sessions[0]
    assert one.idle_s == pytest.approx(3.0, abs=0.1)
    assert one.tokens_per_s > 0
    work = snapshot.work
    assert (work.n_steps, work.n_prompt_tokens, work.n_completion_tokens) == (4, 10, 3)
    assert work.prefill_tokens_per_s > 0
    assert work.decode_tokens_per_s > 0
    assert snapshot.requests.finished == 1
    assert not snapshot.is_busy
    rig.now_s += 3.0
    work = rig.scheduler.snapshot().work
    assert (work.prefill_tokens_per_s, work.decode_tokens_per_s) == (0.0, 0.0)


def test_sampling_is_independent_of_other_lanes() -> None:
    params = SamplingParams(temperature=1.0, seed=11)
    rig = Rig()
    rig.add("a", range(1, 6), max_tokens=8, sampling=params)
    rig.add("b", range(1, 9), max_tokens=8, sampling=SamplingParams(temperature=1.0, seed=12))
    rig.run()
    lone = alone(range(1, 6), max_tokens=8, sampling=params)
    assert rig.text("a") == lone.text("alone")


def test_empty_prompt_is_refused() -> None:
    with pytest.raises(Exception, match="prompt is empty"):
        make_request("a", [])
    with pytest.raises(Exception, match="max_tokens must be 1 or more, got 0"):
        make_request("a", [1], max_tokens=0)
