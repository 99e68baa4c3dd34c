"""Bodies: the size limit, labels, encodings, broken Unicode."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.engine.api.api_rig import HI, ApiRig, error_of

LIMIT = 1 << 20  # of the rig


def chat_body(n_bytes: int) -> bytes:
    body = json.dumps({"messages": HI, "max_tokens": 1, "pad": ""}).encode()
    return body[:-2] + b"x" * (n_bytes - len(body)) + b'"}'


def test_a_body_at_the_limit_passes(rig: ApiRig) -> None:
    body = chat_body(LIMIT)
    assert len(body) == LIMIT
    assert rig.send("POST", "/v1/chat/completions", content=body).status_code == 200


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/load"])
def test_a_longer_body_is_413(rig: ApiRig, path: str, is_chunked: bool) -> None:
    body = chat_body(LIMIT + 1)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 50_000):
            yield body[start : start + 50_000]

    refused = rig.send("POST", path, content=pieces() if is_chunked else body)
    assert refused.status_code == 413
    error = error_of(refused)
    assert error["code"] == "body_too_large"
    assert str(LIMIT) in error["message"]


@pytest.mark.parametrize(
    "label", ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data", None]
)
def test_json_is_json_whatever_its_label(rig: ApiRig, label: str | None) -> None:
    headers = {} if label is None else {"content-type": label}
    body = json.dumps({"messages": HI, "max_tokens": 1})
    reply = rig.send("POST", "/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 200


def test_encoded_bodies_are_415(rig: ApiRig) -> None:
    headers = {"content-encoding": "zstd"}
    refused = rig.send("POST", "/v1/chat/completions", content=b"(\xb5/\xfd", headers=headers)
    assert refused.status_code == 415
    assert "zstd" in error_of(refused)["message"]


def test_lone_surrogates_are_mended_everywhere(rig: ApiRig) -> None:
    body = b'{"messages":[{"role":"user","content":"x"}],"stop":["\\udfff"],"max_tokens":1,'
    body += b'"chat_template_kwargs":{"\\ud800":["\\ud83d"]}}'
    assert rig.send("POST", "/v1/chat/completions", content=body).status_code == 200
