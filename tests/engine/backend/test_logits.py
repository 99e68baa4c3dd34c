"""Golden logits: Hugging Face transformers in float32 on the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.backend.logits import compute_logits
from engine.errors import ConfigError, ContextLengthError, InvalidRequestError, ModelFileError
from tests.builders import make_tiny_llama

Array = npt.NDArray[Any]

GOLDEN = Path(__file__).resolve().parents[2] / "golden"

EXACT_LOGIT = 1e-3
"""Largest difference of a logit on the exact path."""
DEFAULT_KL = 2e-3
"""Kullback-Leibler divergence of the last position on the default path, in nats."""


def divergence(wanted: Array, had: Array) -> float:
    """Return KL(wanted || had) of two rows of logits."""
    logs = []
    for row in (wanted, had):
        wide = row.astype(np.float64) - row.max()
        logs.append(wide - np.log(np.exp(wide).sum()))
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum())


def check_exact(path: Path, golden: Any, prompt: str) -> None:
    had = compute_logits(path, golden[f"{prompt}.ids"], is_exact=True, n_greedy=32)
    assert np.abs(had["last_logits"] - golden[f"{prompt}.logits_last"]).max() < EXACT_LOGIT
    assert np.array_equal(had["argmax"], golden[f"{prompt}.top_ids"][:, 0])
    assert np.array_equal(had["greedy"], golden[f"{prompt}.greedy_ids"])


def check_default(path: Path, golden: Any, prompt: str) -> None:
    had = compute_logits(path, golden[f"{prompt}.ids"])
    assert divergence(golden[f"{prompt}.logits_last"], had["last_logits"]) < DEFAULT_KL


@pytest.mark.parametrize("prompt", ["short", "long"])
def test_the_committed_llama_meets_its_golden_logits(prompt: str) -> None:
    with np.load(GOLDEN / "llama-t-q8_0.npz") as golden:
        check_exact(GOLDEN / "llama-t-q8_0.gguf", golden, prompt)
        check_default(GOLDEN / "llama-t-q8_0.gguf", golden, prompt)


@pytest.mark.shared
@pytest.mark.parametrize("prompt", ["short", "long"])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("llama/llama-t-f32", "llama/llama-t-f32"),
        ("llama/llama-t-f16", "llama/llama-t-f32"),
        ("llama/llama-t-q8_0", "llama/llama-t-q8_0"),
        ("llama/llama-q-q4_k_m", "llama/llama-q-q4_k_m"),
        ("llama3/llama3-t-f32", "llama3/llama3-t-f32"),
        ("llama3/llama3-t-bf16", "llama3/llama3-t-f32"),
    ],
)
def test_small_llamas_meet_their_golden_logits(
    shared_dir: Path, name: str, values: str, prompt: str
) -> None:
    with np.load(shared_dir / "golden" / f"{values}.npz") as golden:
        check_exact(shared_dir / "golden" / f"{name}.gguf", golden, prompt)
        check_default(shared_dir / "golden" / f"{name}.gguf", golden, prompt)


@pytest.mark.shared
@pytest.mark.model
@pytest.mark.parametrize("prompt", ["capital", "fox", "fruits"])
def test_smollm2_meets_its_golden_logits(shared_dir: Path, smollm2_path: Path, prompt: str) -> None:
    with np.load(shared_dir / "golden" / "smollm2" / "logits.npz") as golden:
        ids, logits = golden[f"{prompt}_ids"], golden[f"{prompt}_last_logits"]
        exact = compute_logits(smollm2_path, ids, is_exact=True, n_greedy=48, span_tokens=16)
        assert np.abs(exact["last_logits"] - logits).max() < EXACT_LOGIT
        assert np.array_equal(exact["argmax"], golden[f"{prompt}_argmax"])
        assert np.array_equal(exact["greedy"], golden[f"{prompt}_greedy"])
        default = compute_logits(smollm2_path, ids)
        assert divergence(logits, default["last_logits"]) < DEFAULT_KL


def test_any_span_gives_the_same_bits() -> None:
    path, ids = GOLDEN / "llama-t-q8_0.gguf", np.arange(70)
    wanted = compute_logits(path, ids, n_greedy=4)
    for span_tokens in (1, 7, 64):
        had = compute_logits(path, ids, n_greedy=4, span_tokens=span_tokens)
        for name, values in wanted.items():
            assert np.array_equal(had[name], values), (name, span_tokens)


def test_greedy_tokens_are_those_of_the_longer_sequence() -> None:
    path, ids = GOLDEN / "llama-t-q8_0.gguf", np.arange(20)
    greedy = compute_logits(path, ids, n_greedy=6)["greedy"]
    longer = compute_logits(path, np.concatenate([ids, greedy]))
    assert np.array_equal(longer["argmax"][19:-1], greedy)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "tiny.gguf", context_tokens=16)
    ids = np.arange(4)
    with pytest.raises(InvalidRequestError, match="at least one id"):
        compute_logits(path, ids[:0])
    with pytest.raises(InvalidRequestError, match="whole numbers"):
        compute_logits(path, ids * 0.5)
    with pytest.raises(InvalidRequestError, match=r"-1 \.\. 2"):
        compute_logits(path, ids - 1)
    with pytest.raises(InvalidRequestError, match="0 and 0"):
        compute_logits(path, ids, span_tokens=0)
    with pytest.raises(ContextLengthError):
        compute_logits(path, ids, n_greedy=13)
    with pytest.raises(ConfigError, match="abacus"):
        compute_logits(path, ids, backend="abacus")
    with pytest.raises(ModelFileError, match=r"none\.gguf"):
        compute_logits(tmp_path / "none.gguf", ids)
    assert len(compute_logits(path, ids, n_greedy=12)["greedy"]) == 12
