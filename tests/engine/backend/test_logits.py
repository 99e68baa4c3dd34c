"""Logits for comparing with other programs: SmolLM2's golden ones, spans, refusals.

The small golden models are run by tests/engine/models/test_goldens.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.backend.logits import compute_logits
from engine.errors import ConfigError, ContextLengthError, InvalidRequestError, ModelFileError
from tests.builders import make_tiny_llama
from tests.engine.models.goldens import COMMITTED, divergence

EXACT_LOGIT = 1e-3
"""Largest difference of a logit on the exact path."""
DEFAULT_KL = 2e-3
"""Kullback-Leibler divergence of the last position on the default path, in nats."""


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
    path, ids = COMMITTED / "llama-t-q8_0.gguf", np.arange(70)
    wanted = compute_logits(path, ids, n_greedy=4)
    for span_tokens in (1, 7, 64):
        had = compute_logits(path, ids, n_greedy=4, span_tokens=span_tokens)
        for name, values in wanted.items():
            assert np.array_equal(had[name], values), (name, span_tokens)


def test_greedy_tokens_are_those_of_the_longer_sequence() -> None:
    path, ids = COMMITTED / "llama-t-q8_0.gguf", np.arange(20)
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
