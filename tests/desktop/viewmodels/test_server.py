from __future__ import annotations

import json
import shlex

import pytest

from engine.stats import RequestCounts, WorkCounts
from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.engine_host import EngineHost
from strata_desktop.client.status_feed import StatusFeed
from strata_desktop.viewmodels.memory_throttle import Throttle
from strata_desktop.viewmodels.server import ServerModel, curl_line
from tests.desktop.manual_clock import ManualClock
from tests.desktop.snapshots import make_pool, make_status

pytest_plugins = ("tests.desktop.panel_fixtures",)


@pytest.fixture
def model(client: ApiClient, feed: StatusFeed, clock: ManualClock) -> ServerModel:
    throttle = Throttle(interval_s=0.1, clock=clock, schedule=clock.schedule)
    return ServerModel(client, EngineHost(client), feed, throttle=throttle)


def test_what_to_copy(model: ServerModel, feed, client) -> None:
    feed.status.emit(make_status(make_pool(4)))
    shown = {snippet.title: snippet.text for snippet in model.snippets}
    assert shown["Base URL for editors and agents"] == f"{client.base_url}/v1"
    assert shown["Model name"] == "smollm2-135m"
    assert client.base_url in shown["A first request"]


def test_without_an_address_there_is_nothing_to_copy(qapp) -> None:
    client = ApiClient()
    try:
        made = ServerModel(client, EngineHost(client), StatusFeed(client))
        assert made.snippets == ()
        assert made.address == ""
        assert made.state_text == "The engine is starting."
    finally:
        client.close()


def test_the_curl_line_survives_a_shell() -> None:
    words = shlex.split(curl_line("http://127.0.0.1:8080", 'it\'s "odd"', platform="linux"))
    assert words[:2] == ["curl", "http://127.0.0.1:8080/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == 'it\'s "odd"'


def test_the_curl_line_is_quoted_for_windows() -> None:
    line = curl_line("http://127.0.0.1:8080", "m", platform="win32")
    assert line.endswith(
        '-d "{\\"model\\":\\"m\\",\\"messages\\":[{\\"role\\":\\"user\\",'
        '\\"content\\":\\"Say hello.\\"}]}"'
    )
    assert "'" not in line


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (make_status(), "Running, no model loaded"),
        (make_status(state="loading"), "Loading a model"),
        (make_status(state="failed", error="x"), "the last model did not load"),
        (make_status(make_pool(4)), "Ready for requests."),
    ],
)
def test_state_in_words(model: ServerModel, feed, status, told: str) -> None:
    feed.status.emit(status)
    assert told in model.state_text
    assert model.is_ready is told.startswith("Ready")


def test_counts(model: ServerModel, feed) -> None:
    assert {count.value for count in model.counts} == {"–"}
    feed.status.emit(
        make_status(
            make_pool(4),
            requests=RequestCounts(running=2, finished=1234),
            work=WorkCounts(n_completion_tokens=55_555, copied_bytes=2 << 20),
        )
    )
    shown = {count.label: count.value for count in model.counts}
    assert shown["Running"] == "2"
    assert shown["Waiting"] == "0"
    assert shown["Finished"] == "1,234"
    assert shown["Tokens written"] == "55,555"
    assert shown["K/V copied"] == "2.0 MiB"


def test_loss_is_said(model: ServerModel, feed) -> None:
    feed.status.emit(make_status(make_pool(4)))
    feed.offline.emit("The engine does not answer.")
    assert model.state_text == "The engine does not answer."
    assert model.model_id == ""
    assert {value for _, value in model.facts} == {"–"}


def test_repaints_ten_times_a_second(model: ServerModel, feed, clock) -> None:
    changes: list[int] = []
    model.changed.connect(lambda: changes.append(1))
    for _ in range(100):
        feed.status.emit(make_status(make_pool(4)))
        clock.advance(0.01)
    assert 10 <= len(changes) <= 11


def test_what_is_missing_is_said_in_words(model: ServerModel) -> None:
    told = " ".join(f"{what} {instead}" for what, instead in model.not_yet)
    for word in ("Tool calls", "Graphics card", "CUDA", "Embeddings", "Images"):
        assert word in told
