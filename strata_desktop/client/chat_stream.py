"""One streamed answer: the coroutine that reads it and the QObject the window listens to."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QObject, Signal

from strata_desktop.client.replies import ApiFailure, CallFailed, ChatResult, envelope_failure
from strata_desktop.client.sse import SseParser

OpenStream = Callable[..., AbstractAsyncContextManager[AsyncIterator[bytes]]]


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """How much of the prompt has been read, in tokens."""

    n_read: int
    n_prompt: int


@dataclass(frozen=True, slots=True)
class Thought:
    """More text that the model thinks before it answers."""

    text: str


class ChatStream(QObject):
    """A running answer. It ends with exactly one `finished` or `failed`.

    It has no Qt parent: the client holds it while it runs, the listener as long as it likes.

    Attributes:
        is_done: whether it has ended.

    Signals:
        progress: tokens of the prompt read, tokens of the prompt.
        thought: more text of what the model thinks before it answers.
        delta: more text of the answer.
        finished: a ChatResult.
        failed: an ApiFailure.
    """

    progress = Signal(int, int)
    thought = Signal(str)
    delta = Signal(str)
    finished = Signal(object)
    failed = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.is_done = False
        self._break_off: Callable[[], None] | None = None

    def bind(self, break_off: Callable[[], None]) -> None:
        """Say how the connection is closed."""
        self._break_off = break_off

    def cancel(self) -> None:
        """Stop the answer; `finished` follows at once with reason "cancelled"."""
        if not self.is_done:
            self.take(ChatResult(finish_reason="cancelled"))

    def take(self, value: Any) -> None:
        """Receive one value from the network thread's side."""
        if self.is_done:
            return
        if isinstance(value, str):
            self.delta.emit(value)
        elif isinstance(value, Thought):
            self.thought.emit(value.text)
        elif isinstance(value, PromptProgress):
            self.progress.emit(value.n_read, value.n_prompt)
        else:
            self.is_done = True
            if self._break_off is not None:
                self._break_off()
            signal = self.failed if isinstance(value, ApiFailure) else self.finished
            signal.emit(value)


async def read_chat(
    open_stream: OpenStream, body: dict[str, Any], post: Callable[[Any], None]
) -> None:
    """Read an answer to its end and post its pieces.

    Args:
        open_stream: opens the HTTP stream.
        body: of the request.
        post: gets str, Thought, PromptProgress and at last one ChatResult or ApiFailure.
    """
    reader = _ChunkReader()
    try:
        async with open_stream("POST", "/v1/chat/completions", body) as received:
            parser = SseParser()
            async for piece in received:
                for event in parser.feed(piece):
                    for value in reader.read(event.payload):
                        post(value)
                    if reader.is_done:
                        return
    except CallFailed as error:
        post(error.failure)
        return
    post(reader.close())


class _ChunkReader:
    """Turns `chat.completion.chunk` payloads into values; keeps what the end needs."""

    def __init__(self) -> None:
        self.is_done = False
        self._finish_reason: str | None = None
        self._is_truncated = False
        self._usage: dict[str, Any] = {}
        self._timings: dict[str, Any] = {}

    def read(self, payload: str) -> list[Any]:
        if payload == "[DONE]":
            self.is_done = True
            return [self.close()]
        try:
            chunk = json.loads(payload)
        except ValueError:
            return self._fail("The engine sent a line that is not JSON.", "bad_reply")
        if not isinstance(chunk, dict):
            return self._fail("The engine sent something that is not a chunk.", "bad_reply")
        if chunk.get("error"):
            self.is_done = True
            return [envelope_failure(chunk)]
        self._usage.update(chunk.get("usage") or {})
        self._timings.update(chunk.get("timings") or {})
        self._is_truncated = self._is_truncated or chunk.get("truncated") is True
        values: list[Any] = []
        progress = chunk.get("progress")
        if isinstance(progress, dict):
            values.append(
                PromptProgress(int(progress.get("n_read", 0)), int(progress.get("n_prompt", 0)))
            )
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            # Servers call it by one of two names.
            if thought := delta.get("reasoning_content") or delta.get("reasoning"):
                values.append(Thought(str(thought)))
            if text := delta.get("content"):
                values.append(text)
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
        return values

    def close(self) -> ChatResult | ApiFailure:
        if self._finish_reason is None:
            return ApiFailure(
                message="The engine closed the connection before the answer was complete.",
                code="disconnected",
            )
        usage, timings = self._usage, self._timings
        details = usage.get("prompt_tokens_details") or {}
        return ChatResult(
            finish_reason=self._finish_reason,
            is_truncated=self._is_truncated,
            n_prompt_tokens=int(usage.get("prompt_tokens") or 0),
            n_cached_tokens=int(details.get("cached_tokens") or timings.get("cache_n") or 0),
            n_completion_tokens=int(
                usage.get("completion_tokens") or timings.get("predicted_n") or 0
            ),
            tokens_per_s=float(timings.get("predicted_per_second") or 0.0),
            prompt_ms=float(timings.get("prompt_ms") or 0.0),
        )

    def _fail(self, message: str, code: str) -> list[Any]:
        self.is_done = True
        return [ApiFailure(message=message, code=code)]
