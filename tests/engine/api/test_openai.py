"""Chat and completions as editors use them: whole answers, streams, counts, finish reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from engine.tokenizer.markers import Segment
from engine.tokenizer.tokenizer import Tokenizer
from tests.engine.api.api_rig import HI, ApiRig, error_of, events_of, text_of

MakeRig = Callable[..., ApiRig]

CHUNK_KEYS = {"id", "object", "created", "model", "system_fingerprint", "choices"}


def test_a_whole_chat_answer_has_every_field_clients_read(make_rig: MakeRig) -> None:
    rig = make_rig(text="the cat sat")
    reply = rig.chat(max_tokens=50).json()
    assert set(reply) == {*CHUNK_KEYS, "usage", "timings"}
    assert reply["object"] == "chat.completion"
    assert reply["id"].startswith("chatcmpl-")
    assert isinstance(reply["created"], int)
    assert reply["model"] == "tiny"
    [choice] = reply["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": "the cat sat"},
        "logprobs": None,
        "finish_reason": "stop",
    }
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}
    timings = reply["timings"]
    assert timings["prompt_n"] == usage["prompt_tokens"]
    assert timings["cache_n"] == 0
    assert timings["predicted_n"] == usage["completion_tokens"]
    assert timings["prompt_ms"] > 0
    assert timings["predicted_per_second"] > 0


def test_stream_and_whole_answer_say_the_same(rig: ApiRig) -> None:
    whole = rig.chat(max_tokens=20).json()["choices"][0]
    events = events_of(rig.chat(max_tokens=20, stream=True))
    assert text_of(events) == whole["message"]["content"] != ""
    assert events[-2]["choices"][0]["finish_reason"] == whole["finish_reason"] == "length"


def test_k007_no_usage_chunk_unless_asked(rig: ApiRig) -> None:
    events = events_of(rig.chat(stream=True))
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert all(len(chunk["choices"]) == 1 for chunk in chunks)
    assert not any("usage" in chunk for chunk in chunks)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len({chunk["id"] for chunk in chunks}) == 1
    for chunk in chunks:
        assert chunk["object"] == "chat.completion.chunk"
        assert isinstance(chunk["created"], int)
        assert set(chunk["choices"][0]) == {"index", "delta", "logprobs", "finish_reason"}
    finishes = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert finishes == [None] * (len(chunks) - 1) + ["length"]
    assert chunks[-1]["timings"]["predicted_n"] == 8


def test_k008_one_usage_chunk_when_asked(rig: ApiRig) -> None:
    events = events_of(rig.chat(stream=True, stream_options={"include_usage": True}))
    *chunks, counts, done = events
    assert done == "[DONE]"
    assert counts["choices"] == []
    usage = counts["usage"]
    assert usage["completion_tokens"] == 8
    assert usage["total_tokens"] == usage["prompt_tokens"] + 8
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert all(chunk.get("usage") is None for chunk in chunks)


@pytest.mark.parametrize("stop", ["", [], [""], None])
def test_k004_empty_stop_strings_are_dropped(rig: ApiRig, stop: Any) -> None:
    assert rig.chat(stop=stop).json()["choices"][0]["message"]["content"]


def test_k004_empty_stop_string_beside_a_real_one(make_rig: MakeRig) -> None:
    rig = make_rig(text="one\n\ntwo")
    choice = rig.chat(stop=["", "\n\n"], max_tokens=99).json()["choices"][0]
    assert choice["message"]["content"] == "one"
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "limits", [{"max_completion_tokens": 5}, {"max_completion_tokens": 5, "max_tokens": 500}]
)
def test_k005_max_completion_tokens_wins(rig: ApiRig, limits: dict[str, int]) -> None:
    reply = rig.post(
        "/v1/chat/completions", {"model": "m", "messages": HI, "temperature": 0, **limits}
    ).json()
    assert reply["usage"]["completion_tokens"] == 5
    assert reply["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("limit", [0, -1, None, 5.0])
def test_no_limit_means_the_rest_of_the_context(rig: ApiRig, limit: Any) -> None:
    usage = rig.chat(max_tokens=limit, ignore_eos=True).json()["usage"]
    assert usage["completion_tokens"] == (5 if limit == 5.0 else 256 - usage["prompt_tokens"])


def test_k031_a_stop_string_across_tokens_is_never_sent(make_rig: MakeRig) -> None:
    rig = make_rig(text="ok\nUser: x")
    events = events_of(rig.chat(stop=["\nUser:", "</end>"], max_tokens=50, stream=True))
    assert text_of(events) == "ok"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"


def test_k031_a_near_miss_is_complete(make_rig: MakeRig) -> None:
    rig = make_rig(text="ok\nUsage")
    for stream in (False, True):
        reply = rig.chat(stop=["\nUser:", "</end>"], max_tokens=50, stream=stream)
        text = text_of(events_of(reply)) if stream else None
        text = text or reply.json()["choices"][0]["message"]["content"]
        assert text == "ok\nUsage"


def test_same_seed_same_answer(rig: ApiRig) -> None:
    def say(seed: int) -> str:
        reply = rig.chat(temperature=1.5, seed=seed, top_k=0, top_p=1, max_tokens=12)
        content: str = reply.json()["choices"][0]["message"]["content"]
        return content

    assert say(7) == say(7)
    assert say(7) != say(8)


def test_k050_the_second_turn_reuses_the_first(make_rig: MakeRig) -> None:
    rig = make_rig(text="the cat sat on the mat")
    first = rig.chat(messages=[{"role": "user", "content": "a"}], max_tokens=50).json()
    answer = first["choices"][0]["message"]
    rig.chat(messages=[{"role": "user", "content": "Give this chat a title"}])
    second = rig.chat(
        messages=[{"role": "user", "content": "a"}, answer, {"role": "user", "content": "b"}]
    ).json()
    usage = second["usage"]
    known = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] - 1
    assert usage["prompt_tokens_details"]["cached_tokens"] >= known
    assert second["timings"]["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert second["timings"]["prompt_n"] + second["timings"]["cache_n"] == usage["prompt_tokens"]


def test_prompt_cache_key_names_the_session(rig: ApiRig) -> None:
    rig.chat(prompt_cache_key="my-chat", user="ignored")
    assert [session.key for session in rig.snapshot().kv_pool.sessions] == ["my-chat"]


def test_a_full_pool_ends_the_answer_as_length_and_says_truncated(make_rig: MakeRig) -> None:
    # 16 chunks of 8 cells, and two answers that each want them all.
    rig = make_rig(context_tokens=128, pool_cells=128, delay_s=0.01)

    def ask(n: int) -> httpx.Response:
        prompt = [{"role": "user", "content": f"{n}"}]
        return rig.chat(messages=prompt, max_tokens=-1, ignore_eos=True, stream=n == 1)

    with ThreadPoolExecutor(2) as pool:
        whole, stream = pool.map(ask, range(2))
    *_, last, _ = events_of(stream)
    told = [whole.json().get("truncated", False), last.get("truncated", False)]
    assert any(told)
    assert whole.json()["choices"][0]["finish_reason"] == "length"
    assert last["choices"][0]["finish_reason"] == "length"


def test_k044_a_request_that_cannot_get_cells_is_503_at_once(make_rig: MakeRig) -> None:
    rig = make_rig(context_tokens=128, pool_cells=128, delay_s=0.04)
    with ThreadPoolExecutor(1) as pool:
        # 7 steps of reading, 27 of writing, more than a second in all.
        writing = pool.submit(rig.text, prompt=[5] * 100, max_tokens=27, ignore_eos=True)
        rig.wait_until(lambda: rig.snapshot().requests.running == 1)
        for is_stream in (False, True):
            refused = rig.text(prompt=[6] * 60, stream=is_stream)
            assert not writing.done()
            assert refused.status_code == 503
            assert refused.headers["retry-after"] == "10"
            error = error_of(refused)
            assert error["code"] == "kv_pool_full"
            assert error["type"] == "server_error"
        assert writing.result().json()["usage"]["completion_tokens"] == 27
    assert rig.snapshot().requests.refused == 2
    [session] = rig.snapshot().kv_pool.sessions
    assert session.n_tokens == 126


def test_k043_finished_requests_give_their_cells_back(make_rig: MakeRig) -> None:
    rig = make_rig(context_tokens=128, pool_cells=128)
    for token in range(10):
        assert rig.text(prompt=[token + 10] * 50, max_tokens=2).status_code == 200
    pool = rig.snapshot().kv_pool
    assert pool.free + pool.held == 128
    assert pool.held == sum(session.cells for session in pool.sessions)
    assert [session.id for session in pool.sessions][-1] == "s10"


def test_k037_text_completion_envelope_without_template(make_rig: MakeRig) -> None:
    rig = make_rig(text="x)")
    reply = rig.text(prompt="def f(", max_tokens=4)
    body = reply.json()
    assert set(body) == {*CHUNK_KEYS, "usage", "timings"}
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [
        {"text": "x)", "index": 0, "logprobs": None, "finish_reason": "stop"}
    ]
    assert rig.prompt_text(reply) == "def f("


def test_text_completion_streams(make_rig: MakeRig) -> None:
    rig = make_rig(text="x) return x")
    events = events_of(rig.text(stream=True, max_tokens=50, stream_options={"include_usage": True}))
    assert "".join(c["choices"][0]["text"] for c in events[:-2]) == "x) return x"
    assert events[-3]["choices"][0]["finish_reason"] == "stop"
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] > 0
    assert events[-1] == "[DONE]"


def test_k038_suffix(rig: ApiRig) -> None:
    refused = rig.text(suffix="\n  return x")
    assert refused.status_code == 400
    assert error_of(refused)["param"] == "suffix"
    assert rig.text(suffix=None).status_code == 200


@pytest.mark.parametrize("form", ["text", "list of text", "ids", "list of ids"])
def test_prompts_come_as_text_or_ids(rig: ApiRig, form: str) -> None:
    loaded = rig.service.loaded
    assert loaded is not None
    ids = loaded.tokenizer.encode("the cat")
    prompt = {"text": "the cat", "list of text": ["the cat"], "ids": ids, "list of ids": [ids]}[
        form
    ]
    reply = rig.text(prompt=prompt)
    assert rig.prompt_text(reply) == "the cat"


def test_k040_the_answer_is_shortened_to_the_room_left(rig: ApiRig) -> None:
    for wanted in (32, 1_000_000):
        reply = rig.text(prompt=[9] * 250, max_tokens=wanted, ignore_eos=True)
        assert reply.status_code == 200
        body = reply.json()
        assert body["usage"]["completion_tokens"] == 6
        assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_k041_a_prompt_without_room_is_400_before_the_first_byte(rig: ApiRig, stream: bool) -> None:
    for n_prompt in (256, 257):
        refused = rig.text(prompt=[9] * n_prompt, stream=stream)
        assert refused.status_code == 400
        error = error_of(refused)
        assert error["code"] == "context_length_exceeded"
        assert str(n_prompt) in error["message"]
        assert "context length" in error["message"]
    fits = rig.text(prompt=[9] * 255)
    assert fits.json()["usage"]["prompt_tokens"] == 255


def test_k041_chat_names_messages(rig: ApiRig) -> None:
    refused = rig.chat(messages=[{"role": "user", "content": "x y z " * 500}], stream=True)
    assert refused.status_code == 400
    assert error_of(refused)["param"] == "messages"


@pytest.mark.parametrize("text", ["x y z " * 40_000, "word" * 40_000, "\U0001f600" * 40_000])
def test_k041_a_hopeless_prompt_is_refused_by_its_beginning(
    rig: ApiRig, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    read: list[int] = []
    encode = Tokenizer.encode_segments

    def count(self: Tokenizer, segments: Iterable[Segment], *, add_bos: bool = False) -> list[int]:
        pieces = list(segments)
        read.append(sum(len(piece.text) for piece in pieces))
        return encode(self, pieces, add_bos=add_bos)

    monkeypatch.setattr(Tokenizer, "encode_segments", count)
    for refused in (rig.chat(messages=[{"role": "user", "content": text}]), rig.text(prompt=text)):
        assert refused.status_code == 400
        error = error_of(refused)
        assert error["code"] == "context_length_exceeded"
        assert "more than" in error["message"]
    assert max(read) <= 16 * 256
    assert rig.post("/v1/count", {"messages": [{"role": "user", "content": text}]}).is_success


def test_a_session_name_has_a_limit(rig: ApiRig) -> None:
    assert rig.chat(prompt_cache_key="k" * 1024).status_code == 200
    refused = rig.chat(prompt_cache_key="k" * 1025)
    assert refused.status_code == 400
    assert error_of(refused)["param"] == "prompt_cache_key"


def test_progress_chunks_when_asked(rig: ApiRig) -> None:
    reply = rig.text(
        prompt=[9] * 100, stream=True, stream_options={"include_progress": True}, max_tokens=1
    )
    told = [event["progress"] for event in events_of(reply)[:-1] if "progress" in event]
    assert [one["n_read"] for one in told] == [16, 32, 48, 64, 80, 96, 100]
    assert {one["n_prompt"] for one in told} == {100}
    chat = rig.chat(stream=True, stream_options={"include_progress": True})
    [progress, *_] = [event for event in events_of(chat)[:-1] if "progress" in event]
    assert progress["choices"][0]["delta"] == {}


def test_models_list_names_the_loaded_model(rig: ApiRig) -> None:
    for path in ("/v1/models", "/models"):
        [card] = rig.get(path).json()["data"]
        assert card["id"] == "tiny"
        assert card["object"] == "model"
        assert isinstance(card["created"], int)
        assert card["context_length"] == 256
        assert rig.get("/v1/models/tiny").json() == card
    missing = rig.get("/v1/models/org/other")
    assert missing.status_code == 404
    assert error_of(missing)["code"] == "model_not_found"


def test_without_a_model(make_rig: MakeRig) -> None:
    rig = make_rig(is_loaded=False)
    assert rig.get("/v1/models").json() == {"object": "list", "data": []}
    for reply in (rig.chat(), rig.chat(stream=True), rig.text()):
        assert reply.status_code == 503
        assert error_of(reply)["code"] == "model_not_loaded"
        assert reply.headers["retry-after"] == "5"
    assert rig.get("/health").json()["model"] is None
