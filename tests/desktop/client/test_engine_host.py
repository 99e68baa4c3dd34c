from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
from pytestqt.qtbot import QtBot

from engine.config import ApiConfig
from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.engine_host import EngineHost, LoadOptions, load_body
from strata_desktop.client.status_feed import StatusFeed


@pytest.mark.parametrize(
    ("options", "trained", "context", "pool"),
    [
        (LoadOptions(), 8192, 8192, 32768),
        (LoadOptions(), 262144, 32768, 65536),
        (LoadOptions(), 0, 32768, 65536),
        (LoadOptions(context_tokens=100_000), 262144, 100_000, 200_704),
        (LoadOptions(pool_tokens=5000), 8192, 8192, 8192),
    ],
)
def test_load_body(options: LoadOptions, trained: int, context: int, pool: int) -> None:
    body = load_body(Path("m.gguf"), options, trained)
    assert (body["context_tokens"], body["pool_tokens"]) == (context, pool)
    assert body["n_lanes"] == 4
    assert "n_threads" not in body


def test_starts_a_service_and_stops_it(qtbot: QtBot, qapp: object) -> None:
    client = ApiClient()
    host = EngineHost(client, api=ApiConfig(port=0))
    with qtbot.waitSignal(host.started, timeout=30_000) as started:
        host.start()
    assert started.args == [host.address]
    assert client.base_url == host.address
    seen: list[object] = []
    client.get_json("/v1/models", seen.append)
    qtbot.waitUntil(lambda: bool(seen))
    feed = StatusFeed(client)
    feed.start()
    qtbot.waitUntil(lambda: feed.latest is not None)
    assert feed.latest is not None
    assert feed.latest.model.state == "none"
    address = host.address
    client.close()
    host.stop()
    with pytest.raises(httpx.ConnectError):
        httpx.get(address + "/health", trust_env=False)


def test_fixed_port_in_use_is_said_and_can_be_tried_again(qtbot: QtBot, qapp: object) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        client = ApiClient()
        host = EngineHost(client, api=ApiConfig(port=port, is_port_fixed=True))
        with qtbot.waitSignal(host.failed, timeout=30_000) as failed:
            host.start()
        assert str(port) in failed.args[0]
    with qtbot.waitSignal(host.started, timeout=30_000):
        host.start()
    client.close()
    host.stop()


def test_missing_file_is_refused_with_words(qtbot: QtBot, qapp: object, tmp_path: Path) -> None:
    client = ApiClient()
    host = EngineHost(client, api=ApiConfig(port=0))
    with qtbot.waitSignal(host.started, timeout=30_000):
        host.start()
    with qtbot.waitSignal(host.load_failed, timeout=10_000) as refused:
        host.load(tmp_path / "нет.gguf")
    assert "нет.gguf" in refused.args[1]
    client.close()
    host.stop()
