"""The counts of experts: sent when new and due, left out in between."""

from __future__ import annotations

import dataclasses

import pytest

from engine.api import status
from engine.api.metrics import metrics_json, metrics_text
from engine.api.schema import ExpertPicks, ExpertState, StatusSnapshot, format_status, parse_status
from tests.desktop.snapshots import make_pool, make_status
from tests.engine.api.test_metrics import samples_of


def make_picks(*rows: tuple[int, ...]) -> ExpertPicks:
    return ExpertPicks(
        n_layers=len(rows),
        n_experts=len(rows[0]),
        n_experts_used=2,
        n_picks=sum(map(sum, rows)),
        counts=rows,
    )


def with_picks(picks: ExpertPicks | None) -> StatusSnapshot:
    experts = ExpertState(is_present=False, reason="On the CPU.", picks=picks)
    return dataclasses.replace(make_status(make_pool(4)), experts=experts)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 500.0
        monkeypatch.setattr(status, "time", self)

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def sent(gate: status.CountsGate, picks: ExpertPicks | None) -> ExpertPicks | None:
    return gate.pass_on(with_picks(picks)).experts.picks


def test_counts_go_out_once_a_second_and_only_when_new(clock: Clock) -> None:
    gate = status.CountsGate()
    first, second, third = make_picks((3, 1)), make_picks((5, 1)), make_picks((5, 3))
    assert sent(gate, first) == first
    clock.now_s += 5
    assert sent(gate, first) == dataclasses.replace(first, counts=None)
    assert sent(gate, second) == second
    clock.now_s += 0.9
    # The sum is told at once, the counts when they are due.
    assert sent(gate, third) == dataclasses.replace(third, counts=None)
    clock.now_s += 0.1
    assert sent(gate, third) == third


def test_the_next_model_is_told_at_once(clock: Clock) -> None:
    gate = status.CountsGate()
    assert sent(gate, make_picks((3, 1))) is not None
    assert sent(gate, None) is None
    other = make_picks((0, 0, 0))
    assert sent(gate, other) == other


def test_the_rest_of_the_snapshot_stays(clock: Clock) -> None:
    gate = status.CountsGate()
    snapshot = with_picks(make_picks((3, 1)))
    assert gate.pass_on(snapshot) is snapshot
    again = gate.pass_on(snapshot)
    assert dataclasses.replace(again, experts=snapshot.experts) == snapshot
    assert again.experts.reason == "On the CPU."


@pytest.mark.parametrize("has_counts", [True, False])
def test_counts_survive_the_way_through_json(*, has_counts: bool) -> None:
    picks = make_picks((3, 0, 1), (2, 2, 0))
    snapshot = with_picks(picks if has_counts else dataclasses.replace(picks, counts=None))
    assert parse_status(format_status(snapshot)) == snapshot


def test_a_large_model_leaves_the_events_small() -> None:
    """48 layers of 512 experts: what goes out ten times a second is without them."""
    gate = status.CountsGate()
    snapshot = with_picks(make_picks(*(((1_000_000,) * 512,) * 48)))
    whole = len(format_status(gate.pass_on(snapshot)))
    bare = len(format_status(gate.pass_on(snapshot)))
    assert whole > 100_000
    assert bare == len(format_status(with_picks(None))) + len(
        '{"n_layers":48,"n_experts":512,"n_experts_used":2,"n_picks":24576000000,"counts":null}'
    ) - len("null")


def test_metrics_tell_each_expert() -> None:
    snapshot = with_picks(make_picks((3, 0, 1), (2, 2, 0)))
    samples = samples_of(metrics_text(snapshot))
    assert samples['strata_expert_picks_total{layer="0",expert="0"}'] == 3
    assert samples['strata_expert_picks_total{layer="1",expert="2"}'] == 0
    told = [value for name, value in samples.items() if name.startswith("strata_expert_picks")]
    assert (len(told), sum(told)) == (6, 8)
    body = metrics_json(snapshot)
    assert body["expert_picks"]["counts"] == ((3, 0, 1), (2, 2, 0))
    assert "expert_picks" not in metrics_text(with_picks(None))
    assert metrics_json(with_picks(None))["expert_picks"] is None
