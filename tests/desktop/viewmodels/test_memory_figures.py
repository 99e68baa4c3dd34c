from __future__ import annotations

import dataclasses

import pytest

from engine.stats import LoadProgress, RequestCounts, VramSnapshot, WorkCounts
from strata_desktop.viewmodels import memory_figures as figures
from tests.desktop.snapshots import GIB, HOST, Held, make_pool, make_status


def by_label(status) -> dict[str, figures.Figure]:
    return {figure.label: figure for figure in figures.make_figures(status)}


def all_text(status) -> str:
    return " ".join(
        f"{one.label} {one.value} {one.unit} {one.detail}" for one in figures.make_figures(status)
    )


def test_headline() -> None:
    pool = make_pool(
        16,
        [
            Held(id="s1", n_tokens=9000, state="writing", lane=0),
            Held(id="s2", n_tokens=100, state="writing", lane=1),
            Held(id="s3", n_tokens=100, state="idle"),
        ],
    )
    work = WorkCounts(decode_tokens_per_s=44.61, prefill_tokens_per_s=812.3)
    shown = by_label(make_status(pool, work=work, requests=RequestCounts(waiting=2)))
    assert shown["Pool held"].value == "225"
    assert shown["Pool held"].unit == "MiB"
    assert shown["Pool held"].detail == "20,480 cells\n31 % of pool"
    assert shown["Pool free"].detail == "45,056 cells\n69 % of pool"
    assert shown["Sessions"].value == "3"
    assert shown["Sessions"].detail == "2 writing\n1 idle"
    assert shown["Decode"].value == "44.6"
    assert "2 waiting" in shown["Decode"].detail
    assert shown["Prefill"].value == "812"
    assert shown["RAM left"].value == "21.0"
    assert shown["Commit left"].value == "31.0"


def test_the_same_figures_stand_in_the_same_places_whatever_happens() -> None:
    full = [one.label for one in figures.make_figures(make_status(make_pool(4)))]
    none = [one.label for one in figures.make_figures(make_status())]
    nothing = [one.label for one in figures.make_figures(None)]
    assert full == none == nothing
    assert len(full) == 7


@pytest.mark.parametrize("status", [None, make_status(), make_status(make_pool(1))])
def test_no_nan_no_none(status) -> None:
    told = all_text(status).lower()
    assert "nan" not in told
    assert "none " not in told.replace("none yet", "")
    assert "inf" not in told


def test_nan_speeds_read_as_nothing() -> None:
    work = WorkCounts(decode_tokens_per_s=float("nan"), prefill_tokens_per_s=float("inf"))
    shown = by_label(make_status(make_pool(1), work=work))
    assert shown["Decode"].value == "–"
    assert shown["Prefill"].value == "–"


def test_headroom_never_falls_below_zero() -> None:
    over = dataclasses.replace(
        HOST, commit_used_bytes=50 * GIB, commit_limit_bytes=48 * GIB, ram_available_bytes=0
    )
    assert figures.commit_headroom_bytes(over) == 0
    assert figures.ram_headroom_bytes(over) == 0
    untold = dataclasses.replace(HOST, commit_limit_bytes=0, ram_total_bytes=0)
    assert figures.commit_headroom_bytes(untold) is None
    assert figures.ram_headroom_bytes(untold) is None
    shown = by_label(make_status(memory=untold))
    assert shown["Commit left"].value == "–"
    assert shown["Commit left"].detail == "not told by the system"


def test_a_system_without_hard_commit_limit_is_said_so() -> None:
    free = dataclasses.replace(HOST, has_commit_limit=False)
    assert figures.commit_gauge(free).note == "This system sets no hard commit limit."
    assert "no hard limit" in by_label(make_status(memory=free))["Commit left"].detail
    assert figures.commit_gauge(HOST).note == ""


def test_gauges() -> None:
    ram = figures.ram_gauge(HOST)
    assert ram.text == "11.0 of 32.0 GiB · 21.0 left"
    assert ram.fill == pytest.approx(11 / 32)
    assert ram.note == "this engine 512 MiB"
    assert figures.vram_gauge(make_status()) is None
    card = VramSnapshot(
        is_present=True, reason="", name="A card", total_bytes=24 * GIB, used_bytes=6 * GIB
    )
    gauge = figures.vram_gauge(make_status(vram=card))
    assert gauge is not None
    assert gauge.label == "A card"
    assert gauge.text == "6.0 of 24.0 GiB · 18.0 left"


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (None, "Waiting for the engine's first report."),
        (make_status(), "No model is loaded"),
        (
            make_status(
                state="loading",
                progress=LoadProgress(stage="Reading weights", done_bytes=1, total_bytes=2),
            ),
            "is loaded: Reading weights.",
        ),
        (make_status(state="failed", error="The file is cut off."), "The file is cut off."),
        (make_status(make_pool(4)), ""),
    ],
)
def test_an_empty_pool_says_why(status, told: str) -> None:
    gap = figures.pool_gap(status)
    assert told in gap
    assert bool(gap) == bool(told)


def test_an_empty_table_says_why() -> None:
    assert "once a model is loaded" in figures.sessions_gap(make_status())
    assert "Send a message" in figures.sessions_gap(make_status(make_pool(4)))
    assert figures.sessions_gap(make_status(make_pool(4, [Held(id="s1", n_tokens=1)]))) == ""
