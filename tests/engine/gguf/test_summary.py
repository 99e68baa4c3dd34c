"""What is told of a model before it is loaded."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import GGUFFormatError
from engine.gguf.reader import open_model
from engine.gguf.summary import kv_values_per_token, summarize, summarize_file
from kernels.quants import QuantType
from tests.builders import RawTensor, make_gguf, make_split_gguf, make_tiny_llama, tiny_llama

SUPPORTED = {"llama": object()}


def test_a_tiny_llama(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "tiny.Q8_0.gguf", quant=QuantType.Q8_0, n_layers=3)
    summary = summarize_file(path, SUPPORTED)
    _, tensors = tiny_llama(quant=QuantType.Q8_0, n_layers=3)
    assert summary.id == "tiny.Q8_0"
    assert summary.path == str(path)
    assert summary.name == "Tiny Llama"
    assert summary.architecture == "llama"
    assert (summary.is_supported, summary.reason) == (True, "")
    assert summary.quantization == "Q8_0"
    assert summary.n_params == sum(
        int(np.prod(tensor.dims)) for tensor in tensors.values() if isinstance(tensor, RawTensor)
    )
    assert summary.file_bytes == path.stat().st_size
    assert summary.n_shards == 1
    assert summary.context_tokens == 2048
    assert (summary.n_layers, summary.d_model, summary.n_heads, summary.n_kv_heads) == (3, 64, 4, 2)
    assert summary.n_vocab == 352
    assert (summary.n_experts, summary.n_experts_used) == (0, 0)
    # 3 layers x 2 heads x (16 of K + 16 of V) x 2 bytes.
    assert summary.kv_bytes_per_token == 3 * 2 * 32 * 2
    assert summary.has_chat_template
    assert summary.tensor_types == {"Q8_0": 23, "F32": 7}


def test_a_split_model_is_one_model_without_the_shard_number(tmp_path: Path) -> None:
    keys, tensors = tiny_llama(metadata={"general.name": None})
    names = list(tensors)
    halves = [{name: tensors[name] for name in names[at::2]} for at in range(2)]
    paths = make_split_gguf(tmp_path, "big-model", keys, halves)
    summary = summarize_file(paths[1], SUPPORTED)
    assert (summary.id, summary.name) == ("big-model", "big-model")
    assert summary.n_shards == 2
    assert summary.path == str(paths[0])
    assert summary.file_bytes == sum(path.stat().st_size for path in paths)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"general.architecture": "mamba"}, "architecture 'mamba' is not supported.*llama"),
        ({"general.architecture": None}, "does not say which architecture"),
        ({"tokenizer.ggml.tokens": None}, r"no tokenizer \(no tokenizer\.ggml\.tokens\)"),
        ({"tokenizer.ggml.model": None}, r"no tokenizer \(no tokenizer\.ggml\.model\)"),
    ],
)
def test_reasons_in_the_keys(tmp_path: Path, metadata: dict[str, Any], said: str) -> None:
    summary = summarize_file(make_tiny_llama(tmp_path / "m.gguf", metadata=metadata), SUPPORTED)
    assert not summary.is_supported
    assert re.search(said, summary.reason), summary.reason


def test_an_unknown_tensor_type_is_told_before_a_load(tmp_path: Path) -> None:
    keys, tensors = tiny_llama()
    tensors["blk.0.attn_q.weight"] = RawTensor((64, 64), 36, bytes(2304))
    summary = summarize_file(make_gguf(tmp_path / "m.gguf", keys, tensors), SUPPORTED)
    assert not summary.is_supported
    assert "'blk.0.attn_q.weight'" in summary.reason
    assert "IQ4_NL instead" in summary.reason
    assert summary.tensor_types["type 36"] == 1


def test_integer_weights_are_told(tmp_path: Path) -> None:
    keys, tensors = tiny_llama()
    tensors["blk.0.attn_q.weight"] = np.zeros((64, 64), np.int32)
    summary = summarize_file(make_gguf(tmp_path / "m.gguf", keys, tensors), SUPPORTED)
    assert "'blk.0.attn_q.weight' is stored as I32" in summary.reason


def test_formats_the_kernels_lack_are_told(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "m.gguf", quant=QuantType.Q4_0)
    some = {QuantType.Q8_0, QuantType.F32}
    reason = summarize_file(path, SUPPORTED, quants=some).reason
    assert "'token_embd.weight' is stored as Q4_0" in reason
    assert reason.endswith("it can with F32, Q8_0.")
    assert summarize_file(path, SUPPORTED, quants=some | {QuantType.Q4_0}).is_supported


def test_a_vocabulary_without_weights(tmp_path: Path) -> None:
    keys, _ = tiny_llama()
    summary = summarize_file(make_gguf(tmp_path / "m.gguf", keys), SUPPORTED)
    assert "no weights" in summary.reason
    assert summary.quantization == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", "two"),
        ("llama.block_count", 1 << 40),
        ("llama.embedding_length", -1),
        ("llama.attention.head_count_kv", [1]),
        ("llama.context_length", 1.5),
    ],
)
def test_damaged_dims_name_the_key(tmp_path: Path, key: str, value: Any) -> None:
    path = make_tiny_llama(tmp_path / "m.gguf", metadata={key: value})
    with pytest.raises(GGUFFormatError, match=key):
        summarize_file(path, SUPPORTED)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, 2 * 2 * 32),
        ({"llama.attention.head_count_kv": None}, 2 * 4 * 32),
        ({"llama.attention.head_count_kv": [2, 0]}, 2 * 32),
        ({"llama.attention.key_length": 24, "llama.attention.value_length": 8}, 2 * 2 * 32),
        ({"llama.attention.key_length": 64}, 2 * 2 * (64 + 16)),
        ({"llama.full_attention_interval": 2}, 2 * 32),
        (
            {"llama.attention.recurrent_layers": [False, True], "llama.full_attention_interval": 1},
            64,
        ),
        ({"llama.attention.head_count": None}, 0),
        ({"llama.block_count": 0}, 0),
    ],
)
def test_kv_values(tmp_path: Path, metadata: dict[str, Any], expected: int) -> None:
    with open_model(make_tiny_llama(tmp_path / "m.gguf", metadata=metadata)) as model:
        assert kv_values_per_token(model.metadata, "llama") == expected


def test_no_tensor_byte_is_read(tmp_path: Path) -> None:
    keys, tensors = tiny_llama()
    path = make_gguf(tmp_path / "m.gguf", keys, {**tensors, "zz": RawTensor((1 << 31,), 0, b"")})
    os.truncate(path, path.stat().st_size + (8 << 30))
    summary = summarize_file(path, SUPPORTED)
    assert summary.n_params > 1 << 31


@pytest.mark.model
def test_the_demo_model(smollm2_path: Path) -> None:
    with open_model(smollm2_path) as model:
        summary = summarize(model, SUPPORTED)
    assert (summary.is_supported, summary.reason) == (True, "")
    assert summary.id == "SmolLM2-135M-Instruct.Q4_1"
    assert summary.quantization == "Q4_1"
    assert summary.tensor_types == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert (summary.n_layers, summary.d_model, summary.n_heads, summary.n_kv_heads) == (
        30, 576, 9, 3,
    )  # fmt: skip
    assert summary.n_vocab == 49152
    assert summary.context_tokens == 8192
    assert summary.kv_bytes_per_token == 30 * 3 * 128 * 2
    assert summary.n_params == 134_515_008
