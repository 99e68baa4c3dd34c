"""How bodies come in: at most so many bytes, JSON whatever the label says, always clean text.

What is in a body is checked against `engine.api.schema`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api.errors import Fault

MAX_BODY_BYTES = 64 << 20
"""Room for a conversation of millions of tokens."""


DRAIN_FACTOR = 4
"""A body up to this many limits long is read to its end and dropped, so that the client, which is
still sending, gets to see the answer; a longer one has its connection closed."""


def too_large(max_bytes: int) -> HTTPException:
    """The answer to a body over the limit."""
    return HTTPException(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"The body is larger than {max_bytes} bytes. Shorten the conversation.",
        {"Connection": "close"},
    )


class BodyGate:
    """ASGI middleware: stops reading a body at the limit, and labels every body as JSON.

    Many clients (curl with -d, urllib) label JSON as a form. Cross-site forms are no concern here:
    browsers send an Origin with them, which `HostCheck` has refused before.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int = MAX_BODY_BYTES) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its body counted, or answer 415 in its place."""
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH"):
            await self._app(scope, receive, send)
            return
        headers = MutableHeaders(scope=scope)
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            fault = Fault(
                status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                message=f"The body is encoded as {encoding!r}; send it without Content-Encoding.",
                code="unsupported_encoding",
            )
            await fault.response()(scope, receive, send)
            return
        headers["content-type"] = "application/json"
        n_bytes = 0

        async def receive_limited() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self._max_bytes:
                while message.get("more_body") and n_bytes <= DRAIN_FACTOR * self._max_bytes:
                    message = await receive()
                    n_bytes += len(message.get("body", b""))
                raise too_large(self._max_bytes)
            return message

        await self._app(scope, receive_limited, send)


class JsonRequest(Request):
    """A request whose JSON is safe to work on."""

    async def json(self) -> Any:
        """Read the body as JSON and mend text that is no valid Unicode.

        Editors that cut text in the middle of an emoji send half a surrogate pair; it becomes
        the replacement character instead of a fault further down.

        Raises:
            json.JSONDecodeError: the body is not JSON; told apart from other faults by FastAPI.
        """
        body = await self.body()
        try:
            value = json.loads(body)
        except RecursionError as fault:
            raise json.JSONDecodeError("nested too deeply", "", 0) from fault
        return _mended(value) if b"\\ud" in body.lower() else value


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {_mended(key): _mended(item) for key, item in value.items()}
    return value


class JsonRoute(APIRoute):
    """A route whose handler gets a `JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Wrap the handler FastAPI makes."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return handle_json
