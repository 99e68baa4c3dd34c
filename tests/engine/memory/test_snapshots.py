"""Which states are worth keeping, and which give way."""

from __future__ import annotations

import pytest

from engine.memory.snapshots import MOST_A_SESSION, Mark, SnapshotShelf, plan_marks


def positions(marks: tuple[Mark, ...]) -> list[tuple[int, bool]]:
    return [(mark.n_tokens, mark.is_root) for mark in marks]


# Where a read stops


def test_first_message_and_both_ends_of_the_last_are_marked() -> None:
    marks = plan_marks([100, 200, 300, 400], n_prompt=404, n_known=0)
    assert positions(marks) == [(100, True), (300, False), (400, False)]


def test_what_is_known_is_not_marked_again() -> None:
    marks = plan_marks([100, 200, 300, 400], n_prompt=404, n_known=296)
    assert positions(marks) == [(400, False)]


def test_without_messages_the_last_token_is_left_alone() -> None:
    assert positions(plan_marks([], n_prompt=50, n_known=0)) == [(49, False)]
    assert positions(plan_marks([50], n_prompt=50, n_known=0)) == [(49, False)]


def test_answer_start_far_behind_the_last_message_is_marked_too() -> None:
    assert positions(plan_marks([40], n_prompt=90, n_known=0)) == [(40, False), (89, False)]


def test_short_messages_share_a_mark_and_short_prompts_have_none() -> None:
    marks = plan_marks([20, 24, 27], n_prompt=31, n_known=0)
    assert positions(marks) == [(20, True), (30, False)]
    assert plan_marks([3, 5], n_prompt=8, n_known=0) == ()
    assert plan_marks([], n_prompt=1, n_known=0) == ()


def test_single_message_is_no_root() -> None:
    assert positions(plan_marks([30], n_prompt=34, n_known=0)) == [(30, False)]


def test_common_start_that_must_be_read_is_marked() -> None:
    common = Mark(n_tokens=60, is_root=True)
    marks = plan_marks([], n_prompt=100, n_known=0, common=common)
    assert positions(marks) == [(60, True), (99, False)]
    marks = plan_marks([], n_prompt=100, n_known=29, common=common)
    assert positions(marks) == [(99, False)]


def test_marks_outside_the_prompt_are_passed_over() -> None:
    assert positions(plan_marks([10, 200], n_prompt=12, n_known=0)) == [(10, True)]


# The shelf


def test_snapshot_is_gone_when_its_last_holder_lets_go() -> None:
    shelf = SnapshotShelf(4)
    root = shelf.add(1, 100, is_root=True)
    turn = shelf.add(1, 200, is_root=False)
    shelf.share(1, 2, 150)
    assert (shelf.positions(1), shelf.positions(2)) == ((100, 200), (100,))
    assert shelf.cut(1, 0) == (turn,)
    assert shelf.at(2, 100) == root
    shelf.rename(2, 3)
    assert (shelf.positions(2), shelf.positions(3)) == ((), (100,))
    assert shelf.cut(3, 99) == (root,)
    assert len(shelf) == 0


def test_cut_keeps_what_lies_before() -> None:
    shelf = SnapshotShelf(4)
    shelf.add(1, 10, is_root=False)
    second = shelf.add(1, 20, is_root=False)
    assert shelf.cut(1, 20) == ()
    assert shelf.cut(1, 19) == (second,)
    assert shelf.positions(1) == (10,)


def test_longest_unused_gives_way_but_roots_last() -> None:
    shelf = SnapshotShelf(4)
    root = shelf.add(1, 10, is_root=True)
    first = shelf.add(1, 20, is_root=False)
    second = shelf.add(1, 30, is_root=False)
    assert shelf.victim(()) == first
    shelf.touch(first)
    assert shelf.victim(()) == second
    assert shelf.victim({first, second}) == root
    assert shelf.victim({first, second, root}) is None
    assert shelf.drop(second) == {1}
    assert shelf.positions(1) == (10, 20)


def test_roots_on_more_than_half_of_the_shelf_give_way_like_others() -> None:
    shelf = SnapshotShelf(4)
    roots = [shelf.add(number, 10, is_root=True) for number in (1, 2, 3)]
    shelf.add(4, 10, is_root=False)
    assert shelf.victim(()) == roots[0]


def test_one_conversation_keeps_its_root_and_its_newest_turns() -> None:
    shelf = SnapshotShelf(64)
    shelf.add(1, 10, is_root=True)
    for n_tokens in range(20, 100, 10):
        shelf.thin(1)
        shelf.add(1, n_tokens, is_root=False)
    assert shelf.positions(1) == (10, 70, 80, 90)
    assert len(shelf) == MOST_A_SESSION


def test_books_that_are_wrong_are_noticed() -> None:
    shelf = SnapshotShelf(1)
    shelf.add(1, 10, is_root=False)
    shelf.check([1])
    with pytest.raises(AssertionError, match="is held by"):
        shelf.check([2])
    with pytest.raises(AssertionError, match="holds 1 snapshots already"):
        shelf.add(1, 20, is_root=False)
