"""The OpenAI shapes of an answer: chat and text, whole and in chunks.

Here text and counts become JSON; when which piece is sent is decided in `engine.api.openai`.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from typing import Protocol

from engine import __version__
from engine.api.schema import (
    ChatChoice,
    ChatChunk,
    ChatReply,
    ChunkChoice,
    CompletionReply,
    Delta,
    Progress,
    PromptDetails,
    Reply,
    ReplyMessage,
    TextChoice,
    Timings,
    TokenUsage,
)
from engine.step import FinishReason, TokenEvent, Usage

FINISH_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.POOL: "length",
    # Only who asked for the answer cancels it; should someone still listen, the text ends here.
    FinishReason.CANCELLED: "stop",
}
"""Words of the OpenAI API; an ERROR is not a finish but an error reply."""


def new_request_id(prefix: str) -> str:
    """Return an id nobody else has."""
    return f"{prefix}-{uuid.uuid4().hex}"


def system_fingerprint(model_id: str) -> str:
    """Name what the answers depend on besides the request: the program and the model."""
    digest = hashlib.sha256(f"{__version__}\0{model_id}".encode()).hexdigest()
    return f"fp_{digest[:10]}"


def token_usage(usage: Usage) -> TokenUsage:
    """Count tokens the OpenAI way."""
    return TokenUsage(
        prompt_tokens=usage.n_prompt_tokens,
        completion_tokens=usage.n_completion_tokens,
        total_tokens=usage.n_prompt_tokens + usage.n_completion_tokens,
        prompt_tokens_details=PromptDetails(cached_tokens=usage.n_cached_tokens),
    )


def timings(usage: Usage) -> Timings:
    """Tell speeds; the first token belongs to the prompt, so n tokens take n-1 intervals."""
    n_read = usage.n_prompt_tokens - usage.n_cached_tokens
    n_intervals = max(usage.n_completion_tokens - 1, 0)
    return Timings(
        prompt_n=n_read,
        cache_n=usage.n_cached_tokens,
        prompt_ms=usage.prefill_s * 1e3,
        prompt_per_second=n_read / usage.prefill_s if usage.prefill_s > 0 else 0.0,
        predicted_n=usage.n_completion_tokens,
        predicted_ms=usage.decode_s * 1e3,
        predicted_per_second=n_intervals / usage.decode_s if usage.decode_s > 0 else 0.0,
    )


class ReplyShape(Protocol):
    """How one kind of answer looks."""

    def opening(self) -> Reply | None:
        """The chunk before any text, if there is one."""

    def piece(self, text: str) -> Reply:
        """A chunk of text."""

    def progress(self, n_read: int, n_prompt: int) -> Reply:
        """A chunk that says how much of the prompt is known."""

    def ending(self, event: TokenEvent) -> Reply:
        """The chunk with the reason of the end."""

    def counts(self, usage: Usage) -> Reply:
        """The chunk without choices behind the end, for those who asked for counts."""

    def whole(self, text: str, event: TokenEvent) -> Reply:
        """The answer in one piece."""


class _Envelope:
    """Fields that every chunk and reply of one request shares."""

    def __init__(self, *, request_id: str, model_id: str) -> None:
        self.request_id = request_id
        self.model_id = model_id
        self.created = int(time.time())
        self.fingerprint = system_fingerprint(model_id)

    def fields(self, kind: str) -> dict[str, str | int]:
        return {
            "id": self.request_id,
            "object": kind,
            "created": self.created,
            "model": self.model_id,
            "system_fingerprint": self.fingerprint,
        }


class ChatShape:
    """Answers of `/v1/chat/completions`."""

    def __init__(self, *, request_id: str, model_id: str) -> None:
        self._envelope = _Envelope(request_id=request_id, model_id=model_id)

    def opening(self) -> ChatChunk:
        """The role comes first, with no text."""
        return self._chunk(Delta(role="assistant", content=""))

    def piece(self, text: str) -> ChatChunk:
        """A chunk of text."""
        return self._chunk(Delta(content=text))

    def progress(self, n_read: int, n_prompt: int) -> ChatChunk:
        """A chunk with an empty delta beside the progress."""
        chunk = self._chunk(Delta())
        chunk.progress = Progress(n_read=n_read, n_prompt=n_prompt)
        return chunk

    def ending(self, event: TokenEvent) -> ChatChunk:
        """The chunk with the reason of the end."""
        chunk = self._chunk(Delta(), finish=event.finish)
        chunk.timings = timings(event.usage)
        if event.finish is FinishReason.POOL:
            chunk.truncated = True
        return chunk

    def counts(self, usage: Usage) -> ChatChunk:
        """The counts, without choices."""
        return ChatChunk.model_validate(
            {
                **self._envelope.fields("chat.completion.chunk"),
                "choices": [],
                "usage": token_usage(usage),
            }
        )

    def whole(self, text: str, event: TokenEvent) -> ChatReply:
        """The answer in one piece."""
        reply = ChatReply.model_validate(
            {
                **self._envelope.fields("chat.completion"),
                "choices": [
                    ChatChoice(
                        index=0,
                        message=ReplyMessage(role="assistant", content=text),
                        logprobs=None,
                        finish_reason=finish_word(event.finish),
                    )
                ],
                "usage": token_usage(event.usage),
                "timings": timings(event.usage),
            }
        )
        if event.finish is FinishReason.POOL:
            reply.truncated = True
        return reply

    def _chunk(self, delta: Delta, *, finish: FinishReason | None = None) -> ChatChunk:
        reason = None if finish is None else finish_word(finish)
        return ChatChunk.model_validate(
            {
                **self._envelope.fields("chat.completion.chunk"),
                "choices": [ChunkChoice(index=0, delta=delta, logprobs=None, finish_reason=reason)],
            }
        )


class TextShape:
    """Answers of `/v1/completions`; chunks look like whole replies."""

    def __init__(self, *, request_id: str, model_id: str) -> None:
        self._envelope = _Envelope(request_id=request_id, model_id=model_id)

    def opening(self) -> None:
        """Text begins with text."""

    def piece(self, text: str) -> CompletionReply:
        """A chunk of text."""
        return self._reply(text)

    def progress(self, n_read: int, n_prompt: int) -> CompletionReply:
        """A chunk without text beside the progress."""
        reply = self._reply("")
        reply.progress = Progress(n_read=n_read, n_prompt=n_prompt)
        return reply

    def ending(self, event: TokenEvent) -> CompletionReply:
        """The chunk with the reason of the end."""
        reply = self._reply("", finish=event.finish)
        reply.timings = timings(event.usage)
        if event.finish is FinishReason.POOL:
            reply.truncated = True
        return reply

    def counts(self, usage: Usage) -> CompletionReply:
        """The counts, without choices."""
        reply = self._reply("")
        reply.choices = []
        reply.usage = token_usage(usage)
        return reply

    def whole(self, text: str, event: TokenEvent) -> CompletionReply:
        """The continuation in one piece."""
        reply = self._reply(text, finish=event.finish)
        reply.usage = token_usage(event.usage)
        reply.timings = timings(event.usage)
        if event.finish is FinishReason.POOL:
            reply.truncated = True
        return reply

    def _reply(self, text: str, *, finish: FinishReason | None = None) -> CompletionReply:
        reason = None if finish is None else finish_word(finish)
        return CompletionReply.model_validate(
            {
                **self._envelope.fields("text_completion"),
                "choices": [TextChoice(text=text, index=0, logprobs=None, finish_reason=reason)],
            }
        )


def finish_word(finish: FinishReason | None) -> str:
    """Return the OpenAI word for the reason an answer ended."""
    assert finish in FINISH_REASONS, finish
    return FINISH_REASONS[finish]
