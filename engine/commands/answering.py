"""A model in this process, without HTTP, and one answer of it: what `generate` and `chat` share."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.api.served import LoadedModel
from engine.commands.progress import ProgressLine
from engine.config import ApiConfig, ModelConfig
from engine.errors import ModelFileError
from engine.sampling import SamplingParams
from engine.scheduler.request import GenerateRequest
from engine.service import EngineService
from engine.step import EventKind, FinishReason, TokenEvent, Usage
from engine.stream import TokenStream

POLL_S = 0.1
"""How often a load is asked how far it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """A finished answer.

    Attributes:
        text: all of it.
        finish: why it ended.
        usage: counts and times.
    """

    text: str
    finish: FinishReason
    usage: Usage


@contextlib.contextmanager
def loaded_model(config: ModelConfig) -> Iterator[LoadedModel]:
    """Load a model, with progress on stderr, and give it back at the end.

    Raises:
        ModelFileError: the load failed, and why.
    """
    service = EngineService(ApiConfig())
    try:
        service.load(config)
        wait_until_loaded(service)
        loaded = service.loaded
        assert loaded is not None
        yield loaded
    finally:
        service.stop()


def wait_until_loaded(service: EngineService) -> None:
    """Wait for a load to end, and show how far it is.

    Raises:
        ModelFileError: the load failed, and why.
    """
    progress = ProgressLine()
    try:
        while not service.wait_ready(POLL_S):
            state = service.status().model
            if state.state == "failed":
                raise ModelFileError(state.error)
            if state.progress is not None:
                done, total = state.progress.done_bytes, state.progress.total_bytes
                progress.show(state.progress.stage, done, total)
    finally:
        progress.clear()


def answer(
    loaded: LoadedModel,
    prompt_ids: Sequence[int],
    *,
    sampling: SamplingParams,
    max_tokens: int | None,
    stop: Sequence[str] = (),
    write: Callable[[str], None],
) -> Answer:
    """Generate one answer and write its text as it comes.

    An interruption (Ctrl+C) cancels the request before it goes on upwards.

    Raises:
        RequestError: the prompt does not fit, or a setting cannot be used.
        EngineError: the engine failed.
    """
    request = GenerateRequest(
        request_id=uuid.uuid4().hex,
        prompt_ids=np.asarray(prompt_ids, dtype=np.int32),
        sampling=sampling,
        max_tokens=max_tokens,
        stop=tuple(stop),
        session_key="terminal",
    )
    progress = ProgressLine()
    pieces: list[str] = []
    stream = loaded.loop.submit(request)
    try:
        for event in watch(stream):
            if event.kind is EventKind.PROGRESS:
                progress.show("Reading the prompt", event.n_read, len(request.prompt_ids))
                continue
            if event.text:
                progress.clear()
                pieces.append(event.text)
                write(event.text)
            if event.kind is EventKind.FINISH:
                if event.error is not None:
                    raise event.error
                assert event.finish is not None
                return Answer(text="".join(pieces), finish=event.finish, usage=event.usage)
    except BaseException:
        loaded.loop.cancel(request.request_id)
        raise
    finally:
        progress.clear()
    raise AssertionError("a stream ended without a FINISH event")


def watch(stream: TokenStream) -> Iterator[TokenEvent]:
    """Yield the events of a stream in short waits: a long one would not hear Ctrl+C on Windows."""
    while True:
        try:
            event = stream.next_event(timeout_s=POLL_S)
        except TimeoutError:
            continue
        yield event
        if event.kind is EventKind.FINISH:
            return
