"""The HTTP API at one look: every address, every check before it, who answers which failure."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from engine import __version__
from engine.api import control, metrics, openai, schema, status
from engine.api.body import MAX_BODY_BYTES, BodyGate, JsonRoute
from engine.api.errors import HANDLERS
from engine.api.host_check import HostCheck
from engine.api.served import Engine
from engine.config import ApiConfig

Responses = dict[int | str, dict[str, Any]]

_ERROR = {"model": schema.ErrorEnvelope}

REFUSALS: Responses = {
    400: {**_ERROR, "description": "The body is wrong, or the prompt is too long"},
    401: {**_ERROR, "description": "The API key is missing or wrong"},
    403: {**_ERROR, "description": "Host, origin or machine is not allowed"},
    413: {**_ERROR, "description": "The body is too large"},
    "4XX": {**_ERROR, "description": "Any other refusal"},
    500: {**_ERROR, "description": "The engine failed"},
    503: {
        **_ERROR,
        "description": "No model is loaded, the K/V pool is full, or the engine is stopping",
        "headers": {
            "Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}
        },
    },
}
"""What any address may answer besides its own reply."""

EVENTS = {"text/event-stream": {"schema": {"type": "string"}}}


def replies(model: Any, *, text: str, is_stream: bool = False) -> Responses:
    """Document what an address answers when all is well."""
    ok: dict[str, Any] = {"model": model, "description": text}
    if is_stream:
        ok["content"] = EVENTS
    return {200: ok}


def routes() -> list[BaseRoute]:
    """Return the list of addresses."""
    own = [Depends(control.require_local_or_key)]
    chat = replies(schema.ChatReply, text="The answer, or its events", is_stream=True)
    text = replies(schema.CompletionReply, text="The continuation, or its events", is_stream=True)
    card = replies(schema.ModelCard, text="The loaded model")
    snapshot = replies(schema.StatusSnapshot, text="The snapshot")
    feed: Responses = {200: {"content": EVENTS, "description": "Snapshots as events"}}
    counts: Responses = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    accepted: Responses = {202: {"model": schema.LoadReply, "description": "The load has begun"}}
    return [
        _post("/v1/chat/completions", openai.chat, responses=chat),
        _post("/v1/completions", openai.completions, responses=text),
        *_get("/v1/models", openai.list_models),
        *_get("/models", openai.list_models),
        *_get("/v1/models/{model_id:path}", openai.get_model, responses=card),
        *_get("/health", status.health),
        *_get("/v1/status", status.status, responses=snapshot),
        # Without HEAD: a stream has no length, and its end would never come.
        _route("GET", "/v1/status/events", status.status_events, responses=feed),
        *_get("/metrics", metrics.metrics, responses=counts),
        _post("/v1/load", control.load, responses=accepted, status_code=202, dependencies=own),
        _post("/v1/unload", control.unload, dependencies=own),
        _post("/v1/inspect", control.inspect, dependencies=own),
        _post("/v1/sessions/forget", control.forget, dependencies=own),
        _post("/v1/count", control.count),
    ]


def _get(path: str, endpoint: Any, **options: Any) -> tuple[APIRoute, APIRoute]:
    # Monitors and clients ask with HEAD whether an address is there; the server drops the body.
    return (
        _route("GET", path, endpoint, **options),
        _route("HEAD", path, endpoint, include_in_schema=False, **options),
    )


def _post(path: str, endpoint: Any, **options: Any) -> APIRoute:
    return _route("POST", path, endpoint, **options)


def _route(
    method: str, path: str, endpoint: Any, *, responses: Responses | None = None, **options: Any
) -> APIRoute:
    every = {**REFUSALS, **(responses or {})}
    if responses is not None:
        # The handler builds its own response; FastAPI need not check it once more.
        options.setdefault("response_model", None)
    return JsonRoute(path, endpoint, methods=[method], responses=every, **options)


def create_app(
    engine: Engine, config: ApiConfig, *, max_body_bytes: int = MAX_BODY_BYTES
) -> FastAPI:
    """Make the ASGI application.

    Args:
        engine: what answers; `engine.service.EngineService` in the programs.
        config: bind address, key, hosts, origins, keep-alive.
        max_body_bytes: longest request body.

    Returns:
        The application; it starts nothing and holds no state of its own.
    """
    app = FastAPI(
        title="Strata",
        version=__version__,
        description="A local, OpenAI-compatible API over one model in memory.",
        # The pages behind these load scripts from the network.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers=dict(HANDLERS),
        routes=routes(),
    )
    app.state.engine = engine
    app.state.config = config
    # The last one added runs first.
    app.add_middleware(BodyGate, max_bytes=max_body_bytes)
    app.add_middleware(HostCheck, config=config)
    return app
