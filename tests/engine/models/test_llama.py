"""Llama against a float64 llama written apart, and refusals that name what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backend.cpu import CpuBackend
from engine.backend.logits import compute_logits
from engine.config import BackendConfig
from engine.errors import GGUFFormatError, UnsupportedModelError
from engine.gguf.reader import open_model
from engine.models.registry import ARCHITECTURES, build_model
from engine.step import LaneId, Span, StepPlan
from kernels.quants import QuantType
from tests.builders import make_gguf, make_tiny_llama, quantize, tiny_llama
from tests.engine.models.plain_llama import all_logits

EXACT = 2e-4
"""Largest difference of a logit (they spread over about +-10): float32 against float64."""
DEFAULT = 0.05
"""The same with 14-bit activations and float16 K/V."""

IDS = np.random.default_rng(3).integers(0, 350, 90).astype(np.int32)


def biased() -> tuple[dict[str, Any], dict[str, Any]]:
    keys, tensors = tiny_llama(seed=5)
    rng = np.random.default_rng(6)
    for layer in range(2):
        for name, n in (("q", 64), ("k", 32), ("v", 32), ("output", 64)):
            values = rng.standard_normal(n).astype(np.float32)
            tensors[f"blk.{layer}.attn_{name}.bias"] = quantize(values, QuantType.F32)
    return keys, tensors


def scaled() -> tuple[dict[str, Any], dict[str, Any]]:
    keys, tensors = tiny_llama(seed=7, is_tied=True)
    factors = np.array([1, 1, 2, 2.5, 4, 8, 8, 8], np.float32)
    return keys, tensors | {"rope_freqs.weight": quantize(factors, QuantType.F32)}


def partly_rotated() -> tuple[dict[str, Any], dict[str, Any]]:
    return tiny_llama(
        seed=8,
        metadata={
            "llama.rope.dimension_count": 8,
            "llama.rope.scaling.type": "linear",
            "llama.rope.scaling.factor": 4.0,
        },
    )


MODELS = {
    "f32": lambda: tiny_llama(),
    "f16": lambda: tiny_llama(quant=QuantType.F16),
    "bf16": lambda: tiny_llama(quant=QuantType.BF16),
    "q8_0": lambda: tiny_llama(quant=QuantType.Q8_0, is_tied=True),
    "q4_1": lambda: tiny_llama(quant=QuantType.Q4_1),
    "q4_0": lambda: tiny_llama(quant=QuantType.Q4_0),
    "biases": biased,
    "llama3 scaling": scaled,
    "partial rotation, linear scaling": partly_rotated,
    "no groups": lambda: tiny_llama(n_kv_heads=4),
    "one k/v head": lambda: tiny_llama(n_kv_heads=1, n_layers=3),
}


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_a_plain_llama(tmp_path: Path, name: str) -> None:
    path = make_gguf(tmp_path / "tiny.gguf", *MODELS[name]())
    with open_model(path) as model:
        wanted = all_logits(model, IDS)
    for is_exact, tolerance in ((True, EXACT), (False, DEFAULT)):
        had = compute_logits(path, IDS, is_exact=is_exact, span_tokens=32)
        assert np.abs(had["last_logits"] - wanted[-1]).max() < tolerance
        top_two = np.sort(wanted, axis=-1)[:, -2:]
        is_clear = top_two[:, 1] - top_two[:, 0] > 2 * tolerance
        assert is_clear.sum() > len(IDS) * 0.75
        assert np.array_equal(had["argmax"][is_clear], wanted.argmax(-1)[is_clear])


def test_spec_comes_from_the_keys(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "tiny.gguf", n_layers=3)
    with open_model(path) as model:
        built = build_model(model)
        spec = built.spec
        assert (spec.n_layers, spec.d_model, spec.n_heads, spec.n_kv_heads) == (3, 64, 4, 2)
        assert (spec.head_dim, spec.d_ff, spec.n_vocab, spec.context_tokens) == (16, 128, 352, 2048)
        assert (spec.rope.n_dims, spec.rope.base, spec.rope.scale) == (16, 10000.0, 1.0)
        assert spec.kv_values_per_token == 3 * 2 * 32
        names = {weight.name for weight in built.weights}
        assert set(model.tensors) <= names
        del built


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"general.architecture": "mamba"}, UnsupportedModelError, "'mamba'"),
        ({"llama.block_count": None}, GGUFFormatError, "llama.block_count"),
        ({"llama.block_count": 4}, GGUFFormatError, r"blk\.2\.attn_norm\.weight"),
        ({"llama.feed_forward_length": 256}, GGUFFormatError, r"blk\.0\.ffn_gate\.weight"),
        ({"llama.attention.head_count": 3}, UnsupportedModelError, "3 query and 2"),
        ({"llama.expert_count": 8}, UnsupportedModelError, "8 experts"),
        ({"llama.rope.scaling.type": "yarn"}, UnsupportedModelError, "'yarn'"),
        ({"llama.rope.dimension_count": 17}, UnsupportedModelError, "dimension_count is 17"),
        ({"llama.attention.value_length": 8}, UnsupportedModelError, "values of 8"),
    ],
)
def test_what_cannot_be_run_is_named(
    tmp_path: Path, change: dict[str, Any], error: type[Exception], text: str
) -> None:
    path = make_tiny_llama(tmp_path / "tiny.gguf", metadata=change)
    with open_model(path) as model, pytest.raises(error, match=text):
        build_model(model)


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    keys, tensors = tiny_llama()
    del tensors["blk.1.ffn_down.weight"]
    path = make_gguf(tmp_path / "tiny.gguf", keys, tensors)
    with open_model(path) as model, pytest.raises(GGUFFormatError, match=r"blk\.1\.ffn_down"):
        build_model(model)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(tmp_path: Path) -> None:
    keys, tensors = tiny_llama()
    tensors["blk.1.attn_k.weight"] = np.zeros((16, 64), np.float32)
    path = make_gguf(tmp_path / "tiny.gguf", keys, tensors)
    with (
        open_model(path) as model,
        pytest.raises(GGUFFormatError, match=r"attn_k.*\[16, 64\].*\[32, 64\]"),
    ):
        build_model(model)


def test_a_format_without_kernel_is_named(tmp_path: Path) -> None:
    keys, tensors = tiny_llama(d_ff=256, metadata={})
    tensors["blk.0.ffn_down.weight"] = np.zeros((64, 256), np.int8)
    path = make_gguf(tmp_path / "tiny.gguf", keys, tensors)
    with open_model(path) as model, pytest.raises(UnsupportedModelError, match=r"ffn_down.*I8"):
        build_model(model)


def test_every_architecture_has_a_builder() -> None:
    assert "llama" in ARCHITECTURES
    assert all(callable(model.from_gguf) for model in ARCHITECTURES.values())


def test_norms_in_a_quantised_format_are_refused(tmp_path: Path) -> None:
    keys, tensors = tiny_llama()
    tensors["output_norm.weight"] = np.ones(64, np.float16)
    path = make_gguf(tmp_path / "tiny.gguf", keys, tensors)
    with open_model(path) as model, pytest.raises(UnsupportedModelError, match="output_norm.*F16"):
        build_model(model)


def test_the_file_may_be_closed_before_the_backend(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "tiny.gguf")
    with open_model(path) as model:
        backend = CpuBackend(
            model,
            BackendConfig(n_threads=1),
            n_lanes=1,
            context_tokens=8,
            n_chunks=1,
            chunk_cells=8,
            is_pooled=False,
        )
    span = Span(lane=LaneId(0), start=0, ids=IDS[:4], wants_logits=True)
    assert LaneId(0) in backend.run(StepPlan(step_id=0, spans=(span,))).logits
    backend.close()
