from __future__ import annotations

import threading
from typing import Any

from pytestqt.qtbot import QtBot

from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.chat_stream import ChatStream
from strata_desktop.client.replies import ApiFailure, ChatResult
from tests.desktop.fake_engine import FakeEngine, Reply

ASK = {"messages": [{"role": "user", "content": "red green blue"}]}


class Heard:
    """Everything a stream said."""

    def __init__(self, stream: ChatStream) -> None:
        self.text = ""
        self.progress: list[tuple[int, int]] = []
        self.ends: list[ChatResult | ApiFailure] = []
        stream.delta.connect(self._add)
        stream.progress.connect(lambda read, whole: self.progress.append((read, whole)))
        stream.finished.connect(self.ends.append)
        stream.failed.connect(self.ends.append)

    def _add(self, text: str) -> None:
        self.text += text


def test_json_round_trip_arrives_on_the_main_thread(
    qtbot: QtBot, engine: FakeEngine, client: ApiClient
) -> None:
    engine.replies["/v1/models"] = {"data": []}
    seen: list[tuple[Any, threading.Thread]] = []
    client.get_json("/v1/models", lambda reply: seen.append((reply, threading.current_thread())))
    qtbot.waitUntil(lambda: bool(seen))
    assert seen == [({"data": []}, threading.main_thread())]


def test_error_envelope_reaches_on_failure(
    qtbot: QtBot, engine: FakeEngine, client: ApiClient
) -> None:
    failures: list[ApiFailure] = []
    client.get_json("/nowhere", lambda reply: None, failures.append)
    qtbot.waitUntil(lambda: bool(failures))
    assert failures == [ApiFailure(message="No /nowhere here.", code="not_found", status=404)]


def test_calls_wait_for_the_address(qtbot: QtBot, engine: FakeEngine) -> None:
    engine.replies["/health"] = {"status": "ok"}
    late = ApiClient()
    seen: list[Any] = []
    late.get_json("/health", seen.append)
    qtbot.wait(50)
    assert seen == []
    late.set_base_url(engine.address + "/")
    qtbot.waitUntil(lambda: bool(seen))
    late.close()


def test_nobody_there_is_offline(qtbot: QtBot, engine: FakeEngine) -> None:
    engine.close()
    lonely = ApiClient(engine.address)
    failures: list[ApiFailure] = []
    lonely.get_json("/health", lambda reply: None, failures.append)
    stream = Heard(lonely.stream_chat(ASK))
    qtbot.waitUntil(lambda: bool(failures and stream.ends))
    assert failures[0].code == "offline"
    assert isinstance(stream.ends[0], ApiFailure)
    assert stream.ends[0].code == "offline"
    lonely.close()


def test_stream_delivers_text_progress_and_counts(
    qtbot: QtBot, engine: FakeEngine, client: ApiClient
) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.raw(b": reading\n\n")
        reply.event({"choices": [], "progress": {"n_read": 5, "n_prompt": 11}})
        reply.text("Grün \u2028")
        reply.text("done")
        reply.end("length", truncated=True)

    engine.on_chat = script
    heard = Heard(client.stream_chat(ASK))
    qtbot.waitUntil(lambda: bool(heard.ends))
    assert heard.text == "Grün \u2028done"
    assert heard.progress == [(5, 11)]
    assert heard.ends == [
        ChatResult(
            finish_reason="length",
            is_truncated=True,
            n_prompt_tokens=11,
            n_cached_tokens=4,
            n_completion_tokens=3,
            tokens_per_s=20.0,
            prompt_ms=50.0,
        )
    ]
    assert engine.chats[0]["stream"] is True
    assert engine.chats[0]["stream_options"]["include_progress"] is True


def test_refusal_before_the_stream_carries_code_and_retry(
    qtbot: QtBot, engine: FakeEngine, client: ApiClient
) -> None:
    engine.on_chat = lambda body, reply: reply.error(503, "kv_pool_full", "Full.", 10)
    heard = Heard(client.stream_chat(ASK))
    qtbot.waitUntil(lambda: bool(heard.ends))
    assert heard.ends == [
        ApiFailure(message="Full.", code="kv_pool_full", status=503, retry_after_s=10)
    ]


def test_error_inside_the_stream(qtbot: QtBot, engine: FakeEngine, client: ApiClient) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text("a")
        reply.event({"error": {"message": "Device lost.", "code": "device_error"}})

    engine.on_chat = script
    heard = Heard(client.stream_chat(ASK))
    qtbot.waitUntil(lambda: bool(heard.ends))
    assert heard.text == "a"
    assert heard.ends == [ApiFailure(message="Device lost.", code="device_error")]


def test_connection_that_ends_early_is_a_failure(
    qtbot: QtBot, engine: FakeEngine, client: ApiClient
) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text("half")

    engine.on_chat = script
    heard = Heard(client.stream_chat(ASK))
    qtbot.waitUntil(lambda: bool(heard.ends))
    assert heard.text == "half"
    assert isinstance(heard.ends[0], ApiFailure)
    assert heard.ends[0].code == "disconnected"


def test_line_that_is_not_json_is_a_failure(
    qtbot: QtBot, engine: FakeEngine, client: ApiClient
) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.event("not json")

    engine.on_chat = script
    heard = Heard(client.stream_chat(ASK))
    qtbot.waitUntil(lambda: bool(heard.ends))
    assert isinstance(heard.ends[0], ApiFailure)
    assert heard.ends[0].code == "bad_reply"


def test_cancel_ends_once_and_closes_the_connection(
    qtbot: QtBot, engine: FakeEngine, client: ApiClient
) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        for _ in range(2000):
            reply.text("word ")
            if engine.released.wait(0.01):
                return

    engine.on_chat = script
    stream = client.stream_chat(ASK)
    heard = Heard(stream)
    qtbot.waitUntil(lambda: "word" in heard.text)
    stream.cancel()
    assert heard.ends == [ChatResult(finish_reason="cancelled")]
    text = heard.text
    qtbot.waitUntil(engine.broken.is_set)
    assert heard.text == text
    assert len(heard.ends) == 1


def test_two_streams_run_at_once(qtbot: QtBot, engine: FakeEngine, client: ApiClient) -> None:
    both = threading.Barrier(2)

    def script(body: dict[str, Any], reply: Reply) -> None:
        both.wait(10)
        reply.begin()
        reply.text(body["messages"][0]["content"])
        reply.end()

    engine.on_chat = script
    heard = [
        Heard(client.stream_chat({"messages": [{"role": "user", "content": name}]}))
        for name in ("one", "two")
    ]
    qtbot.waitUntil(lambda: all(one.ends for one in heard))
    assert [one.text for one in heard] == ["one", "two"]


def test_close_in_the_middle_does_not_wait_for_the_answer(qtbot: QtBot, engine: FakeEngine) -> None:
    def script(body: dict[str, Any], reply: Reply) -> None:
        reply.begin()
        reply.text("a")
        engine.released.wait(10)

    engine.on_chat = script
    made = ApiClient(engine.address)
    heard = Heard(made.stream_chat(ASK))
    qtbot.waitUntil(lambda: heard.text == "a")
    made.close()
    assert not made._thread.is_alive()
    made.get_json("/health", lambda reply: None)
    qtbot.wait(20)
    assert heard.ends == []
