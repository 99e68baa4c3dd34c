"""Counts of experts as cells: order, groups, words, and which snapshots count."""

from __future__ import annotations

import dataclasses

import pytest
from PySide6.QtCore import QObject, Signal

from engine.stats import ExpertPicks, ExpertState, StatusSnapshot
from strata_desktop.viewmodels.expert_map import WAITING, ExpertMapModel
from tests.desktop.snapshots import make_pool, make_status


class Feed(QObject):
    """A feed that says what the test emits."""

    status = Signal(object)
    offline = Signal(str)
    latest = None


def make_picks(*rows: tuple[int, ...], n_used: int = 2) -> ExpertPicks:
    return ExpertPicks(
        n_layers=len(rows),
        n_experts=len(rows[0]),
        n_experts_used=n_used,
        n_picks=sum(map(sum, rows)),
        counts=rows,
    )


def with_picks(picks: ExpertPicks | None) -> StatusSnapshot:
    experts = ExpertState(is_present=False, reason="All on the CPU.", picks=picks)
    return dataclasses.replace(make_status(make_pool(4)), experts=experts)


@pytest.fixture
def feed(qapp) -> Feed:
    return Feed()


@pytest.fixture
def model(feed: Feed) -> ExpertMapModel:
    made = ExpertMapModel(feed)
    made.n_changes = 0

    def count() -> None:
        made.n_changes += 1

    made.changed.connect(count)
    return made


def experts(model: ExpertMapModel, n_columns: int) -> list[list[tuple[int, ...]]]:
    return [[cell.experts for cell in row] for row in model.rows(n_columns)]


def test_a_dense_model_has_no_map(model, feed) -> None:
    feed.status.emit(make_status(make_pool(4)))
    assert model.picks is None
    assert model.rows(10) == ()
    assert (model.summary, model.facts, model.profile) == ("", "", "")
    assert model.n_changes == 0


def test_each_layer_has_its_most_picked_first_and_equals_by_number(model, feed) -> None:
    feed.status.emit(with_picks(make_picks((1, 5, 0, 5), (9, 0, 1, 0))))
    assert experts(model, 10) == [[(1,), (3,), (0,), (2,)], [(0,), (2,), (1,), (3,)]]
    first = model.rows(10)[0][0]
    assert (first.layer, first.first_place, first.n_picks) == (0, 0, 5)
    assert first.share == pytest.approx(5 / 11)
    model.set_sorted(is_sorted=False)
    assert experts(model, 10) == [[(0,), (1,), (2,), (3,)]] * 2
    assert model.n_changes == 2
    model.set_sorted(is_sorted=False)
    assert model.n_changes == 2


@pytest.mark.parametrize(("n_columns", "lengths"), [(7, [1] * 7), (6, [2, 2, 2, 1]), (3, [3, 3, 1]),
                                                    (1, [7]), (0, [7])])  # fmt: skip
def test_where_there_is_no_room_neighbours_share_a_cell(model, feed, n_columns, lengths) -> None:
    feed.status.emit(with_picks(make_picks((70, 60, 50, 40, 30, 20, 10))))
    (row,) = model.rows(n_columns)
    assert [len(cell.experts) for cell in row] == lengths
    assert sum(cell.n_picks for cell in row) == 280
    assert sum(cell.share * len(cell.experts) for cell in row) == pytest.approx(1)


def test_snapshots_without_counts_keep_those_before(model, feed) -> None:
    picks = make_picks((3, 1))
    feed.status.emit(with_picks(picks))
    feed.status.emit(with_picks(dataclasses.replace(picks, n_picks=6, counts=None)))
    assert model.picks == picks
    assert model.n_changes == 1
    feed.status.emit(with_picks(picks))
    assert model.n_changes == 1
    feed.status.emit(with_picks(make_picks((4, 2))))
    assert model.picks.n_picks == 6
    assert model.n_changes == 2


def test_a_model_given_back_or_an_engine_lost_takes_the_map_along(model, feed) -> None:
    feed.status.emit(with_picks(make_picks((3, 1))))
    feed.status.emit(make_status())
    assert model.picks is None
    feed.status.emit(with_picks(make_picks((3, 1))))
    feed.offline.emit("It is gone.")
    assert model.picks is None
    assert model.rows(5) == ()


def test_words(model, feed) -> None:
    feed.status.emit(with_picks(make_picks((0, 6, 1, 1, 2, 2), (4, 2, 2, 2, 1, 1))))
    assert model.facts == "2 layers of 6 experts, 2 for each token"
    assert model.profile == "24 picks. The 2 most picked of 6 in each layer got 58 % of them."
    assert model.summary == f"{model.facts}. {model.profile}"
    top = model.rows(6)[0][0]
    assert model.describe(top) == (
        "Layer 0, expert 1, place 1 · 6 picks · 50 % of the layer (an even share is 17 %)"
    )
    assert model.describe(model.rows(6)[0][5]).startswith(
        "Layer 0, expert 0, place 6 · 0 picks · 0 %"
    )
    assert model.describe(model.rows(3)[1][1]) == (
        "Layer 1, places 3 to 4 · 4 picks · on average 17 % of the layer each (an even share is "
        "17 %)"
    )
    model.set_sorted(is_sorted=False)
    assert model.describe(model.rows(6)[1][2]).startswith("Layer 1, expert 2 · 2 picks")
    assert model.describe(model.rows(3)[1][1]).startswith("Layer 1, experts 2–3 · 4 picks")


def test_before_the_first_token_it_says_what_to_do(model, feed) -> None:
    feed.status.emit(with_picks(make_picks((0, 0, 0))))
    assert model.profile == WAITING
    assert [cell.share for cell in model.rows(3)[0]] == [0, 0, 0]


def test_it_begins_with_what_the_feed_has_already(qapp) -> None:
    feed = Feed()
    feed.latest = with_picks(make_picks((3, 1)))
    assert ExpertMapModel(feed).picks.n_picks == 4
