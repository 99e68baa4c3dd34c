from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from engine.stats import LoadProgress
from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.engine_host import EngineHost, LoadOptions
from strata_desktop.client.status_feed import StatusFeed
from strata_desktop.viewmodels.models import ModelsModel
from strata_desktop.viewmodels.models_fit import Fit
from tests.desktop.fake_engine import FakeEngine
from tests.desktop.snapshots import GIB, HOST, SUMMARY, make_pool, make_status


@pytest.fixture
def feed(client: ApiClient) -> StatusFeed:
    return StatusFeed(client)


@pytest.fixture
def host(client: ApiClient) -> EngineHost:
    return EngineHost(client)


@pytest.fixture
def files(tmp_path: Path, engine: FakeEngine) -> list[Path]:
    """Two model files the staged engine describes."""
    (tmp_path / "models").mkdir()
    paths = [tmp_path / "models" / f"{name}.gguf" for name in ("alpha", "beta")]
    engine.replies["/v1/inspect"] = {
        "models": [
            {**dataclasses.asdict(SUMMARY), "name": path.stem, "path": str(path), "newer": 1}
            for path in paths
        ],
        "errors": [],
    }
    return paths


@pytest.fixture
def model(client, host, feed, files, tmp_path: Path, qtbot) -> ModelsModel:
    made = ModelsModel(client, host, feed=feed, home=tmp_path)
    qtbot.waitUntil(lambda: not made.is_scanning, timeout=5000)
    return made


def ready(path: Path, **changes):
    summary = dataclasses.replace(SUMMARY, name=path.stem, path=str(path))
    return make_status(make_pool(8), summary=summary, **changes)


def test_the_own_folder_is_looked_through(model, engine, tmp_path: Path) -> None:
    assert engine.posts == [("/v1/inspect", {"path": str(tmp_path / "models")})]
    assert [entry.name for entry in model.list.entries] == ["alpha", "beta"]
    assert model.selected is not None
    assert model.selected.name == "alpha"
    assert model.list_gap == ""


def test_the_built_in_model_is_looked_at_too(client, host, feed, engine, tmp_path, qtbot) -> None:
    from engine.paths import bundled_model

    made = ModelsModel(client, host, feed=feed, home=tmp_path, built_in=bundled_model())
    qtbot.waitUntil(lambda: not made.is_scanning, timeout=5000)
    # Both are asked for at once; either may arrive first.
    looked_at = sorted(body["path"] for path, body in engine.posts if path == "/v1/inspect")
    assert looked_at == sorted([str(tmp_path / "models"), str(bundled_model())])
    made.add(bundled_model())
    assert made.places.added == ()


def test_an_empty_folder_says_what_to_do(client, host, feed, engine, tmp_path, qtbot) -> None:
    engine.replies["/v1/inspect"] = {"models": [], "errors": []}
    made = ModelsModel(client, host, feed=feed, home=tmp_path)
    assert made.list_gap == "Looking for models …"
    qtbot.waitUntil(lambda: not made.is_scanning, timeout=5000)
    assert str(tmp_path / "models") in made.list_gap
    assert "drop" in made.list_gap


def test_unreadable_files_are_listed_with_their_reason(model, engine, files, qtbot) -> None:
    engine.replies["/v1/inspect"] = {
        "models": [],
        "errors": [{"path": str(files[0]), "message": "alpha.gguf: it ends at byte 9."}],
    }
    model.rescan()
    qtbot.waitUntil(lambda: not model.is_scanning, timeout=5000)
    model.select(files[0])
    assert model.selected.problem == "alpha.gguf: it ends at byte 9."
    assert model.estimate is None
    assert not model.can_load


def test_an_added_file_is_selected_and_remembered(model, engine, tmp_path, qtbot) -> None:
    extra = tmp_path / "elsewhere" / "gamma.gguf"
    extra.parent.mkdir()
    extra.touch()
    engine.replies["/v1/inspect"] = {
        "models": [{**dataclasses.asdict(SUMMARY), "name": "gamma", "path": str(extra)}],
        "errors": [],
    }
    model.add(extra)
    qtbot.waitUntil(lambda: not model.is_scanning, timeout=5000)
    assert model.selected.path == extra
    assert model.places.added == (extra,)
    assert model.removable_place == extra
    with qtbot.waitSignal(model.notice):
        model.remove_selected()
    assert extra.exists()
    assert model.places.added == ()
    assert [entry.name for entry in model.list.entries] == ["alpha", "beta"]


def test_a_file_in_the_own_folder_needs_no_remembering(model, files, qtbot) -> None:
    model.select(files[0])
    files[1].touch()
    model.add(files[1])
    qtbot.waitUntil(lambda: not model.is_scanning, timeout=5000)
    assert model.selected.path == files[1]
    assert model.places.added == ()


def test_other_files_are_turned_away(model, tmp_path: Path, qtbot) -> None:
    other = tmp_path / "picture.png"
    other.touch()
    with qtbot.waitSignal(model.notice) as told:
        model.add(other)
    assert told.args[0].startswith("picture.png is not a GGUF file")
    assert model.places.added == ()


def test_a_folder_that_is_gone_is_named(client, host, feed, engine, tmp_path, qtbot) -> None:
    engine.close()
    made = ModelsModel(client, host, feed=feed, home=tmp_path)
    qtbot.waitUntil(lambda: not made.is_scanning, timeout=10000)
    assert "does not answer" in made.list_gap


def test_options_change_the_estimate(model, feed) -> None:
    feed.status.emit(make_status())
    told: list[int] = []
    model.estimate_changed.connect(lambda: told.append(1))
    before = model.estimate
    model.set_options(dataclasses.replace(model.options, pool_tokens=1_000_000))
    model.set_options(dataclasses.replace(model.options, pool_tokens=1_000_000))
    assert len(told) == 1
    assert before.fit is Fit.FITS
    assert model.estimate.kv_bytes > 10 * before.kv_bytes
    assert model.can_load
    model.set_options(dataclasses.replace(model.options, pool_tokens=4_000_000))
    assert model.estimate.fit is Fit.POOL_TOO_LARGE
    assert not model.can_load


def test_small_changes_of_free_memory_are_noise(model, feed) -> None:
    feed.status.emit(make_status())
    told: list[int] = []
    model.estimate_changed.connect(lambda: told.append(1))
    for mib in (1, 5, 30):
        memory = dataclasses.replace(
            HOST, ram_available_bytes=HOST.ram_available_bytes - mib * 1024**2
        )
        feed.status.emit(make_status(memory=memory))
    assert told == []
    memory = dataclasses.replace(HOST, ram_available_bytes=HOST.ram_available_bytes - GIB)
    feed.status.emit(make_status(memory=memory))
    assert told == [1]


def test_load_sends_the_chosen_options(model, feed, engine, files, qtbot) -> None:
    feed.status.emit(make_status())
    model.select(files[1])
    model.set_options(LoadOptions(context_tokens=2048, pool_tokens=10_000, n_lanes=2, n_threads=3))
    model.load()
    assert model.state == "loading"
    assert "beta" in model.state_text
    assert not model.can_load
    qtbot.waitUntil(lambda: any(path == "/v1/load" for path, _ in engine.posts), timeout=5000)
    bodies = [body for path, body in engine.posts if path == "/v1/load"]
    assert bodies == [
        {
            "path": str(files[1]),
            "context_tokens": 2048,
            "pool_tokens": 12_288,
            "n_lanes": 2,
            "n_threads": 3,
        }
    ]


def test_progress_in_words_and_as_a_part(model, feed, files) -> None:
    summary = dataclasses.replace(SUMMARY, name="alpha", path=str(files[0]))
    progress = LoadProgress(stage="Reading weights", done_bytes=34 << 20, total_bytes=100 << 20)
    feed.status.emit(make_status(state="loading", progress=progress, summary=summary))
    assert model.state == "loading"
    assert model.progress == pytest.approx(0.34)
    assert model.state_text == ("Loading alpha · Reading weights · 34.0 MiB of 100 MiB · 34 %")
    assert model.can_unload
    unknown = LoadProgress(stage="Reading the header", done_bytes=0, total_bytes=0)
    feed.status.emit(make_status(state="loading", progress=unknown, summary=summary))
    assert model.progress is None
    assert model.state_text == "Loading alpha · Reading the header"


def test_a_load_from_request_to_ready(model, feed, files, qtbot) -> None:
    feed.status.emit(make_status())
    model.load()
    # The status may be older than the request; the page must not fall back to "none".
    feed.status.emit(make_status())
    assert model.state == "loading"
    summary = dataclasses.replace(SUMMARY, name="alpha", path=str(files[0]))
    feed.status.emit(make_status(state="loading", summary=summary))
    feed.status.emit(ready(files[0]))
    assert model.state == "ready"
    assert model.state_text == "alpha is loaded."
    assert model.loaded_path == files[0]
    assert not model.has_failed


def test_failures_are_told_in_words(model, feed, host, files) -> None:
    feed.status.emit(make_status(state="failed", error="RAM is the limit."))
    assert model.has_failed
    assert "RAM is the limit." in model.state_text
    feed.status.emit(make_status())
    model.load()
    host.load_failed.emit(str(files[0]), "Another model is being loaded.")
    assert model.state == "none"
    assert model.has_failed
    assert model.state_text == "alpha.gguf was not loaded: Another model is being loaded."


def test_a_load_that_fails_before_a_report_of_it_came(model, feed, files) -> None:
    feed.status.emit(make_status())
    model.load()
    summary = dataclasses.replace(SUMMARY, name="alpha", path=str(files[0]))
    feed.status.emit(make_status(state="failed", error="It is cut off.", summary=summary))
    assert model.state == "failed"
    assert model.can_load


def test_a_load_that_fails_as_the_last_one_did_is_not_awaited_for_ever(model, feed) -> None:
    failed = make_status(state="failed", error="It is cut off.", summary=None, time_s=100)
    feed.status.emit(failed)
    model.load()
    feed.status.emit(dataclasses.replace(failed, time_s=101))
    assert model.state == "loading"
    feed.status.emit(dataclasses.replace(failed, time_s=107))
    assert model.state == "failed"
    assert "It is cut off." in model.state_text


def test_unload_asks_the_engine(model, feed, engine, files, qtbot) -> None:
    feed.status.emit(ready(files[0]))
    model.unload()
    qtbot.waitUntil(lambda: ("/v1/unload", {}) in engine.posts, timeout=5000)


def test_offline(model, feed) -> None:
    feed.status.emit(make_status())
    feed.offline.emit("The engine does not answer.")
    assert model.state == "offline"
    assert model.state_text == "The engine does not answer."
    assert not model.can_load
    assert not model.can_unload
