"""Counts of requests and work since start, and speed over the last seconds."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from engine.errors import RequestError
from engine.stats import RequestCounts, WorkCounts
from engine.step import FinishReason

WINDOW_S = 5.0
"""Speeds look back this far."""


class Speed:
    """Tokens per second of work over the last `WINDOW_S` seconds; 0 when there was none.

    Time counts while that work ran, so an idle second does not lower it.
    """

    def __init__(self) -> None:
        self._steps: deque[tuple[float, int, float]] = deque()

    def note(self, n_tokens: int, *, now_s: float, elapsed_s: float) -> None:
        """Note a step that made `n_tokens` in `elapsed_s`; one without tokens is left out."""
        if n_tokens:
            self._steps.append((now_s, n_tokens, elapsed_s))
        self._forget(now_s)

    def tokens_per_s(self, now_s: float) -> float:
        """The speed seen from `now_s`."""
        self._forget(now_s)
        elapsed_s = sum(step[2] for step in self._steps)
        return sum(step[1] for step in self._steps) / elapsed_s if elapsed_s > 0 else 0.0

    def _forget(self, now_s: float) -> None:
        while self._steps and self._steps[0][0] < now_s - WINDOW_S:
            self._steps.popleft()


@dataclass(kw_only=True, slots=True)
class Counts:
    """Everything counted since start; each request that ends counts in exactly one field.

    Attributes:
        finished: ended by themselves or by their length.
        refused: never began.
        truncated: ended because the pool was full.
        cancelled: ended by their client.
        failed: ended by a fault.
        n_steps, n_prompt_tokens, n_cached_tokens, n_completion_tokens, copied_bytes: as in
            `WorkCounts`.
        prefill, decode: speeds.
    """

    finished: int = 0
    refused: int = 0
    truncated: int = 0
    cancelled: int = 0
    failed: int = 0
    n_steps: int = 0
    n_prompt_tokens: int = 0
    n_cached_tokens: int = 0
    n_completion_tokens: int = 0
    copied_bytes: int = 0
    prefill: Speed = field(default_factory=Speed)
    decode: Speed = field(default_factory=Speed)

    def note_end(self, finish: FinishReason, error: Exception | None) -> None:
        """Count a request that ended."""
        match finish:
            case FinishReason.STOP | FinishReason.LENGTH:
                self.finished += 1
            case FinishReason.POOL:
                self.truncated += 1
            case FinishReason.CANCELLED:
                self.cancelled += 1
            case FinishReason.ERROR if isinstance(error, RequestError):
                self.refused += 1
            case FinishReason.ERROR:
                self.failed += 1

    def requests(self, *, running: int, waiting: int) -> RequestCounts:
        """The counts of requests as a frozen value."""
        return RequestCounts(
            running=running,
            waiting=waiting,
            finished=self.finished,
            refused=self.refused,
            truncated=self.truncated,
            cancelled=self.cancelled,
            failed=self.failed,
        )

    def work(self, *, n_swaps: int, n_evictions: int, now_s: float) -> WorkCounts:
        """The counts of work as a frozen value."""
        return WorkCounts(
            n_steps=self.n_steps,
            n_prompt_tokens=self.n_prompt_tokens,
            n_cached_tokens=self.n_cached_tokens,
            n_completion_tokens=self.n_completion_tokens,
            n_swaps=n_swaps,
            n_evictions=n_evictions,
            copied_bytes=self.copied_bytes,
            prefill_tokens_per_s=self.prefill.tokens_per_s(now_s),
            decode_tokens_per_s=self.decode.tokens_per_s(now_s),
        )
