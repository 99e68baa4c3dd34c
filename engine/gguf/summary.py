"""What a GGUF file holds, told from its header alone: for lists of models and before a load.

No tensor byte is touched. Which architectures can be run is told by the caller, since models lie
above this room; how they are run is left to `engine.models`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from pathlib import Path

from engine.gguf.footprint import (
    MAX_DIM,
    Layers,
    find_warnings,
    group_bytes,
    index_bytes_per_token,
    kv_format_bytes,
    read_layers,
    state_bytes_per_lane,
)
from engine.gguf.metadata import ArrayValue, Metadata
from engine.gguf.reader import GGUFModel, open_model
from engine.gguf.shards import model_stem
from engine.stats import ModelSummary
from kernels.quants import QuantType


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
    layers = read_layers(metadata, architecture)
    kv_formats = kv_format_bytes(*_kv_values(metadata, architecture, layers))
    index_bytes = index_bytes_per_token(metadata, architecture, layers)
    groups = group_bytes(model, layers)

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
        n_layers=layers.n_run,
        d_model=dim("embedding_length"),
        n_heads=_largest(metadata, f"{architecture}.attention.head_count"),
        n_kv_heads=_n_kv_heads(metadata, architecture),
        n_vocab=_n_vocab(model, architecture),
        n_experts=dim("expert_count"),
        n_experts_used=dim("expert_used_count"),
        kv_bytes_per_token=kv_formats["f16"] + index_bytes,
        has_chat_template="tokenizer.chat_template" in metadata,
        tensor_types=dict(tensor_types.most_common()),
        group_bytes={group: sum(formats.values()) for group, formats in groups.items()},
        group_formats=groups,
        kv_format_bytes={name: size + index_bytes for name, size in kv_formats.items()},
        index_bytes_per_token=index_bytes,
        state_bytes_per_lane=state_bytes_per_lane(metadata, architecture, layers),
        warnings=find_warnings(model, architecture, layers),
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
    return sum(_kv_values(metadata, architecture, read_layers(metadata, architecture)))


def _kv_values(metadata: Metadata, architecture: str, layers: Layers) -> tuple[int, int]:
    """Return the values of K and those of V that one token adds, over all layers."""
    prefix = f"{architecture}."
    n_blocks = layers.n_run + layers.n_unused
    heads_key = f"{prefix}attention.head_count"
    if heads_key not in metadata:
        return 0, 0
    n_heads = metadata.get_per_layer(heads_key, n_blocks)
    kv_key = f"{prefix}attention.head_count_kv"
    n_kv_heads = metadata.get_per_layer(kv_key, n_blocks) if kv_key in metadata else n_heads
    d_model = metadata.get_int(f"{prefix}embedding_length", 0, minimum=0, maximum=MAX_DIM)
    head_dim = d_model // max(max(n_heads, default=0), 1)
    k_dim, v_dim = (
        metadata.get_int(f"{prefix}attention.{part}_length", head_dim, minimum=0, maximum=MAX_DIM)
        for part in ("key", "value")
    )
    kept = sum(
        max(n, 0) for n, keeps_kv in zip(n_kv_heads, layers.keeps_kv, strict=False) if keeps_kv
    )
    return kept * k_dim, kept * v_dim


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
