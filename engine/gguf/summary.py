"""What a GGUF file holds, told from its header alone: for lists of models and before a load.

No tensor byte is touched. Which architectures can be run is told by the caller, since models lie
above this room; how they are run is left to `engine.models`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from engine.gguf.metadata import ArrayValue, Metadata
from engine.gguf.reader import GGUFModel, open_model
from engine.gguf.shards import model_stem
from engine.stats import ModelSummary
from kernels.quants import QuantType

F16_BYTES = 2
"""Bytes of one K or V value in the K/V format used now."""

MAX_LAYERS = 1 << 16
MAX_DIM = 1 << 32
"""Bounds beyond any model, so that a damaged key is named instead of summed up."""


def summarize(
    model: GGUFModel,
    supported: Collection[str],
    *,
    quants: Collection[QuantType] | None = None,
) -> ModelSummary:
    """Describe an open model.

    Args:
        model: opened with `allows_unknown_types`, so that any format can be described.
        supported: names of the architectures that can be run (a mapping's keys will do).
        quants: formats the kernels can compute with; None = all that hold weights.

    Raises:
        GGUFFormatError: a key of the model's dims has the wrong type or is out of all bounds.
    """
    metadata = model.metadata
    architecture = metadata.get_str("general.architecture", "")
    stem = model_stem(model.path)
    tensor_types = Counter(tensor.quant.name for tensor in model.tensors.values())
    tensor_types.update(f"type {tensor.quant_id}" for tensor in model.unknown_tensors)
    reason = _reason(model, architecture, supported, quants)

    def dim(key: str) -> int:
        return metadata.get_int(f"{architecture}.{key}", 0, minimum=0, maximum=MAX_DIM)

    return ModelSummary(
        id=stem,
        path=str(model.path),
        name=metadata.get_str("general.name", "") or stem,
        architecture=architecture,
        is_supported=not reason,
        reason=reason,
        quantization=_main_type(model),
        n_params=sum(t.n_weights for t in model.tensors.values() if not t.quant.is_storage_only),
        file_bytes=model.file_bytes,
        n_shards=len(model.paths),
        context_tokens=dim("context_length"),
        n_layers=dim("block_count"),
        d_model=dim("embedding_length"),
        n_heads=_largest(metadata, f"{architecture}.attention.head_count"),
        n_kv_heads=_n_kv_heads(metadata, architecture),
        n_vocab=_n_vocab(model, architecture),
        n_experts=dim("expert_count"),
        n_experts_used=dim("expert_used_count"),
        kv_bytes_per_token=kv_values_per_token(metadata, architecture) * F16_BYTES,
        has_chat_template="tokenizer.chat_template" in metadata,
        tensor_types=dict(tensor_types.most_common()),
    )


def summarize_file(
    path: Path | str,
    supported: Collection[str],
    *,
    quants: Collection[QuantType] | None = None,
) -> ModelSummary:
    """Open, describe and close a model that need not be one that can be run.

    Args:
        path: the file, or any shard.
        supported: as for `summarize`.
        quants: as for `summarize`.

    Raises:
        ModelFileError: the file cannot be read or is no well-formed GGUF file.
    """
    with open_model(path, allows_unknown_types=True) as model:
        return summarize(model, supported, quants=quants)


def kv_values_per_token(metadata: Metadata, architecture: str) -> int:
    """Return how many K and V values one token adds, over all layers; 0 if the keys do not tell.

    Layers of hybrid models that keep a recurrent state instead of K/V count nothing.
    """
    prefix = f"{architecture}."
    n_layers = metadata.get_int(f"{prefix}block_count", 0, minimum=0, maximum=MAX_LAYERS)
    heads_key = f"{prefix}attention.head_count"
    if heads_key not in metadata:
        return 0
    n_heads = metadata.get_per_layer(heads_key, n_layers)
    kv_key = f"{prefix}attention.head_count_kv"
    n_kv_heads = metadata.get_per_layer(kv_key, n_layers) if kv_key in metadata else n_heads
    d_model = metadata.get_int(f"{prefix}embedding_length", 0, minimum=0, maximum=MAX_DIM)
    head_dim = d_model // max(max(n_heads, default=0), 1)
    k_dim, v_dim = (
        metadata.get_int(f"{prefix}attention.{part}_length", head_dim, minimum=0, maximum=MAX_DIM)
        for part in ("key", "value")
    )
    kept = _attention_layers(metadata, prefix, n_layers)
    return sum(
        max(n_kv_heads[layer], 0) * (k_dim + v_dim) for layer in range(n_layers) if kept[layer]
    )


def _attention_layers(metadata: Metadata, prefix: str, n_layers: int) -> list[bool]:
    """Return for each layer whether it keeps K/V."""
    recurrent = metadata.get_array(f"{prefix}attention.recurrent_layers", bool, None)
    if recurrent is not None and len(recurrent) == n_layers:
        return [not is_recurrent for is_recurrent in recurrent]
    if interval := metadata.get_int(f"{prefix}full_attention_interval", 0, minimum=0):
        return [(layer + 1) % interval == 0 for layer in range(n_layers)]
    return [True] * n_layers


def _largest(metadata: Metadata, key: str) -> int:
    """Return a whole number, or the largest of an array of one a layer; 0 if it is not there."""
    if key not in metadata:
        return 0
    if isinstance(metadata.entry(key).value, ArrayValue):
        return max(metadata.get_array(key, int), default=0)
    return metadata.get_int(key, minimum=0, maximum=MAX_DIM)


def _n_kv_heads(metadata: Metadata, architecture: str) -> int:
    key = f"{architecture}.attention.head_count_kv"
    return _largest(metadata, key if key in metadata else f"{architecture}.attention.head_count")


def _n_vocab(model: GGUFModel, architecture: str) -> int:
    metadata, tokens_key = model.metadata, "tokenizer.ggml.tokens"
    if tokens_key in metadata and isinstance(
        tokens := metadata.entry(tokens_key).value, ArrayValue
    ):
        return tokens.n_items
    if (embedding := model.tensors.get("token_embd.weight")) is not None:
        return embedding.n_rows
    return metadata.get_int(f"{architecture}.vocab_size", 0, minimum=0, maximum=MAX_DIM)


def _main_type(model: GGUFModel) -> str:
    """Return the format most weights have; among equals the first in the file."""
    n_weights: Counter[str] = Counter()
    for tensor in model.tensors.values():
        if not tensor.quant.is_storage_only:
            n_weights[tensor.quant.name] += tensor.n_weights
    return n_weights.most_common(1)[0][0] if n_weights else ""


def _reason(
    model: GGUFModel,
    architecture: str,
    supported: Collection[str],
    quants: Collection[QuantType] | None,
) -> str:
    """Return why the model cannot be run, or ""."""
    metadata = model.metadata
    if not architecture:
        return "The file does not say which architecture it is (no general.architecture)."
    if architecture not in supported:
        return (
            f"The architecture {architecture!r} is not supported; this version runs "
            f"{', '.join(sorted(supported))}."
        )
    if model.unknown_tensors:
        reason = model.unknown_tensors[0].reason
        return reason[:1].upper() + reason[1:]
    if not model.tensors:
        return "The file holds keys only, no weights; it may be a vocabulary or a part of a model."
    for tensor in model.tensors.values():
        if tensor.quant.is_storage_only and tensor.name.endswith(".weight"):
            return (
                f"The tensor {tensor.name!r} is stored as {tensor.quant.name}, which cannot be "
                "computed with."
            )
        if quants is not None and not tensor.quant.is_storage_only and tensor.quant not in quants:
            return (
                f"The tensor {tensor.name!r} is stored as {tensor.quant.name}, which this version "
                f"cannot compute with; it can with {', '.join(q.name for q in sorted(quants))}."
            )
    for key in ("tokenizer.ggml.model", "tokenizer.ggml.tokens"):
        if key not in metadata:
            return f"The file has no tokenizer (no {key}); get a complete GGUF file of this model."
    return ""
