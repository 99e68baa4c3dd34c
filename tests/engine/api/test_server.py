"""Real sockets: ports, disconnects, keep-alives, and the openai package as a client."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from engine.api.server import base_url, bind
from engine.config import ApiConfig
from engine.errors import ConfigError
from tests.engine.api.api_rig import HI, LIMIT_S, ApiRig, error_of

MakeRig = Callable[..., ApiRig]

LONG = {"messages": HI, "max_tokens": -1, "ignore_eos": True}
"""An answer that goes on until something ends it (or the context is full)."""


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def served(make_rig: MakeRig, **options: Any) -> ApiRig:
    api = options.pop("api", ApiConfig(port=0))
    rig = make_rig(api=api, **options)
    rig.service.start()
    return rig


def test_a_taken_port_gives_the_next_one_and_says_so(make_rig: MakeRig, taken: int) -> None:
    rig = make_rig(api=ApiConfig(port=taken), is_loaded=False)
    address = rig.service.start()
    assert address == rig.service.address
    port = int(address.rsplit(":", 1)[1])
    assert taken < port < taken + 64
    assert httpx.get(f"{address}/health").json()["status"] == "ok"
    server = httpx.get(f"{address}/v1/status").json()["server"]
    assert server["address"] == address
    assert str(taken) in server["note"]
    assert str(port) in server["note"]


def test_a_fixed_port_that_is_taken_is_an_error(taken: int) -> None:
    with pytest.raises(ConfigError, match=str(taken)):
        bind(ApiConfig(port=taken, is_port_fixed=True))


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.7"])
def test_an_address_that_is_not_here_is_an_error(host: str) -> None:
    with pytest.raises(ConfigError, match=host):
        bind(ApiConfig(host=host, port=0))


@pytest.mark.parametrize(
    ("host", "start"),
    [("127.0.0.1", "http://127.0.0.1:"), ("localhost", "http://127.0.0.1:")]
    + [("0.0.0.0", "http://127.0.0.1:")],
)
def test_base_urls_can_be_used_on_this_machine(host: str, start: str) -> None:
    with bind(ApiConfig(host=host, port=0)) as sock:
        assert base_url(sock).startswith(start)
        assert not base_url(sock).endswith(":0")


def test_ipv6_addresses_are_written_in_brackets() -> None:
    try:
        sock = bind(ApiConfig(host="::1", port=0))
    except ConfigError:
        pytest.skip("this machine has no IPv6 loopback")
    with sock:
        assert base_url(sock).startswith("http://[::1]:")


def is_idle(rig: ApiRig) -> bool:
    return not rig.snapshot().is_busy


@pytest.mark.parametrize("stream", [True, False])
def test_closing_the_connection_cancels_the_request(make_rig: MakeRig, stream: bool) -> None:
    rig = served(make_rig, delay_s=0.02)
    body = json.dumps({**LONG, "stream": stream}).encode()
    host, port = rig.service.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as sock:
        sock.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        )
        if stream:
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
        rig.wait_until(lambda: rig.snapshot().requests.running == 1)
    rig.wait_until(lambda: rig.snapshot().requests.cancelled == 1)
    rig.wait_until(lambda: is_idle(rig))
    counts = rig.snapshot().requests
    assert (counts.running, counts.waiting, counts.finished) == (0, 0, 0)
    assert rig.chat(max_tokens=1).status_code == 200


def test_closing_before_the_head_of_a_stream_cancels_too(make_rig: MakeRig) -> None:
    # The gate holds the first step, so that no event has come yet.
    rig = served(make_rig, is_gated=True)
    with (
        pytest.raises(httpx.ReadTimeout),
        httpx.Client(base_url=rig.service.address, timeout=0.3) as client,
    ):
        client.post("/v1/chat/completions", json={**LONG, "stream": True})
    rig.gate.set()
    rig.wait_until(lambda: rig.snapshot().requests.cancelled == 1)


def test_k046_comments_come_while_nothing_else_does(make_rig: MakeRig) -> None:
    rig = served(make_rig, is_gated=True, api=ApiConfig(port=0, keep_alive_s=0.1))
    with (
        httpx.Client(base_url=rig.service.address, timeout=LIMIT_S) as client,
        client.stream(
            "POST", "/v1/chat/completions", json={"messages": HI, "stream": True, "max_tokens": 3}
        ) as reply,
    ):
        assert reply.status_code == 200
        blocks: list[str] = []
        for line in reply.iter_lines():
            blocks.append(line)
            if sum(line.startswith(":") for line in blocks) == 3:
                rig.gate.set()
    lines = [line for line in blocks if line]
    assert sum(line.startswith(":") for line in lines) >= 3
    assert all(line.startswith((": ", "data: ")) for line in lines)
    assert all(len(line) > len("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"


def test_k046_comments_can_be_switched_off(make_rig: MakeRig) -> None:
    rig = served(make_rig, api=ApiConfig(port=0, keep_alive_s=0), delay_s=0.3)
    reply = httpx.post(
        f"{rig.service.address}/v1/completions",
        json={"prompt": [9] * 100, "max_tokens": 2, "stream": True},
        timeout=LIMIT_S,
    )
    assert not any(line.startswith(":") for line in reply.text.splitlines())


def test_a_long_read_is_told_in_comments(make_rig: MakeRig) -> None:
    rig = served(make_rig, delay_s=0.3)
    reply = httpx.post(
        f"{rig.service.address}/v1/completions",
        json={"prompt": [9] * 100, "max_tokens": 2, "stream": True},
        timeout=LIMIT_S,
    )
    comments = [line for line in reply.text.splitlines() if line.startswith(":")]
    assert comments
    assert "of 100 tokens" in comments[0]


@pytest.mark.parametrize("stream", [True, False])
def test_stop_in_the_middle_of_an_answer_is_quick_and_told(make_rig: MakeRig, stream: bool) -> None:
    rig = served(make_rig, delay_s=0.02)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            httpx.post,
            f"{rig.service.address}/v1/chat/completions",
            json={**LONG, "stream": stream},
            timeout=LIMIT_S,
        )
        rig.wait_until(lambda: rig.snapshot().requests.running == 1)
        time.sleep(0.1)
        rig.service.stop()
        reply = asked.result()
    if stream:
        last = json.loads(reply.text.strip().split("\n\n")[-1].removeprefix("data: "))
        assert last["error"]["code"] == "engine_stopped"
    else:
        assert reply.status_code == 503
        assert error_of(reply)["code"] == "engine_stopped"
    names = {thread.name for thread in threading.enumerate()}
    assert not names & {"strata-api", "strata-engine", "strata-load"}


def test_stop_ends_the_status_stream(make_rig: MakeRig) -> None:
    rig = served(make_rig)
    with httpx.stream("GET", f"{rig.service.address}/v1/status/events") as reply:
        lines = reply.iter_lines()
        assert next(lines).startswith("data: ")
        rig.service.stop()
        assert list(lines) == [""]


def test_other_requests_are_answered_while_one_is_read(make_rig: MakeRig) -> None:
    rig = served(make_rig, is_gated=True)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            httpx.post,
            f"{rig.service.address}/v1/chat/completions",
            json={"messages": HI, "max_tokens": 2},
            timeout=LIMIT_S,
        )
        for path in ("/health", "/v1/status", "/v1/models", "/metrics"):
            assert httpx.get(rig.service.address + path, timeout=5).status_code == 200
        assert not asked.done()
        rig.gate.set()
        assert asked.result().status_code == 200


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_k101_a_request_without_a_host_is_400(make_rig: MakeRig, version: bytes) -> None:
    rig = served(make_rig, is_loaded=False)
    host, port = rig.service.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as sock:
        sock.sendall(b"GET /health HTTP/%s\r\nConnection: close\r\n\r\n" % version)
        reply = b"".join(iter(lambda: sock.recv(65536), b""))
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    # One that needs a Host and has none is refused before our check sees it.
    wanted = "invalid_host" if version == b"1.0" else "invalid_http"
    assert json.loads(body)["error"]["code"] == wanted


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/count HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_k013_what_is_no_http_gets_the_envelope(make_rig: MakeRig, garbage: bytes) -> None:
    rig = served(make_rig, is_loaded=False)
    host, port = rig.service.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as sock:
        sock.sendall(garbage)
        reply = b"".join(iter(lambda: sock.recv(65536), b""))
    head, _, body = reply.partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert json.loads(body)["error"]["code"] == "invalid_http"


def test_a_head_reply_has_no_body(make_rig: MakeRig) -> None:
    rig = served(make_rig, is_loaded=False)
    reply = httpx.head(f"{rig.service.address}/health")
    assert (reply.status_code, reply.content) == (200, b"")


TURNS: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]


def test_the_openai_package_is_content(make_rig: MakeRig) -> None:
    rig = served(make_rig, text="the cat sat")
    with openai.OpenAI(base_url=f"{rig.service.address}/v1", api_key="none") as client:
        assert [model.id for model in client.models.list()] == ["tiny"]
        assert client.models.retrieve("tiny").owned_by == "strata"
        whole = client.chat.completions.create(model="any", messages=TURNS, temperature=0)
        assert whole.choices[0].message.content == "the cat sat"
        assert whole.usage is not None
        assert whole.usage.completion_tokens > 0
        chunks = list(
            client.chat.completions.create(
                model="any",
                messages=TURNS,
                stream=True,
                stream_options={"include_usage": True},
                temperature=0,
            )
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == "the cat sat"
        assert chunks[0].choices[0].delta.role == "assistant"
        assert chunks[-2].choices[0].finish_reason == "stop"
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
        plain = client.completions.create(model="any", prompt="x", max_tokens=3, temperature=0)
        assert plain.object == "text_completion"
        again = client.chat.completions.create(
            model="any",
            messages=[*TURNS, whole.choices[0].message, *TURNS],  # type: ignore[list-item]
            max_tokens=1,
        )
        assert again.choices[0].finish_reason == "length"


def test_the_openai_package_understands_our_errors(make_rig: MakeRig) -> None:
    rig = served(make_rig, fails_at_step=4)
    address = f"{rig.service.address}/v1"
    with openai.OpenAI(base_url=address, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(model="m", messages=TURNS, n=2)
        assert refused.value.param == "n"
        with pytest.raises(openai.APIError, match="scripted device failed"):
            list(
                client.chat.completions.create(
                    model="m", messages=TURNS, stream=True, temperature=0
                )
            )
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("other")


def test_the_openai_package_sends_its_key(make_rig: MakeRig) -> None:
    rig = served(make_rig, api=ApiConfig(port=0, api_key="right"))
    address = f"{rig.service.address}/v1"
    with openai.OpenAI(base_url=address, api_key="right", max_retries=0) as client:
        assert len(list(client.models.list())) == 1
    with (
        openai.OpenAI(base_url=address, api_key="wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError, match="wrong API key"),
    ):
        client.models.list()
