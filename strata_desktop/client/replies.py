"""Values that come back from the engine's HTTP API, and the words for what went wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiFailure:
    """Why a call did not succeed.

    Attributes:
        message: a sentence for the person.
        code: machine-readable: the API's own code, or "offline" (no connection), "disconnected"
            (broken off in the middle), "bad_reply" (not the JSON expected).
        status: HTTP status, 0 without a reply.
        retry_after_s: when a retry makes sense, None if unknown.
    """

    message: str
    code: str = ""
    status: int = 0
    retry_after_s: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatResult:
    """How a streamed answer ended.

    Attributes:
        finish_reason: "stop", "length", "cancelled", ...
        is_truncated: the shared pool had no room for the rest.
        n_prompt_tokens: tokens of the whole prompt.
        n_cached_tokens: of those, how many did not need reading.
        n_completion_tokens: tokens of the answer.
        tokens_per_s: speed of writing, 0 if unknown.
        prompt_ms: time to read the prompt, 0 if unknown.
    """

    finish_reason: str
    is_truncated: bool = False
    n_prompt_tokens: int = 0
    n_cached_tokens: int = 0
    n_completion_tokens: int = 0
    tokens_per_s: float = 0.0
    prompt_ms: float = 0.0


class CallFailed(Exception):
    """Carries an `ApiFailure` up to where the call was started."""

    def __init__(self, failure: ApiFailure) -> None:
        self.failure = failure
        super().__init__(failure.message)


def connection_failure(error: httpx.HTTPError, base_url: str) -> ApiFailure:
    """Put a transport error into words."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return ApiFailure(
            message=f"The engine at {base_url} does not answer. It may still be starting, "
            "or it was stopped.",
            code="offline",
        )
    if isinstance(error, httpx.TimeoutException):
        return ApiFailure(
            message=f"The engine at {base_url} took too long to answer.", code="offline"
        )
    return ApiFailure(
        message=f"The connection to the engine at {base_url} broke off.", code="disconnected"
    )


def reply_failure(status: int, body: bytes, retry_after: str | None = None) -> ApiFailure:
    """Read the error envelope of a reply that is not a success."""
    after = int(retry_after) if retry_after and retry_after.isdigit() else None
    try:
        envelope = json.loads(body)
    except ValueError:
        envelope = None
    failure = envelope_failure(envelope, status=status)
    return ApiFailure(
        message=failure.message, code=failure.code, status=status, retry_after_s=after
    )


def envelope_failure(envelope: Any, *, status: int = 0) -> ApiFailure:
    """Read `{"error": {message, code}}`, whatever is missing in it."""
    error = envelope.get("error") if isinstance(envelope, dict) else None
    if isinstance(error, str):
        return ApiFailure(message=error, status=status)
    if not isinstance(error, dict):
        return ApiFailure(
            message=f"The engine answered with status {status} and no explanation.",
            code="bad_reply",
            status=status,
        )
    message = error.get("message")
    code = error.get("code")
    return ApiFailure(
        message=message if isinstance(message, str) else "The engine reported an error.",
        code=code if isinstance(code, str) else "",
        status=status,
    )
