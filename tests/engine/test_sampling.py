"""Choosing tokens: each filter against its plain definition, distributions, seeds, odd logits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from engine.errors import DeviceError, InvalidRequestError
from engine.sampling import Sampler, SamplingParams
from tests.call_count import count_calls

N_DRAWS = 4000
MAX_SHARE_ERROR = 5 * math.sqrt(0.25 / N_DRAWS)
"""Five standard deviations of the share of a coin; seeds are fixed, so it holds or fails always."""
MAX_PICK_CALLS = 1000
"""What a pick from 250,000 tokens may cost, in calls of functions; 30 to 200 are usual."""

steady = settings(deadline=None, derandomize=True, database=None)

Logits = npt.NDArray[np.float32]
any_logits = hnp.arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.floats(-30, 30, width=32) | st.sampled_from([-np.inf, 0.0, 1.0]),
)


def softmax(logits: Logits) -> npt.NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return weights / weights.sum()


def allowed_ids(logits: Logits, params: SamplingParams) -> set[int]:
    """Apply top-k, top-p and min-p as their definitions say, one token at a time."""
    order = sorted(range(len(logits)), key=lambda n: (-logits[n], n))
    if params.top_k > 0:
        order = order[: params.top_k]
    if params.top_p < 1:
        share = softmax(logits[order])
        kept, total = [], 0.0
        for token_id, part in zip(order, share, strict=True):
            kept.append(token_id)
            total += part
            if total >= params.top_p * (1 + 1e-6):
                break
        order = kept
    probabilities = softmax(logits)
    floor = probabilities.max() * params.min_p * (1 - 1e-5)
    return {n for n in order if probabilities[n] >= floor}


def draw(logits: Logits, n_draws: int = N_DRAWS, **settings_: Any) -> npt.NDArray[np.float64]:
    """Return how often each token is chosen."""
    sampler = Sampler(SamplingParams(**settings_))
    ids = [sampler.pick(logits) for _ in range(n_draws)]
    return np.bincount(ids, minlength=len(logits)) / n_draws


@steady
@given(logits=any_logits)
def test_greedy_takes_the_highest_and_the_first_of_equals(logits: Logits) -> None:
    if np.all(logits == -np.inf):
        with pytest.raises(DeviceError):
            Sampler(SamplingParams()).pick(logits)
    else:
        assert Sampler(SamplingParams()).pick(logits) == int(np.argmax(logits))


@steady
@given(
    logits=any_logits.filter(lambda x: bool(np.any(np.isfinite(x)))),
    temperature=st.sampled_from([1e-6, 0.3, 1.0, 5.0, 1000.0]),
    top_k=st.integers(-1, 50),
    top_p=st.sampled_from([0.0, 0.1, 0.5, 0.9, 0.999, 1.0]),
    min_p=st.sampled_from([0.0, 0.01, 0.3, 1.0]),
    seed=st.integers(0, 2**64 - 1),
)
def test_only_allowed_tokens_are_chosen(
    logits: Logits, temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    params = SamplingParams(
        temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed
    )
    before = logits.copy()
    sampler = Sampler(params)
    chosen = {sampler.pick(logits) for _ in range(5)}
    assert chosen <= allowed_ids(logits, params)
    assert all(logits[n] > -np.inf for n in chosen)
    assert np.array_equal(logits, before)


@steady
@given(logits=any_logits, seed=st.integers(-(2**63), 2**64 - 1))
def test_same_seed_same_ids_whatever_else_runs(logits: Logits, seed: int) -> None:
    logits = np.where(np.isfinite(logits), logits, np.float32(0))
    params = SamplingParams(temperature=1.0, seed=seed)
    alone, beside, other = Sampler(params), Sampler(params), Sampler(SamplingParams(temperature=2))
    first = [alone.pick(logits) for _ in range(8)]
    second = []
    for _ in range(8):
        other.pick(logits)
        second.append(beside.pick(logits))
    assert first == second


def test_seeds_differ_and_no_seed_is_random() -> None:
    logits = np.zeros(1000, np.float32)

    def ids(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingParams(temperature=1.0, seed=seed))
        return [sampler.pick(logits) for _ in range(10)]

    assert ids(1) != ids(2)
    assert ids(None) != ids(None)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature_gives_the_softmax_of_scaled_logits(temperature: float) -> None:
    logits = np.log(np.array([0.5, 0.25, 0.15, 0.1], np.float32))
    wanted = softmax(logits / np.float32(temperature))
    shares = draw(logits, temperature=temperature, seed=11)
    assert np.abs(shares - wanted).max() < MAX_SHARE_ERROR


def test_filters_keep_the_proportions_of_what_is_left() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    left = {"top_k": 2, "top_p": 0.6, "min_p": 0.7}
    for name, value in left.items():
        shares = draw(logits, temperature=1.0, seed=5, **{name: value})
        assert shares[0] == shares[2] == 0
        assert abs(shares[1] - 4 / 7) < MAX_SHARE_ERROR


def test_filters_look_at_unscaled_probabilities() -> None:
    logits = np.log(np.array([0.9, 0.06, 0.04], np.float32))
    shares = draw(logits, temperature=50.0, min_p=0.05, seed=3)
    assert shares[2] == 0
    assert abs(shares[0] - 0.5) < 0.1


def test_top_p_beyond_the_first_candidates() -> None:
    logits = np.zeros(5000, np.float32)
    shares = draw(logits, temperature=1.0, top_p=0.5, seed=1)
    assert shares[2500:].sum() == 0, "of equal tokens the lower ids come first"
    assert shares[2000:2500].sum() > 0


def test_tokens_of_probability_zero_never_come() -> None:
    logits = np.array([-np.inf, 0.0, -np.inf, -200.0], np.float32)
    assert draw(logits, 500, temperature=1.0, seed=1).tolist() == [0, 1, 0, 0]


# Penalties


def test_repetition_penalty_counts_the_prompt() -> None:
    params = SamplingParams(repetition_penalty=2.0)
    assert Sampler(params, [1]).pick(np.array([1.5, 2.0, 0.0], np.float32)) == 0
    assert Sampler(params, [0]).pick(np.array([-1.0, -1.5, -3.0], np.float32)) == 1


def test_presence_and_frequency_count_generated_tokens_only() -> None:
    logits = np.array([1.0, 1.5], np.float32)
    for params in (SamplingParams(presence_penalty=1.0), SamplingParams(frequency_penalty=0.3)):
        sampler = Sampler(params, [1, 1, 1, 1])
        assert sampler.pick(logits) == 1
        sampler.accept(1)
        sampler.accept(1)
        assert sampler.pick(logits) == 0


def test_frequency_counts_times_and_presence_does_not() -> None:
    logits = np.array([0.0, 1.0], np.float32)
    presence, frequency = (
        Sampler(SamplingParams(presence_penalty=0.4)),
        Sampler(SamplingParams(frequency_penalty=0.4)),
    )
    for _ in range(3):
        presence.accept(1)
        frequency.accept(1)
    assert presence.pick(logits) == 1
    assert frequency.pick(logits) == 0


@pytest.mark.parametrize(("last_n", "chosen"), [(-1, 0), (0, 1), (1, 1), (2, 1), (3, 0)])
def test_window_of_penalties(last_n: int, chosen: int) -> None:
    params = SamplingParams(repetition_penalty=4.0, penalty_last_n=last_n)
    sampler = Sampler(params, [1, 5])
    sampler.accept(5)
    assert sampler.pick(np.array([1.0, 2.0, 0, 0, 0, 0], np.float32)) == chosen


@steady
@given(
    prompt=st.lists(st.integers(0, 5), max_size=10),
    answer=st.lists(st.integers(0, 5), max_size=10),
    last_n=st.integers(-1, 8),
)
def test_window_equals_counting_anew(prompt: list[int], answer: list[int], last_n: int) -> None:
    params = SamplingParams(
        repetition_penalty=1.5,
        presence_penalty=0.25,
        frequency_penalty=0.125,
        penalty_last_n=last_n,
    )
    sampler = Sampler(params, np.array(prompt, np.int32))
    for token_id in answer:
        sampler.accept(token_id)
    everything = [(n, False) for n in prompt] + [(n, True) for n in answer]
    window = everything if last_n < 0 else everything[len(everything) - last_n :]
    window = [] if last_n == 0 else (everything if last_n > len(everything) else window)
    logits = np.array([0.5, 0.25, 1.0, -0.5, 0.75, 0.1], np.float32)
    wanted = logits.astype(np.float64)
    for n in {n for n, _ in window}:
        wanted[n] = wanted[n] / 1.5 if wanted[n] > 0 else wanted[n] * 1.5
        count = window.count((n, True))
        wanted[n] -= 0.125 * count + (0.25 if count else 0.0)
    picked = sampler.pick(logits)
    assert wanted[picked] >= wanted.max() - 1e-6


# Odd logits


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_no_usable_logit_is_an_error(bad: float, temperature: float) -> None:
    with pytest.raises(DeviceError, match="no usable logits"):
        Sampler(SamplingParams(temperature=temperature)).pick(np.full(7, bad, np.float32))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_counts_as_never(temperature: float) -> None:
    logits = np.array([np.nan, 1.0, np.nan, 50.0], np.float32)
    assert Sampler(SamplingParams(temperature=temperature, seed=0)).pick(logits) == 3


def test_infinite_logits_are_certain() -> None:
    logits = np.array([1.0, np.inf, 9.0, np.inf], np.float32)
    assert Sampler(SamplingParams()).pick(logits) == 1
    sampler = Sampler(SamplingParams(temperature=1.0, top_p=0.9, seed=0))
    assert {sampler.pick(logits) for _ in range(40)} == {1, 3}


@pytest.mark.filterwarnings("error")
def test_extreme_logits_warn_of_nothing() -> None:
    logits = np.array([3e38, -3e38, 0.0, -np.inf], np.float32)
    params = SamplingParams(temperature=1e-9, top_p=0.9, min_p=0.1, repetition_penalty=100, seed=0)
    assert Sampler(params, [1]).pick(logits) == 0


# Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "1"),
        ("temperature", True),
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_p", 1.1),
        ("top_p", -0.1),
        ("min_p", 2),
        ("repetition_penalty", 0),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -3),
        ("penalty_last_n", -2),
        ("seed", 1.5),
        ("seed", 2**64),
        ("seed", "x"),
    ],
)
def test_bad_settings_name_themselves(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=name) as caught:
        SamplingParams(**{name: value})
    assert caught.value.param == name
    assert caught.value.status == 400


def test_whole_numbers_are_numbers() -> None:
    params = SamplingParams(temperature=1, top_p=1, min_p=0, presence_penalty=-2)
    assert not params.is_greedy
    assert SamplingParams().is_greedy


@pytest.mark.parametrize(
    "given_settings",
    [{}, {"temperature": 0.7}, {"temperature": 0.7, "top_k": 40}, {"temperature": 1, "top_p": 0.9}],
)
def test_a_large_vocabulary_is_not_walked_through(
    given_settings: dict[str, Any],
) -> None:
    logits = (np.random.default_rng(0).standard_normal(250_000) * 3).astype(np.float32)
    sampler = Sampler(SamplingParams(seed=1, repetition_penalty=1.1, **given_settings), range(64))
    n_calls = count_calls(lambda: sampler.accept(sampler.pick(logits)))
    assert n_calls < MAX_PICK_CALLS
