"""From exceptions to the error envelope: one table by class, used before and after the first byte.

Texts come from where the fact is known; this module adds status, kind and code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from engine.api.schema import ErrorBody, ErrorEnvelope
from engine.errors import (
    ConfigError,
    DeviceError,
    EngineError,
    EngineStoppedError,
    MemoryBudgetError,
    ModelFileError,
    RequestError,
)

logger = logging.getLogger(__name__)

CLIENT_GONE = 499
"""Status written when nobody is left to read it."""

RETRY_STOPPED_S = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """An error as the API tells it.

    Attributes:
        status: HTTP status, if the first byte is not sent yet.
        message: a sentence for a person.
        code: for programs, or None.
        param: the field at fault, or None.
        retry_after_s: when a retry makes sense, or None.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    retry_after_s: int | None = None

    @property
    def kind(self) -> str:
        """The `type` of the envelope, by status."""
        if self.status == HTTPStatus.UNAUTHORIZED:
            return "authentication_error"
        if self.status == HTTPStatus.FORBIDDEN:
            return "permission_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    def envelope(self) -> ErrorEnvelope:
        """The body of the reply, or of the error event."""
        return ErrorEnvelope(
            error=ErrorBody(message=self.message, type=self.kind, param=self.param, code=self.code)
        )

    def response(self, headers: Mapping[str, str] | None = None) -> JSONResponse:
        """The whole HTTP reply."""
        every = dict(headers or {})
        if self.retry_after_s is not None:
            every["Retry-After"] = str(self.retry_after_s)
        return JSONResponse(
            self.envelope().model_dump(), status_code=self.status, headers=every or None
        )


def fault_of(error: BaseException) -> Fault:
    """Say how the API tells an exception.

    Args:
        error: anything the engine raised or put into a finish event.

    Returns:
        The fault. An exception that nobody raised on purpose keeps its text to itself: it could
        hold a path or a prompt; the log has it.
    """
    text = str(error)
    match error:
        case RequestError():
            return Fault(
                status=error.status,
                message=text,
                code=error.code or "invalid_value",
                param=error.param,
                retry_after_s=error.retry_after_s,
            )
        case ModelFileError():
            return Fault(status=400, message=text, code="model_file_error", param="path")
        case ConfigError():
            return Fault(status=400, message=text, code="config_error")
        case MemoryBudgetError():
            return Fault(status=400, message=text, code=f"memory_budget_{error.limit}")
        case EngineStoppedError():
            return Fault(
                status=503, message=text, code="engine_stopped", retry_after_s=RETRY_STOPPED_S
            )
        case DeviceError():
            return Fault(status=500, message=text, code="device_error")
        case _:
            return Fault(
                status=500,
                message=f"The engine met an unexpected {type(error).__name__}; its log says more.",
                code="internal_error",
            )


def describe_invalid(error: RequestValidationError) -> Fault:
    """Turn the first fault a body check found into a sentence with the field's name.

    Args:
        error: what the check found; more than one fault is told one at a time.

    Returns:
        A 400 whose `param` is the path of the field, like `messages[0].content`.
    """
    found: Sequence[Mapping[str, Any]] = error.errors()
    # Of the branches of a union, the one that got furthest is the one that was meant.
    field = found[0]["loc"][:2]
    first = max(
        (one for one in found if one["loc"][:2] == field),
        key=lambda one: len(field_path(one["loc"][1:], error.body, is_missing=False)),
    )
    where, *path = first["loc"]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "").removesuffix(" at")
        return Fault(
            status=400,
            message=f"The body is not valid JSON: {reason} at character {path[-1]}.",
            code="invalid_json",
        )
    param = field_path(path, error.body, is_missing=first["type"] == "missing")
    if not param:
        return Fault(
            status=400,
            message=f"The {where} is not usable: {first['msg']}; a JSON object is wanted.",
            code="invalid_body",
        )
    if first["type"] == "missing":
        return Fault(
            status=400, message=f"`{param}` is missing.", param=param, code="missing_field"
        )
    had = repr(first.get("input"))
    shown = had if len(had) <= 60 else had[:57] + "..."
    return Fault(
        status=400,
        message=f"`{param}` is not usable: {first['msg']}, got {shown}.",
        param=param,
        code="invalid_value",
    )


def field_path(path: Sequence[int | str], body: object, *, is_missing: bool) -> str:
    """Write a validator's location as a client would: `messages[0].content`.

    Args:
        path: keys and indexes, with names of branches of unions between them.
        body: the body, to tell fields from such branches.
        is_missing: whether the last part names a field that is not in the body.

    Returns:
        The path, "" for the body itself.
    """
    written = ""
    value = body
    for position, part in enumerate(path):
        is_last = position == len(path) - 1
        if isinstance(part, int) and isinstance(value, list) and part < len(value):
            written += f"[{part}]"
            value = value[part]
        elif (
            isinstance(part, str)
            and isinstance(value, dict)
            and (part in value or (is_missing and is_last))
        ):
            written += f".{part}" if written else part
            value = value.get(part)
    return written


async def answer_engine_error(_: Request, error: Exception) -> Response:
    """Answer what the engine refused or failed at."""
    return fault_of(error).response()


async def answer_invalid(_: Request, error: Exception) -> Response:
    """Answer a body that does not fit its schema."""
    assert isinstance(error, RequestValidationError)
    return describe_invalid(error).response()


async def answer_http(request: Request, error: Exception) -> Response:
    """Answer what the routing found: no such address, wrong method, unreadable body."""
    assert isinstance(error, HTTPException)
    code = None
    message = str(error.detail)
    if error.status_code == HTTPStatus.NOT_FOUND:
        message = f"There is no {request.url.path} here; GET /openapi.json lists the addresses."
        code = "unknown_url"
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "another method")
        message = f"{request.url.path} does not take {request.method}; use {allowed}."
        code = "method_not_allowed"
    elif error.status_code == HTTPStatus.BAD_REQUEST:
        message = "The body could not be read: it is not valid JSON in UTF-8."
        code = "invalid_json"
    elif error.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        code = "body_too_large"
    return Fault(status=error.status_code, message=message, code=code).response(error.headers)


async def answer_gone(_: Request, __: Exception) -> Response:
    """Nobody is there any more; the status is for the log."""
    return Response(status_code=CLIENT_GONE)


async def answer_unexpected(request: Request, error: Exception) -> Response:
    """Answer a fault of ours."""
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return fault_of(error).response()


Answer = Callable[[Request, Any], Coroutine[Any, Any, Response]]

HANDLERS: Mapping[int | type[Exception], Answer] = {
    EngineError: answer_engine_error,
    RequestValidationError: answer_invalid,
    HTTPException: answer_http,
    ClientDisconnect: answer_gone,
    Exception: answer_unexpected,
}
"""Who answers which exception; subclasses go with the nearest class."""
