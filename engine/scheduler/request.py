"""What is asked for (`GenerateRequest`) and how far it has come (`OpenRequest`).

Rules that move a request on are in `engine.scheduler.scheduler`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.errors import InvalidRequestError
from engine.memory.snapshots import Mark
from engine.sampling import Sampler, SamplingParams
from engine.scheduler.session import Session
from engine.step import EventKind, FinishReason, TokenEvent, TokenId, Usage


class Assembler(Protocol):
    """Makes text of the tokens of one request; `TextAssembler` is one.

    Attributes:
        is_stopped: whether a stop string was found.
    """

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was found."""

    def push(self, token_id: int) -> str:
        """Take the next token and return the text that became certain."""

    def flush(self) -> str:
        """Return the text still held back; nothing follows."""


class TextFactory(Protocol):
    """What the scheduler needs of a tokenizer."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end an answer."""

    def assembler(self, stop: tuple[str, ...]) -> Assembler:
        """A fresh assembler for one request that ends at any of the stop strings."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GenerateRequest:
    """One turn to generate.

    Attributes:
        request_id: chosen by the client side, unique among open requests.
        prompt_ids: i32[n_prompt], the whole conversation so far.
        sampling: how tokens are picked.
        max_tokens: tokens to generate at most; None = as many as the context holds.
        stop: strings that end the answer and are not part of it.
        session_key: the client's own name of the conversation, or "".
        ignores_end: generate on past end tokens (for measurements).
        marks: positions where messages of the prompt end, ascending; a recurrent state is worth
            keeping there.
    """

    request_id: str
    prompt_ids: npt.NDArray[np.int32]
    sampling: SamplingParams
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    session_key: str = ""
    ignores_end: bool = False
    marks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.prompt_ids.dtype != np.int32 or self.prompt_ids.ndim != 1:
            raise TypeError(
                f"prompt_ids must be i32[n_prompt], got {self.prompt_ids.dtype} "
                f"of shape {self.prompt_ids.shape}"
            )
        if len(self.prompt_ids) == 0:
            raise InvalidRequestError(
                "The prompt is empty. Send at least one token of text.", param="prompt"
            )
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidRequestError(
                f"max_tokens must be 1 or more, got {self.max_tokens}.", param="max_tokens"
            )


class Phase(enum.Enum):
    """Where an open request stands."""

    WAITING = "waiting"
    """No lane yet, or none any more because its read gave way."""
    READING = "reading"
    """Its prompt is read, span by span."""
    WRITING = "writing"
    """Tokens are generated."""


@dataclass(kw_only=True, slots=True, eq=False)
class OpenRequest:
    """A request that has not ended yet; owned by the scheduler.

    Attributes:
        request: what was asked for.
        number: counts up in the order of arrival.
        submitted_s: when it arrived.
        text: makes its text.
        phase: where it stands.
        session: its session, once admitted.
        sampler: picks its tokens, made when the first one is due.
        next_id: the token sampled last, whose K/V is not known yet.
        n_cached: prompt tokens that needed no reading.
        n_written: tokens generated.
        n_yields: how often its read gave way.
        marks: where its read stops to keep the recurrent state.
        first_span_s, first_token_s, last_token_s: when these happened, None = not yet.
    """

    request: GenerateRequest
    number: int
    submitted_s: float
    text: Assembler
    phase: Phase = Phase.WAITING
    session: Session | None = None
    sampler: Sampler | None = None
    next_id: TokenId | None = None
    n_cached: int = 0
    n_written: int = 0
    n_yields: int = 0
    marks: tuple[Mark, ...] = ()
    first_span_s: float | None = field(default=None)
    first_token_s: float | None = field(default=None)
    last_token_s: float | None = field(default=None)

    @property
    def n_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_ids)

    @property
    def n_left(self) -> int:
        """Prompt tokens still to read."""
        known = 0 if self.session is None else self.session.n_tokens
        return max(0, self.n_prompt - known)

    @property
    def tokens_per_s(self) -> float:
        """Decode speed so far; 0 before the second token."""
        if self.first_token_s is None or self.last_token_s is None:
            return 0.0
        elapsed_s = self.last_token_s - self.first_token_s
        return (self.n_written - 1) / elapsed_s if elapsed_s > 0 else 0.0

    def next_stop(self, span_tokens: int) -> int:
        """Where the next span of its read ends: a mark, or `span_tokens` further at most."""
        n_known = self.n_prompt - self.n_left
        ends = [mark.n_tokens for mark in self.marks if mark.n_tokens > n_known]
        return min([*ends, n_known + span_tokens, self.n_prompt])

    def mark_at(self, n_tokens: int) -> Mark | None:
        """The mark at exactly that position."""
        return next((mark for mark in self.marks if mark.n_tokens == n_tokens), None)

    def event(
        self,
        kind: EventKind,
        *,
        now_s: float,
        token_id: int | None = None,
        text: str = "",
        finish: FinishReason | None = None,
        error: Exception | None = None,
    ) -> TokenEvent:
        """What happened to it now, with its counts so far."""
        return TokenEvent(
            kind=kind,
            request_id=self.request.request_id,
            usage=self.usage(now_s),
            token_id=token_id,
            text=text,
            n_read=self.n_prompt - self.n_left,
            finish=finish,
            error=error,
        )

    def usage(self, now_s: float) -> Usage:
        """Counts and times so far."""
        reading_s = self.first_span_s if self.first_span_s is not None else now_s
        token_s = self.first_token_s if self.first_token_s is not None else now_s
        last_s = self.last_token_s if self.last_token_s is not None else token_s
        return Usage(
            n_prompt_tokens=self.n_prompt,
            n_cached_tokens=self.n_cached,
            n_completion_tokens=self.n_written,
            prefill_s=token_s - reading_s,
            decode_s=last_s - token_s,
            queued_s=reading_s - self.submitted_s,
        )
