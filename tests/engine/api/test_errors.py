"""One envelope for every failure, before and after the first byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import errors
from engine.api.errors import fault_of, field_path
from tests.engine.api.api_rig import HI, ApiRig, error_of, events_of, text_of

MakeRig = Callable[..., ApiRig]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/load"])
@pytest.mark.parametrize(
    "body",
    [
        b"{not json",
        b"",
        b'"text"',
        b"[]",
        b"null",
        b"\xff\xfe{}",
        b"{}",
        b"[" * 100_000,
        b'{"messages": ' + b"9" * 5000 + b"}",
    ],
)
def test_k013_bad_bodies_are_400_with_the_envelope(rig: ApiRig, path: str, body: bytes) -> None:
    refused = rig.send("POST", path, content=body)
    assert refused.status_code == 400
    assert refused.headers["content-type"] == "application/json"
    assert error_of(refused)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        ({"model": "m"}, "messages", "missing"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": None}, "messages", "list"),
        ({"messages": "hi"}, "messages", "list"),
        ({"messages": [5]}, "messages[0]", "5"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "missing"),
        ({"messages": [{"role": 7}]}, "messages[0].role", "string"),
        ({"messages": [{"role": "critic", "content": "x"}]}, "messages[0].role", "critic"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "5"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
            "messages[0].content[0]",
            "text part",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]},
            "messages[0].content[0]",
            "text part",
        ),
        ({"messages": HI, "stream": 0}, "stream", "boolean"),
        ({"messages": HI, "stream": "yes"}, "stream", "boolean"),
        ({"messages": HI, "max_tokens": "5"}, "max_tokens", "integer"),
        ({"messages": HI, "max_tokens": 5.5}, "max_tokens", "5.5"),
        ({"messages": HI, "max_tokens": True}, "max_tokens", "integer"),
        ({"messages": HI, "temperature": "hot"}, "temperature", "'hot'"),
        ({"messages": HI, "stop": 5}, "stop", "5"),
        ({"messages": HI, "stop": ["a", 5]}, "stop[1]", "string"),
        ({"messages": HI, "tools": "all"}, "tools", "list"),
        ({"messages": HI, "stream_options": {"include_usage": 1}}, None, "boolean"),
        ({"messages": HI, "prompt_cache_key": 5}, "prompt_cache_key", "string"),
    ],
)
def test_wrong_fields_are_named(rig: ApiRig, body: Any, param: str | None, says: str) -> None:
    refused = rig.post("/v1/chat/completions", body)
    assert refused.status_code == 400
    error = error_of(refused)
    assert error["param"] == (param or "stream_options.include_usage")
    assert says in error["message"]


def test_nan_is_no_temperature(rig: ApiRig) -> None:
    for number in (b"NaN", b"Infinity", b"1e999"):
        body = b'{"messages":[{"role":"user","content":"x"}],"temperature":' + number + b"}"
        refused = rig.send("POST", "/v1/chat/completions", content=body)
        assert refused.status_code == 400
        assert error_of(refused)["param"] == "temperature"


def test_unknown_addresses_and_methods(rig: ApiRig) -> None:
    missing = rig.get("/v1/nowhere")
    assert missing.status_code == 404
    assert "/v1/nowhere" in error_of(missing)["message"]
    wrong = rig.get("/v1/chat/completions")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert "POST" in error_of(wrong)["message"]
    assert rig.send("DELETE", "/v1/models/tiny").status_code == 405


def test_k013_a_fault_after_the_first_byte_is_an_event(make_rig: MakeRig) -> None:
    rig = make_rig(fails_at_step=5)
    events = events_of(rig.chat(stream=True, ignore_eos=True))
    error = events[-1]["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "server_error"
    assert "scripted device failed" in error["message"]
    assert text_of(events[:-1])
    assert "[DONE]" not in events


def test_a_fault_before_the_first_byte_is_a_status(make_rig: MakeRig) -> None:
    for is_stream in (False, True):
        rig = make_rig(fails_at_step=1)
        failed = rig.chat(stream=is_stream)
        assert failed.status_code == 500
        assert error_of(failed)["code"] == "device_error"
        later = rig.chat()
        assert later.status_code == 503
        assert "last load failed" in error_of(later)["message"]
        assert rig.get("/v1/status").json()["model"]["state"] == "failed"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidRequestError("x", param="p", code="c", status=422), 422, "c"),
        (errors.InvalidRequestError("x", param="temperature"), 400, "invalid_value"),
        (
            errors.ContextLengthError(n_prompt_tokens=9, context_tokens=8),
            400,
            "context_length_exceeded",
        ),
        (
            errors.KvPoolFullError(cells_wanted=8, cells_free=0, cells_total=8),
            503,
            "kv_pool_full",
        ),
        (errors.ModelNotReadyError("x"), 503, "model_not_loaded"),
        (errors.GGUFFormatError("x", path=Path("m.gguf")), 400, "model_file_error"),
        (errors.ConfigError("x"), 400, "config_error"),
        (errors.MemoryBudgetError("x", limit="ram"), 400, "memory_budget_ram"),
        (errors.EngineStoppedError("x"), 503, "engine_stopped"),
        (errors.DeviceError("x"), 500, "device_error"),
        (ValueError("secret path"), 500, "internal_error"),
    ],
)
def test_every_class_has_its_status(error: Exception, status: int, code: str) -> None:
    fault = fault_of(error)
    assert (fault.status, fault.code) == (status, code)
    assert "secret" not in fault.message
    reply = fault.response()
    assert reply.status_code == status
    wanted = None if fault.retry_after_s is None else str(fault.retry_after_s)
    assert reply.headers.get("retry-after") == wanted
    assert (fault.retry_after_s is None) is (status != 503)


def test_field_paths_leave_out_branches_of_unions() -> None:
    body = {"a": [{"b": 5}]}
    assert field_path(["a", 0, "b", "str"], body, is_missing=False) == "a[0].b"
    assert field_path(["a", 0, "c"], body, is_missing=True) == "a[0].c"
    assert field_path(["a", 0, "Branch", "c"], body, is_missing=True) == "a[0].c"
    assert field_path(["a", "list[int]", 0, "b"], body, is_missing=False) == "a[0].b"
    assert field_path(["a", "Branch", "x"], body, is_missing=False) == "a"
    assert field_path([], body, is_missing=False) == ""
