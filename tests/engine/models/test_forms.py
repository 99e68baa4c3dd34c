"""Forms that files of the same model come in, and what is said of those that cannot be run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.errors import GGUFFormatError, ModelFileError, UnsupportedModelError
from engine.gguf.reader import open_model
from engine.gguf.summary import summarize
from engine.models.qwen3next import key_head_parts
from engine.models.registry import ARCHITECTURES, build_model
from tests.builders import ARRAY, BOOL, FLOAT32, INT32, UINT32, UINT64, RawTensor, Typed
from tests.engine.models.goldens import COMMITTED, open_backend, read
from tests.engine.models.rewrite import Keys, Tensors, rewrite, rows_of, with_rows

Array = npt.NDArray[Any]

IDS = np.random.default_rng(31).integers(0, 2000, 150).astype(np.int32)


def logits_of(path: Path, *, is_exact: bool = True) -> Array:
    with open_backend(path, is_exact=is_exact) as backend:
        return read(backend, IDS)


def golden(stem: str) -> Path:
    return COMMITTED / f"{stem}.gguf"


def check_same_bits(tmp_path: Path, stem: str, change: Callable[[Keys, Tensors], None]) -> Path:
    path = rewrite(golden(stem), tmp_path / "changed.gguf", change)
    assert np.array_equal(logits_of(path), logits_of(golden(stem)))
    return path


def test_a_file_written_again_is_the_same_model(tmp_path: Path) -> None:
    check_same_bits(tmp_path, "qwen4exp-t-f16", lambda keys, tensors: None)


def test_an_early_qwen3next_has_its_inputs_in_one_tensor(tmp_path: Path) -> None:
    def change(keys: Keys, tensors: Tensors) -> None:
        n_keys, dim, n_shared = 2, 32, 2
        for layer in range(3):
            at = f"blk.{layer}."
            qkv, gate = tensors.pop(at + "attn_qkv.weight"), tensors.pop(at + "attn_gate.weight")
            parts = key_head_parts(n_keys, (dim, dim, n_shared * dim, n_shared * dim))
            stored = np.empty((len(rows_of(qkv)) + len(rows_of(gate)), rows_of(qkv).shape[1]), "u1")
            stored[np.concatenate(parts)] = np.concatenate([rows_of(qkv), rows_of(gate)])
            tensors[at + "ssm_in.weight"] = with_rows(qkv, stored)

    check_same_bits(tmp_path, "qwen3next-t-bf16", change)


def test_key_heads_bring_their_rows_in_turn() -> None:
    q, v = key_head_parts(2, (1, 3))
    assert q.tolist() == [0, 4]
    assert v.tolist() == [1, 2, 3, 5, 6, 7]


def test_fused_tensors_may_be_apart(tmp_path: Path) -> None:
    def change(keys: Keys, tensors: Tensors) -> None:
        qkv = tensors.pop("blk.3.attn_qkv.weight")
        rows = rows_of(qkv)
        for name, part in (("q", rows[:256]), ("k", rows[256:320]), ("v", rows[320:])):
            tensors[f"blk.3.attn_{name}.weight"] = with_rows(qkv, part)
        for layer in range(4):
            both = tensors.pop(f"blk.{layer}.ffn_gate_up_exps.weight")
            halves = rows_of(both).reshape(8, 2, 32, -1)
            for j, name in enumerate(("gate", "up")):
                tensors[f"blk.{layer}.ffn_{name}_exps.weight"] = RawTensor(
                    (64, 32, 8), both.type_id, halves[:, j].tobytes()
                )

    check_same_bits(tmp_path, "qwen35moe-t-f16-fused", change)


def test_a_block_for_further_tokens_is_skipped_and_told(tmp_path: Path) -> None:
    def change(keys: Keys, tensors: Tensors) -> None:
        keys["qwen35moe.block_count"] = Typed(UINT32, 5)
        keys["qwen35moe.nextn_predict_layers"] = Typed(UINT32, 1)
        flags = [True, True, True, False, False]
        keys["qwen35moe.attention.recurrent_layers"] = Typed(ARRAY, flags, BOOL)
        for name in list(tensors):
            if name.startswith("blk.3."):
                tensors[name.replace("blk.3.", "blk.4.")] = tensors[name]
        tensors["blk.4.nextn.eh_proj.weight"] = tensors["blk.3.attn_output.weight"]

    path = check_same_bits(tmp_path, "qwen35moe-t-f16-fused", change)
    with open_model(path) as model:
        summary = summarize(model, ARCHITECTURES)
        taken = {weight.name for weight in build_model(model).weights}
    assert summary.n_layers == 4
    assert "1 more block " in summary.warnings[0]
    assert summary.group_bytes["unused"] > 0
    assert not any(name.startswith("blk.4.") for name in taken)
    # One layer of 2 heads of 32, K and V, float16: the block behind keeps nothing.
    assert summary.kv_bytes_per_token == 2 * 2 * 32 * 2


def test_layers_may_be_told_by_an_interval(tmp_path: Path) -> None:
    def change(keys: Keys, tensors: Tensors) -> None:
        del keys["qwen35moe.attention.recurrent_layers"]

    check_same_bits(tmp_path, "qwen35moe-t-f16-fused", change)


def test_a_tied_head_is_the_token_table(tmp_path: Path) -> None:
    def tie(keys: Keys, tensors: Tensors) -> None:
        tensors["output.weight"] = tensors["token_embd.weight"]

    def leave_out(keys: Keys, tensors: Tensors) -> None:
        del tensors["output.weight"]

    for stem in ("qwen35moe-t-f16-fused", "qwen4exp-t-f16"):
        copied = rewrite(golden(stem), tmp_path / "copied.gguf", tie)
        tied = rewrite(golden(stem), tmp_path / "tied.gguf", leave_out)
        assert np.array_equal(logits_of(copied), logits_of(tied))


def keep_one_expert(keys: Keys, tensors: Tensors, arch: str, *, as_dense: bool) -> None:
    """Leave expert 0 of each layer, as the only expert or as a dense part."""
    for name in list(tensors):
        if name.endswith("ffn_gate_inp.weight"):
            router = tensors.pop(name)
            if not as_dense:
                tensors[name] = RawTensor((router.dims[0], 1), 0, rows_of(router)[:1].tobytes())
        if "_exps." in name:
            stack = tensors.pop(name)
            n_cols, n_rows, n_experts = stack.dims
            first = rows_of(stack)[:n_rows].tobytes()
            dims: tuple[int, ...] = (n_cols, n_rows) if as_dense else (n_cols, n_rows, 1)
            wanted = name.replace("_exps", "") if as_dense else name
            tensors[wanted] = RawTensor(dims, stack.type_id, first)
            assert n_experts > 1
    if as_dense:
        keys[f"{arch}.feed_forward_length"] = keys.pop(f"{arch}.expert_feed_forward_length")
        del keys[f"{arch}.expert_count"], keys[f"{arch}.expert_used_count"]
    else:
        keys[f"{arch}.expert_count"] = keys[f"{arch}.expert_used_count"] = Typed(UINT32, 1)


def rename(keys: Keys, old: str, new: str) -> None:
    for key in list(keys):
        if key.startswith(old + "."):
            keys[new + key[len(old) :]] = keys.pop(key)
    keys["general.architecture"] = replace(keys["general.architecture"], value=new)


def test_a_dense_qwen3_is_one_with_a_single_expert(tmp_path: Path) -> None:
    def one(keys: Keys, tensors: Tensors) -> None:
        keep_one_expert(keys, tensors, "qwen3moe", as_dense=False)

    def dense(keys: Keys, tensors: Tensors) -> None:
        keep_one_expert(keys, tensors, "qwen3moe", as_dense=True)
        rename(keys, "qwen3moe", "qwen3")

    single = rewrite(golden("qwen3moe-q-iq3_s"), tmp_path / "single.gguf", one)
    plain = rewrite(golden("qwen3moe-q-iq3_s"), tmp_path / "plain.gguf", dense)
    for is_exact in (True, False):
        had, wanted = logits_of(plain, is_exact=is_exact), logits_of(single, is_exact=is_exact)
        assert np.array_equal(had, wanted)


def test_a_dense_qwen35_is_one_with_a_single_expert_and_a_silent_shared_one(
    tmp_path: Path,
) -> None:
    def split(keys: Keys, tensors: Tensors) -> None:
        for layer in range(4):
            both = tensors.pop(f"blk.{layer}.ffn_gate_up_exps.weight")
            halves = rows_of(both).reshape(8, 2, 32, -1)
            for j, name in enumerate(("gate", "up")):
                tensors[f"blk.{layer}.ffn_{name}_exps.weight"] = RawTensor(
                    (64, 32, 8), both.type_id, halves[:, j].tobytes()
                )

    def one(keys: Keys, tensors: Tensors) -> None:
        split(keys, tensors)
        keep_one_expert(keys, tensors, "qwen35moe", as_dense=False)
        for name in tensors:
            if name.endswith("ffn_down_shexp.weight"):
                shared = tensors[name]
                tensors[name] = with_rows(shared, 0 * rows_of(shared))

    def dense(keys: Keys, tensors: Tensors) -> None:
        split(keys, tensors)
        for name in list(tensors):
            if "_shexp" in name:
                del tensors[name]
        keep_one_expert(keys, tensors, "qwen35moe", as_dense=True)
        rename(keys, "qwen35moe", "qwen35")

    source = golden("qwen35moe-t-f16-fused")
    single = rewrite(source, tmp_path / "single.gguf", one)
    plain = rewrite(source, tmp_path / "plain.gguf", dense)
    assert np.array_equal(logits_of(plain), logits_of(single))


def without_ratios(keys: Keys, tensors: Tensors) -> None:
    keys["qwen4exp.attention.compress_ratios"] = Typed(ARRAY, [0] * 8, INT32)


def test_lost_page_sizes_mean_attending_to_everything_and_are_told(tmp_path: Path) -> None:
    path = rewrite(golden("qwen4exp-t-f16"), tmp_path / "lost.gguf", without_ratios)

    def with_a_large_budget(keys: Keys, tensors: Tensors) -> None:
        keys["qwen4exp.attention.indexer.top_k"] = Typed(UINT32, 4096)

    everything = rewrite(golden("qwen4exp-t-f16"), tmp_path / "all.gguf", with_a_large_budget)
    assert np.array_equal(logits_of(path), logits_of(everything))
    assert not np.array_equal(logits_of(path), logits_of(golden("qwen4exp-t-f16")))
    with open_model(path) as model:
        summary = summarize(model, ARCHITECTURES)
    assert len(summary.warnings) == 1
    assert "compress_ratios are 0" in summary.warnings[0]
    assert summary.index_bytes_per_token == 0
    with open_backend(path) as backend:
        assert backend.spec.index is None
        assert summary.state_bytes_per_lane == backend.state_bytes_per_lane
        assert summary.kv_bytes_per_token == backend.kv_bytes_per_cell


def set_key(name: str, value: Any) -> Callable[[Keys, Tensors], None]:
    def change(keys: Keys, tensors: Tensors) -> None:
        keys[name] = value

    return change


def drop_tensor(name: str) -> Callable[[Keys, Tensors], None]:
    def change(keys: Keys, tensors: Tensors) -> None:
        del tensors[name]

    return change


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (drop_tensor("blk.3.hc_attn_inject.weight"), GGUFFormatError, "hc_attn_inject"),
        (drop_tensor("blk.0.ffn_up_exps.weight"), GGUFFormatError, "ffn_up_exps"),
        (drop_tensor("per_layer_token_embd.weight"), GGUFFormatError, "per_layer_token_embd"),
        (drop_tensor("blk.7.indexer.k_norm.weight"), GGUFFormatError, r"indexer\.k_norm"),
        (
            set_key("qwen4exp.hyper_connection.count", Typed(UINT32, 2)),
            GGUFFormatError,
            r"hc_attn_norm.*\[256\].*\[128\]",
        ),
        (
            set_key("qwen4exp.expert_used_count", Typed(UINT32, 9)),
            GGUFFormatError,
            "expert_used_count.*at most 8",
        ),
        (
            set_key("qwen4exp.ssm.inner_size", Typed(UINT32, 64)),
            UnsupportedModelError,
            "inner size",
        ),
        (set_key("qwen4exp.ssm.group_count", Typed(UINT32, 3)), UnsupportedModelError, "3 key"),
        (
            set_key("qwen4exp.ple.head_offsets", Typed(ARRAY, [0, 1, 2, 2**50], UINT64)),
            GGUFFormatError,
            "reaches row",
        ),
        (
            set_key("qwen4exp.ple.head_vocab_sizes", Typed(ARRAY, [5, 5, 0, 5], UINT64)),
            GGUFFormatError,
            "head_vocab_sizes.*4 numbers from 1 on",
        ),
        (
            set_key("qwen4exp.ple.layer_multipliers", Typed(ARRAY, [1, 2**63, 3], UINT64)),
            GGUFFormatError,
            "layer_multipliers.*2\\^63 or more",
        ),
        (
            set_key("qwen4exp.ple.eos_token_id", Typed(UINT32, 2048)),
            GGUFFormatError,
            "eos_token_id",
        ),
        (
            set_key(
                "qwen4exp.attention.compress_ratios",
                Typed(ARRAY, [0, 0, 0, 4, 0, 0, 0, 8], INT32),
            ),
            UnsupportedModelError,
            r"pages of \[4, 8\]",
        ),
        (
            set_key("qwen4exp.attention.indexer.top_k", Typed(UINT32, 3)),
            UnsupportedModelError,
            "budget of 3",
        ),
        (
            set_key("qwen4exp.rope.freq_base", Typed(FLOAT32, float("nan"))),
            UnsupportedModelError,
            "freq_base is nan",
        ),
        (
            set_key("qwen4exp.attention.layer_norm_rms_epsilon", Typed(FLOAT32, 0.0)),
            UnsupportedModelError,
            "rms_epsilon is 0.0",
        ),
        (
            set_key("qwen4exp.attention.indexer.key_length", Typed(UINT32, 6)),
            UnsupportedModelError,
            "6 values, of which 8",
        ),
        (
            set_key("qwen4exp.attention.recurrent_layers", Typed(ARRAY, [True], BOOL)),
            GGUFFormatError,
            "1 layers, wanted 8",
        ),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path,
    change: Callable[[Keys, Tensors], None],
    error: type[ModelFileError],
    text: str,
) -> None:
    path = rewrite(golden("qwen4exp-t-f16"), tmp_path / "wrong.gguf", change)
    with open_model(path) as model, pytest.raises(error, match=text):
        build_model(model)
