"""How the next token is chosen from logits: checked settings and one sampler per request.

It holds no text and no model; the scheduler owns one `Sampler` for each running request.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import DeviceError, InvalidRequestError

FIRST_CANDIDATES = 512
"""Highest logits looked at first for top-p; almost every answer is decided among them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """Settings of one request; every default means "off".

    The order is: penalties, top-k, top-p, min-p, temperature. So the filters look at the model's
    own probabilities, and a high temperature never lets in a token they have cut off.

    Attributes:
        temperature: 0 = always the most likely token (greedy); 1 = the model's own distribution.
        top_k: keep this many of the most likely tokens; 0 or -1 = all.
        top_p: keep the smallest set of most likely tokens that has this probability together;
            1 = all.
        min_p: keep tokens at least this likely, as a share of the most likely one; 0 = all.
        repetition_penalty: divides positive and multiplies negative logits of every token in the
            window, prompt included; 1 = off.
        presence_penalty: subtracted once from each generated token in the window.
        frequency_penalty: subtracted from each generated token in the window, as many times as
            it is there. As in the OpenAI API the prompt does not count for these two.
        penalty_last_n: tokens in the window, counted back from the newest; 0 = no penalties,
            -1 = the whole conversation.
        seed: same seed and same logits give the same tokens; None = a new one each time.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_number("temperature", self.temperature, 0.0, 1000.0)
        _check_int("top_k", self.top_k, -1, 2**31 - 1)
        _check_number("top_p", self.top_p, 0.0, 1.0)
        _check_number("min_p", self.min_p, 0.0, 1.0)
        _check_number("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        _check_number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _check_int("penalty_last_n", self.penalty_last_n, -1, 2**31 - 1)
        if self.seed is not None:
            _check_int("seed", self.seed, -(2**63), 2**64 - 1)

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether earlier tokens change the logits."""
        return self.penalty_last_n != 0 and (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )


def _check_number(param: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise InvalidRequestError(f"{param} must be a number, got {value!r}.", param=param)
    if not low <= value <= high:
        raise InvalidRequestError(
            f"{param} must be between {low:g} and {high:g}, got {value!r}.", param=param
        )


def _check_int(param: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"{param} must be a whole number, got {value!r}.", param=param)
    if not low <= value <= high:
        raise InvalidRequestError(
            f"{param} must be between {low} and {high}, got {value}.", param=param
        )


class _Window:
    """Counts of the newest tokens: all of them, and the generated ones among them."""

    def __init__(self, n_tokens: int | None, prompt_ids: Iterable[int]) -> None:
        self._n_tokens = n_tokens
        self._newest: deque[tuple[int, bool]] = deque()
        self.all: Counter[int] = Counter()
        self.generated: Counter[int] = Counter()
        for token_id in prompt_ids:
            self.push(int(token_id), is_generated=False)

    def push(self, token_id: int, *, is_generated: bool) -> None:
        """Add the newest token and let the oldest go when the window is full."""
        self.all[token_id] += 1
        if is_generated:
            self.generated[token_id] += 1
        if self._n_tokens is None:
            return
        self._newest.append((token_id, is_generated))
        if len(self._newest) > self._n_tokens:
            old_id, was_generated = self._newest.popleft()
            _subtract(self.all, old_id)
            if was_generated:
                _subtract(self.generated, old_id)


def _subtract(counts: Counter[int], token_id: int) -> None:
    counts[token_id] -= 1
    if not counts[token_id]:
        del counts[token_id]


class Sampler:
    """Chooses the tokens of one request.

    It has a random generator of its own that is asked once per sampled token, so what it chooses
    depends on the seed and the logits alone, never on what else runs.

    Attributes:
        params: the settings.
    """

    def __init__(
        self, params: SamplingParams, prompt_ids: npt.NDArray[np.int32] | Iterable[int] = ()
    ) -> None:
        """Start a request.

        Args:
            params: the settings.
            prompt_ids: the prompt; the repetition penalty looks back into it.
        """
        self.params = params
        seed = None if params.seed is None else params.seed % 2**64
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._window: _Window | None = None
        if params.has_penalties:
            n_tokens = None if params.penalty_last_n < 0 else params.penalty_last_n
            ids = list(prompt_ids)
            self._window = _Window(n_tokens, ids if n_tokens is None else ids[-n_tokens:])

    def accept(self, token_id: int) -> None:
        """Tell the sampler which token follows; penalties count it from now on."""
        if self._window is not None:
            self._window.push(int(token_id), is_generated=True)

    def pick(self, logits: npt.NDArray[np.float32]) -> int:
        """Choose the next token; the logits are left as they are.

        Args:
            logits: f32[n_vocab]. NaN counts as "never"; equal logits: the lower id comes first.

        Returns:
            The id of the chosen token.

        Raises:
            DeviceError: no logit is a usable number (all are NaN or -inf).
        """
        scores = self._penalized(logits)
        best = int(np.argmax(scores))
        if math.isnan(scores[best]):
            scores = np.where(np.isnan(scores), np.float32(-np.inf), scores)
            best = int(np.argmax(scores))
        if scores[best] == -np.inf:
            raise DeviceError(
                f"The model gave no usable logits: all {len(logits)} are NaN or -inf. "
                "The weights may be damaged; load the model again or check its file."
            )
        if self.params.is_greedy:
            return best
        if scores[best] == np.inf:
            certain = np.flatnonzero(scores == np.inf)
            return int(certain[int(self._random.random() * len(certain))])
        return self._sample(scores, best)

    def _penalized(self, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        window = self._window
        if window is None or not window.all:
            return logits
        scores = np.array(logits, dtype=np.float32)
        params = self.params
        if params.repetition_penalty != 1.0:
            ids = np.fromiter(window.all, np.int64, len(window.all))
            seen = scores[ids].astype(np.float64)
            factor = params.repetition_penalty
            with np.errstate(over="ignore"):
                scores[ids] = np.where(seen > 0, seen / factor, seen * factor)
        if window.generated and (params.presence_penalty or params.frequency_penalty):
            n_ids = len(window.generated)
            ids = np.fromiter(window.generated.keys(), np.int64, n_ids)
            counts = np.fromiter(window.generated.values(), np.float64, n_ids)
            scores[ids] -= params.presence_penalty + params.frequency_penalty * counts
        return scores

    def _sample(self, scores: npt.NDArray[np.float32], best: int) -> int:
        params = self.params
        top = float(scores[best])
        ids: npt.NDArray[np.int64] | None = None  # None = every token, in the order of ids
        if 0 < params.top_k < len(scores):
            ids = _highest(scores, params.top_k)
        if params.top_p < 1.0:
            ids = _nucleus(scores, ids, top, top_p=params.top_p)
        if params.min_p > 0.0:
            floor = top + math.log(params.min_p)
            ids = np.flatnonzero(scores >= floor) if ids is None else ids[scores[ids] >= floor]
        kept = scores if ids is None else scores[ids]
        with np.errstate(over="ignore", under="ignore"):
            scaled = (kept - np.float32(top)) / np.float32(max(params.temperature, 1e-30))
            cumulative = np.cumsum(np.exp(scaled), dtype=np.float64)
        point = self._random.random() * cumulative[-1]
        # side="right" skips tokens of weight 0, whose cumulative weight equals the one before.
        index = min(int(np.searchsorted(cumulative, point, side="right")), len(cumulative) - 1)
        return index if ids is None else int(ids[index])


def _highest(scores: npt.NDArray[np.float32], n: int) -> npt.NDArray[np.int64]:
    """Return the ids of the n highest scores, highest first, of equal ones the lower id first."""
    threshold = np.partition(scores, len(scores) - n)[len(scores) - n]
    ids = np.flatnonzero(scores >= threshold)
    return ids[np.argsort(-scores[ids], kind="stable")[:n]]


def _nucleus(
    scores: npt.NDArray[np.float32],
    ids: npt.NDArray[np.int64] | None,
    top: float,
    *,
    top_p: float,
) -> npt.NDArray[np.int64]:
    """Return the fewest most likely ids whose probability together reaches top_p.

    Args:
        scores: f32[n_vocab].
        ids: candidates, highest first; None = all tokens.
        top: the highest score.
        top_p: share of the candidates' probability wanted.
    """
    with np.errstate(under="ignore"):
        if ids is not None:
            cumulative = np.cumsum(np.exp(scores[ids].astype(np.float64) - top))
            return ids[: _n_reaching(cumulative, top_p * cumulative[-1])]
        wanted = top_p * float(np.exp(scores - np.float32(top)).sum(dtype=np.float64))
        n = min(FIRST_CANDIDATES, len(scores))
        while True:
            ids = _highest(scores, n)
            cumulative = np.cumsum(np.exp(scores[ids].astype(np.float64) - top))
            if cumulative[-1] >= wanted or n == len(scores):
                return ids[: _n_reaching(cumulative, wanted)]
            n = min(n * 8, len(scores))


def _n_reaching(cumulative: npt.NDArray[np.float64], wanted: float) -> int:
    """Return how many leading entries are needed until the sum reaches `wanted`; at least one."""
    return min(int(np.searchsorted(cumulative, wanted, side="left")) + 1, len(cumulative))
