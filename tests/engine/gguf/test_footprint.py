"""What a model will take, told from its header: against the loaded model, and by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.gguf.footprint import Layers, find_warnings, kv_format_bytes, read_layers
from engine.gguf.metadata import Metadata
from engine.gguf.reader import open_model
from engine.gguf.summary import summarize
from engine.models.registry import ARCHITECTURES
from tests.builders import make_gguf, make_tiny_llama
from tests.engine.models.goldens import Golden, committed, open_backend


@pytest.mark.parametrize("golden", committed())
def test_the_loaded_model_takes_what_was_told(golden: Golden) -> None:
    with open_model(golden.model) as model:
        summary = summarize(model, ARCHITECTURES)
        n_bytes = sum(tensor.n_bytes for tensor in model.tensors.values())
    assert sum(summary.group_bytes.values()) == n_bytes
    assert {g: sum(f.values()) for g, f in summary.group_formats.items()} == summary.group_bytes
    for is_exact, name in ((False, "f16"), (True, "f32")):
        with open_backend(golden.model, is_exact=is_exact) as backend:
            assert summary.kv_format_bytes[name] == backend.kv_bytes_per_cell
            assert summary.state_bytes_per_lane == backend.state_bytes_per_lane
            assert summary.n_layers == backend.spec.n_layers
    assert summary.kv_bytes_per_token == summary.kv_format_bytes["f16"]
    assert (summary.warnings, summary.is_supported) == ((), True)


def test_groups_of_the_golden_qwen4exp() -> None:
    path = next(case.values[0].model for case in committed() if case.id == "qwen4exp-t-f16")
    with open_model(path) as model:
        summary = summarize(model, ARCHITECTURES)
    # 8 layers x 8 experts x 3 matrices; 2,048 ids twice; 2,176 rows of 16: two bytes a weight.
    assert summary.group_bytes["experts"] == 8 * 8 * 3 * 32 * 64 * 2
    assert summary.group_bytes["embeddings"] == 2 * 2048 * 64 * 2
    assert summary.group_bytes["n-gram table"] == 2176 * 16 * 2
    assert summary.group_formats["experts"] == {"F16": 8 * 8 * 3 * 32 * 64 * 2}
    assert set(summary.group_formats["dense"]) == {"F16", "F32"}
    assert list(summary.group_bytes)[0] == "dense"
    # Two layers with an index key of 32 float32 values for each 4 tokens.
    assert summary.index_bytes_per_token == 2 * 32 * 4 // 4


def test_kv_formats_of_the_flagship() -> None:
    """12 layers of 2 heads of 256, as section 5 of the design has them."""
    assert kv_format_bytes(12 * 512, 12 * 512) == {
        "f32": 49152,
        "f16": 24576,
        "int8": 12672,
        "k8v4": 9792,
        "q4": 6912,
    }


def test_a_plain_model_has_no_state_and_no_index(tmp_path: Path) -> None:
    with open_model(make_tiny_llama(tmp_path / "tiny.gguf")) as model:
        summary = summarize(model, ARCHITECTURES)
    assert (summary.state_bytes_per_lane, summary.index_bytes_per_token) == (0, 0)
    assert set(summary.group_bytes) == {"dense", "embeddings"}


def metadata_of(tmp_path: Path, **keys: Any) -> Metadata:
    named = {f"m.{key.replace('__', '.')}": value for key, value in keys.items()}
    with open_model(make_gguf(tmp_path / "keys.gguf", named)) as model:
        return model.metadata


@pytest.mark.parametrize(
    ("keys", "wanted"),
    [
        ({"block_count": 3}, (3, 0, (True, True, True))),
        ({}, (0, 0, ())),
        ({"block_count": 4, "full_attention_interval": 2}, (4, 0, (False, True, False, True))),
        (
            {"block_count": 3, "nextn_predict_layers": 1, "full_attention_interval": 2},
            (2, 1, (False, True)),
        ),
        (
            {
                "block_count": 3,
                "nextn_predict_layers": 1,
                "attention__recurrent_layers": [True, False, False],
            },
            (2, 1, (False, True)),
        ),
    ],
)
def test_layers_are_read(
    tmp_path: Path, keys: dict[str, Any], wanted: tuple[int, int, tuple[bool, ...]]
) -> None:
    layers = read_layers(metadata_of(tmp_path, **keys), "m")
    assert (layers.n_run, layers.n_unused, layers.keeps_kv) == wanted


def test_blocks_behind_the_last_layer_are_a_group_of_their_own(tmp_path: Path) -> None:
    path = make_tiny_llama(tmp_path / "tiny.gguf", n_layers=3)
    with open_model(path) as model:
        layers = Layers(n_run=2, n_unused=1, keeps_kv=(True, True))
        warnings = find_warnings(model, "llama", layers)
    assert len(warnings) == 1
    assert "1 more block " in warnings[0]
