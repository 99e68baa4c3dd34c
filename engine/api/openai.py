"""The OpenAI routes: chat, completions, models; what is sent when, and who is told of a failure.

Bodies become requests in `engine.api.generation`, text becomes JSON in `engine.api.replies`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request
from starlette.responses import JSONResponse, Response

from engine.api.errors import Fault, fault_of
from engine.api.events import RequestEvents, unless_gone
from engine.api.generation import chat_request, completion_request
from engine.api.replies import ChatShape, ReplyShape, TextShape, new_request_id
from engine.api.schema import (
    ChatRequest,
    CompletionRequest,
    GenerationFields,
    ModelCard,
    ModelList,
    Reply,
)
from engine.api.served import Engine, EngineDep, LoadedModel, require_model
from engine.api.sse import DONE, EventStreamResponse, comment, data_event
from engine.scheduler.request import GenerateRequest
from engine.step import EventKind, TokenEvent

PROGRESS_COMMENT_S = 1.0
"""While a prompt is read, a stream without progress chunks sends a comment this often at most."""


async def chat(body: ChatRequest, request: Request, engine: EngineDep) -> Response:
    """Answer a conversation."""
    model = require_model(engine)
    request_id = new_request_id("chatcmpl")
    generate = await asyncio.to_thread(chat_request, body, model, request_id=request_id)
    shape = ChatShape(request_id=request_id, model_id=model.summary.id)
    return await answer(request, model, generate, shape, StreamChoices.of(body, request))


async def completions(body: CompletionRequest, request: Request, engine: EngineDep) -> Response:
    """Continue a text."""
    model = require_model(engine)
    request_id = new_request_id("cmpl")
    generate = await asyncio.to_thread(completion_request, body, model, request_id=request_id)
    shape = TextShape(request_id=request_id, model_id=model.summary.id)
    return await answer(request, model, generate, shape, StreamChoices.of(body, request))


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamChoices:
    """How an answer is sent.

    Attributes:
        is_stream: in pieces.
        has_usage: with a last chunk of counts.
        has_progress: with chunks that tell how far the prompt is read.
        keep_alive_s: silence after which a comment is sent, None = never.
    """

    is_stream: bool
    has_usage: bool
    has_progress: bool
    keep_alive_s: float | None

    @classmethod
    def of(cls, body: GenerationFields, request: Request) -> StreamChoices:
        """Read the choices of a body."""
        options = body.stream_options
        return cls(
            is_stream=bool(body.stream),
            has_usage=options is not None and bool(options.include_usage),
            has_progress=options is not None and bool(options.include_progress),
            keep_alive_s=request.app.state.config.keep_alive_s or None,
        )


async def answer(
    request: Request,
    model: LoadedModel,
    generate: GenerateRequest,
    shape: ReplyShape,
    choices: StreamChoices,
) -> Response:
    """Submit a request and send what becomes of it.

    The head of a stream waits until the engine has admitted or refused the request, or until the
    first keep-alive is due: so a refusal is still a status, not an event.

    Raises:
        ClientDisconnect: the client went before the first byte; the request is cancelled.
    """
    events = RequestEvents(model, generate)
    is_handed_over = False
    try:
        if not choices.is_stream:
            return await unless_gone(request, whole_reply(events, shape))
        first = await unless_gone(request, events.next(limit_s=choices.keep_alive_s))
        if first is not None and first.error is not None:
            return fault_of(first.error).response()
        is_handed_over = True
        frames = stream_frames(events, first, shape, choices)
        return EventStreamResponse(frames, on_end=events.close)
    finally:
        if not is_handed_over:
            events.close()


async def whole_reply(events: RequestEvents, shape: ReplyShape) -> Response:
    """Collect an answer and send it in one piece."""
    pieces: list[str] = []
    while True:
        event = await events.next(limit_s=None)
        assert event is not None
        if event.error is not None:
            return fault_of(event.error).response()
        pieces.append(event.text)
        if event.kind is EventKind.FINISH:
            reply = shape.whole("".join(pieces), event)
            return JSONResponse(reply.model_dump(mode="json", exclude_unset=True))


async def stream_frames(
    events: RequestEvents, first: TokenEvent | None, shape: ReplyShape, choices: StreamChoices
) -> AsyncIterator[bytes]:
    """Make the frames of a stream, from the event that opened it to the last one."""
    if (opening := shape.opening()) is not None:
        yield _chunk(opening)
    event = first
    sent_s = time.monotonic()
    while True:
        frame = None
        if event is None:
            frame = comment("still here")
        elif event.kind is EventKind.PROGRESS:
            n_prompt = event.usage.n_prompt_tokens
            if choices.has_progress:
                frame = _chunk(shape.progress(event.n_read, n_prompt))
            elif choices.keep_alive_s and time.monotonic() - sent_s >= PROGRESS_COMMENT_S:
                frame = comment(f"reading the prompt: {event.n_read} of {n_prompt} tokens")
        elif event.error is not None:
            yield data_event(fault_of(event.error).envelope().model_dump_json())
            return
        elif event.text:
            frame = _chunk(shape.piece(event.text))
        if frame is not None:
            yield frame
            sent_s = time.monotonic()
        if event is not None and event.kind is EventKind.FINISH:
            yield _chunk(shape.ending(event))
            if choices.has_usage:
                yield _chunk(shape.counts(event.usage))
            yield DONE
            return
        event = await _next_or_silence(events, choices.keep_alive_s, sent_s)


async def _next_or_silence(
    events: RequestEvents, keep_alive_s: float | None, sent_s: float
) -> TokenEvent | None:
    """Wait for an event until a comment is due: events that sent nothing do not put it off."""
    if keep_alive_s is None:
        return await events.next(limit_s=None)
    left_s = sent_s + keep_alive_s - time.monotonic()
    return await events.next(limit_s=max(left_s, 0.0))


def _chunk(reply: Reply) -> bytes:
    return data_event(reply.model_dump_json(exclude_unset=True))


async def list_models(engine: EngineDep) -> ModelList:
    """List the loaded model, or none; nothing is loaded by asking."""
    card = model_card(engine)
    return ModelList(data=[] if card is None else [card])


async def get_model(model_id: str, engine: EngineDep) -> Response:
    """Describe the loaded model, asked for by its name."""
    card = model_card(engine)
    if card is not None and card.id == model_id:
        return JSONResponse(card.model_dump())
    known = "no model is loaded" if card is None else f"the loaded model is {card.id!r}"
    return Fault(
        status=HTTPStatus.NOT_FOUND,
        message=f"There is no model {model_id!r} here; {known}.",
        param="model",
        code="model_not_found",
    ).response()


def model_card(engine: Engine) -> ModelCard | None:
    """Describe the loaded model the OpenAI way, with what editors look for besides."""
    model = engine.loaded
    if model is None:
        return None
    summary = model.summary
    return ModelCard(
        id=summary.id,
        created=int(model.loaded_at_s),
        context_length=model.context_tokens,
        max_model_len=model.context_tokens,
        state="loaded",
        architecture=summary.architecture,
        quantization=summary.quantization,
        capabilities=["completion", "chat"] if summary.has_chat_template else ["completion"],
    )
