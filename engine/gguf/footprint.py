"""What a model takes and keeps, by its keys and tensor list: groups, cells, states, warnings.

`engine.gguf.summary` puts it together with the rest; nothing here touches a tensor byte.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from engine.gguf.metadata import Metadata
from engine.gguf.reader import GGUFModel

MAX_LAYERS = 1 << 16
MAX_DIM = 1 << 32
"""Bounds beyond any model, so that a damaged key is named instead of summed up."""

INDEX_VALUE_BYTES = 4
"""Index keys of the sparse attention are float32 in every K/V format."""
STATE_VALUE_BYTES = 4

NGRAM_TABLE = "per_layer_token_embd.weight"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layers:
    """Layers of a model as its keys tell them.

    Attributes:
        n_run: layers that are run.
        n_unused: blocks behind them that predict further tokens.
        keeps_kv: for each layer that is run, whether it keeps K and V.
    """

    n_run: int
    n_unused: int
    keeps_kv: tuple[bool, ...]


def read_layers(metadata: Metadata, architecture: str) -> Layers:
    """Read which layers there are; no layers if the keys do not tell.

    Raises:
        GGUFFormatError: a key has the wrong type or is out of all bounds.
    """
    prefix = f"{architecture}."
    n_blocks = metadata.get_int(f"{prefix}block_count", 0, minimum=0, maximum=MAX_LAYERS)
    n_unused = metadata.get_int(f"{prefix}nextn_predict_layers", 0, minimum=0, maximum=n_blocks)
    n_run = n_blocks - n_unused
    recurrent = metadata.get_array(f"{prefix}attention.recurrent_layers", bool, None)
    interval = metadata.get_int(f"{prefix}full_attention_interval", 0, minimum=0)
    if recurrent is not None and len(recurrent) >= n_run:
        keeps_kv = tuple(not is_recurrent for is_recurrent in recurrent[:n_run])
    elif interval:
        keeps_kv = tuple((layer + 1) % interval == 0 for layer in range(n_run))
    else:
        keeps_kv = (True,) * n_run
    return Layers(n_run=n_run, n_unused=n_unused, keeps_kv=keeps_kv)


def group_bytes(model: GGUFModel, layers: Layers) -> dict[str, dict[str, int]]:
    """Return the bytes of each group of tensors by format, the largest first.

    Groups are "experts", "dense", "embeddings" (of tokens, and the output matrix), "n-gram table"
    (read row by row, never loaded whole) and "unused" (blocks that this version skips).
    """
    sizes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for tensor in model.tensors.values():
        sizes[_group_of(tensor.name, layers)][tensor.quant.name] += tensor.n_bytes
    order = sorted(sizes, key=lambda group: -sizes[group].total())
    return {group: dict(sizes[group].most_common()) for group in order}


def _group_of(name: str, layers: Layers) -> str:
    if name == NGRAM_TABLE:
        return "n-gram table"
    if name in ("token_embd.weight", "output.weight"):
        return "embeddings"
    block = name.removeprefix("blk.").split(".", 1)[0] if name.startswith("blk.") else ""
    if block.isdecimal() and int(block) >= layers.n_run > 0:
        return "unused"
    return "experts" if "_exps." in name else "dense"


def kv_format_bytes(k_values: int, v_values: int) -> dict[str, int]:
    """Return what K and V of one token take in each K/V format, all layers together.

    int8 has a float16 scale for 64 values, q4 one for 32; k8v4 is K in int8 and V in q4. This
    version keeps f16; with --exact it keeps f32.

    Args:
        k_values: values of K that a token adds.
        v_values: values of V.
    """

    def int8(n_values: int) -> int:
        return n_values + 2 * -(-n_values // 64)

    def q4(n_values: int) -> int:
        return 18 * -(-n_values // 32)

    return {
        "f32": 4 * (k_values + v_values),
        "f16": 2 * (k_values + v_values),
        "int8": int8(k_values) + int8(v_values),
        "k8v4": int8(k_values) + q4(v_values),
        "q4": q4(k_values) + q4(v_values),
    }


def index_bytes_per_token(metadata: Metadata, architecture: str, layers: Layers) -> int:
    """Return what the index keys of the sparse attention take of one token, rounded up.

    Raises:
        GGUFFormatError: a key has the wrong type or is out of all bounds.
    """
    ratios = _page_cells(metadata, architecture, layers)
    key_dim = metadata.get_int(
        f"{architecture}.attention.indexer.key_length", 0, minimum=0, maximum=MAX_DIM
    )
    return sum(-(-key_dim * INDEX_VALUE_BYTES // ratio) for ratio in ratios if ratio)


def state_bytes_per_lane(metadata: Metadata, architecture: str, layers: Layers) -> int:
    """Return the recurrent state of one conversation; 0 for a model of K and V alone.

    Raises:
        GGUFFormatError: a key has the wrong type or is out of all bounds.
    """

    def dim(key: str) -> int:
        return metadata.get_int(f"{architecture}.{key}", 0, minimum=0, maximum=MAX_DIM)

    n_recurrent = layers.keeps_kv.count(False)
    n_values = 0
    if n_recurrent:
        head_dim, n_heads = dim("ssm.state_size"), dim("ssm.time_step_rank")
        n_channels = (2 * dim("ssm.group_count") + n_heads) * head_dim
        n_kept = max(dim("ssm.conv_kernel") - 1, 0)
        n_values += n_recurrent * (n_heads * head_dim**2 + n_kept * n_channels)
    for ratio in _page_cells(metadata, architecture, layers):
        n_values += max(ratio - 1, 0) * dim("attention.indexer.key_length")
    n_ngram_layers = len(metadata.get_array(f"{architecture}.ple.layers", int, []))
    if n_ngram_layers:
        n_gram, width = dim("ple.ngram_size"), dim("hyper_connection.count")
        n_kept = max(dim("ple.conv_kernel") - 1, 0) * n_gram
        one = max(n_gram - 1, 0) + n_kept * width * dim("embedding_length")
        n_values += n_ngram_layers * one
    return n_values * STATE_VALUE_BYTES


def find_warnings(model: GGUFModel, architecture: str, layers: Layers) -> tuple[str, ...]:
    """Say what a person should know about how this file is run.

    Raises:
        GGUFFormatError: a key has the wrong type or is out of all bounds.
    """
    found = []
    if layers.n_unused:
        found.append(
            f"The file has {layers.n_unused} more block{'s' * (layers.n_unused > 1)} for "
            "predicting several tokens at once; this version does not use that. Answers are the "
            "same without it."
        )
    ratios = _page_cells(model.metadata, architecture, layers)
    has_index = any(".indexer." in name for name in model.tensors)
    if has_index and any(
        keeps_kv and not ratio for keeps_kv, ratio in zip(layers.keeps_kv, ratios, strict=True)
    ):
        found.append(
            "The file's compress_ratios are 0 where the model has sparse attention: they were lost "
            "when it was converted. Those layers attend to everything, which is slower in long "
            "conversations and not what the model was trained for. Look for a newer file."
        )
    return tuple(found)


def _page_cells(metadata: Metadata, architecture: str, layers: Layers) -> list[int]:
    """Return the cells of a page of each layer's index, 0 where it has none."""
    key = f"{architecture}.attention.compress_ratios"
    ratios = metadata.get_per_layer(key, layers.n_run + layers.n_unused, 0)
    return [
        max(ratio, 0) if keeps_kv else 0
        for ratio, keeps_kv in zip(ratios, layers.keeps_kv, strict=False)
    ]
