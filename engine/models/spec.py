"""What a model is, as numbers read from its file; tensors are left to `engine.models.weights`."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import GGUFFormatError, UnsupportedModelError
from engine.gguf.metadata import Metadata

MOST_TAPS = 16
"""Tokens that a short convolution sees at most: what the kernels have room for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RopeSpec:
    """Rotary position embedding.

    Attributes:
        n_dims: values of a head that are rotated, an even number.
        base: frequency base (theta).
        scale: positions are divided by this ("linear" scaling); 1 = as they are.
    """

    n_dims: int
    base: float
    scale: float


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexSpec:
    """Index of the block-sparse attention: one key for each page of cells.

    Attributes:
        n_layers: K/V layers that have one.
        page_cells: cells of a page.
        key_dim: values of a key.
        n_heads: query heads of the indexer.
        budget_tokens: tokens of whole pages that a position attends to at most.
    """

    n_layers: int
    page_cells: int
    key_dim: int
    n_heads: int
    budget_tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """Dims of a decoder.

    Attributes:
        architecture: `general.architecture`.
        n_layers: decoder layers.
        n_kv_layers: of those, how many keep K and V for every position.
        d_model: width of the residual stream.
        n_heads: query heads.
        n_kv_heads: K/V heads.
        head_dim: values of a head, of K as of V.
        d_ff: width of the feed-forward part.
        n_vocab: rows of the output, logits of a position.
        context_tokens: trained context length.
        norm_epsilon: added under the root of RMS norms.
        rope: rotary embedding.
        n_experts: experts of a layer; 0 = a dense model.
        n_experts_used: experts that a token is sent to.
        index: keys of the sparse attention beside K and V; None = plain attention.
        state_values: 4-byte values of a lane's recurrent state; 0 = K and V are all there is.
    """

    architecture: str
    n_layers: int
    n_kv_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    n_vocab: int
    context_tokens: int
    norm_epsilon: float
    rope: RopeSpec
    n_experts: int = 0
    n_experts_used: int = 0
    index: IndexSpec | None = None
    state_values: int = 0

    @property
    def has_recurrent_state(self) -> bool:
        """Whether a conversation is more than its K/V cells: a state that cannot go back."""
        return self.state_values > 0

    @property
    def state_bytes(self) -> int:
        """Bytes of a lane's recurrent state."""
        return 4 * self.state_values

    @property
    def kv_dim(self) -> int:
        """Values of K (and of V) that one position adds to a layer."""
        return self.n_kv_heads * self.head_dim

    @property
    def kv_values_per_token(self) -> int:
        """Values of K and V together that one position adds to all layers."""
        return 2 * self.n_kv_layers * self.kv_dim


def read_decoder_spec(metadata: Metadata, *, n_vocab: int) -> ModelSpec:
    """Read the keys every decoder has, named after its architecture.

    Args:
        metadata: of the file.
        n_vocab: rows of the token embedding.

    Raises:
        GGUFFormatError: a key is missing, of the wrong type, or no sensible number.
        UnsupportedModelError: heads or rotary scaling of a kind this version does not have.

    Source:
        GGUF format, section "LLM" of the standardized keys.
    """
    arch = metadata.get_str("general.architecture")
    d_model = metadata.get_int(f"{arch}.embedding_length", minimum=1)
    n_heads = metadata.get_int(f"{arch}.attention.head_count", minimum=1)
    n_kv_heads = metadata.get_int(f"{arch}.attention.head_count_kv", n_heads, minimum=1)
    head_dim = metadata.get_int(f"{arch}.attention.key_length", d_model // n_heads, minimum=1)
    value_dim = metadata.get_int(f"{arch}.attention.value_length", head_dim)
    if value_dim != head_dim or n_heads % n_kv_heads:
        raise UnsupportedModelError(
            f"its heads are of a shape this version cannot run: {n_heads} query and {n_kv_heads} "
            f"K/V heads, keys of {head_dim} and values of {value_dim}. Wanted: query heads a "
            "multiple of K/V heads, keys and values alike.",
            path=metadata.path,
        )
    n_extra = metadata.get_int(f"{arch}.nextn_predict_layers", 0, minimum=0)
    n_layers = metadata.get_int(f"{arch}.block_count", minimum=1 + n_extra) - n_extra
    n_experts = metadata.get_int(f"{arch}.expert_count", 0, minimum=0)
    return ModelSpec(
        architecture=arch,
        n_layers=n_layers,
        n_kv_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        d_ff=(
            metadata.get_int(f"{arch}.feed_forward_length", 0, minimum=0)
            if n_experts
            else metadata.get_int(f"{arch}.feed_forward_length", minimum=1)
        ),
        n_vocab=n_vocab,
        context_tokens=metadata.get_int(f"{arch}.context_length", minimum=1),
        norm_epsilon=_read_positive(metadata, f"{arch}.attention.layer_norm_rms_epsilon"),
        rope=_read_rope(metadata, arch, head_dim),
        n_experts=n_experts,
        n_experts_used=_read_experts_used(metadata, arch, n_experts),
    )


def _read_experts_used(metadata: Metadata, arch: str, n_experts: int) -> int:
    if not n_experts:
        return 0
    return metadata.get_int(f"{arch}.expert_used_count", minimum=1, maximum=n_experts)


def read_recurrent_layers(metadata: Metadata, n_layers: int) -> tuple[bool, ...]:
    """Return for each layer whether it keeps a recurrent state in place of K and V.

    Args:
        metadata: of the file.
        n_layers: layers that are run; the key may tell of blocks behind them.

    Raises:
        GGUFFormatError: a key has the wrong type or length.
    """
    arch = metadata.get_str("general.architecture")
    key = f"{arch}.attention.recurrent_layers"
    told = metadata.get_array(key, bool, None)
    if told is None:
        interval = metadata.get_int(f"{arch}.full_attention_interval", minimum=1)
        return tuple((layer + 1) % interval != 0 for layer in range(n_layers))
    if len(told) < n_layers:
        raise GGUFFormatError(
            f"the key {key!r} tells of {len(told)} layers, wanted {n_layers}.", path=metadata.path
        )
    return tuple(told[:n_layers])


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaSpec:
    """Dims of the gated delta nets of a hybrid model.

    Attributes:
        n_key_heads: heads of queries and keys.
        n_value_heads: heads of values.
        head_dim: values of a head.
        n_taps: tokens that the short convolution sees.
    """

    n_key_heads: int
    n_value_heads: int
    head_dim: int
    n_taps: int

    @property
    def key_dim(self) -> int:
        """Values of all key heads."""
        return self.n_key_heads * self.head_dim

    @property
    def value_dim(self) -> int:
        """Values of all value heads."""
        return self.n_value_heads * self.head_dim

    @property
    def qkv_dim(self) -> int:
        """Values of queries, keys and values together."""
        return 2 * self.key_dim + self.value_dim


def read_delta_spec(metadata: Metadata) -> DeltaSpec:
    """Read the dims of the delta nets.

    Raises:
        GGUFFormatError: a key is missing, of the wrong type, or no sensible number.
        UnsupportedModelError: the dims do not fit one another.
    """
    arch = metadata.get_str("general.architecture")
    spec = DeltaSpec(
        n_key_heads=metadata.get_int(f"{arch}.ssm.group_count", minimum=1),
        n_value_heads=metadata.get_int(f"{arch}.ssm.time_step_rank", minimum=1),
        head_dim=metadata.get_int(f"{arch}.ssm.state_size", minimum=1),
        n_taps=metadata.get_int(f"{arch}.ssm.conv_kernel", minimum=2),
    )
    inner = metadata.get_int(f"{arch}.ssm.inner_size", spec.value_dim)
    is_right = inner == spec.value_dim and spec.n_value_heads % spec.n_key_heads == 0
    if not is_right or spec.n_taps > MOST_TAPS:
        raise UnsupportedModelError(
            f"its delta nets are of a shape this version cannot run: {spec.n_key_heads} key and "
            f"{spec.n_value_heads} value heads of {spec.head_dim}, an inner size of {inner}, a "
            f"convolution over {spec.n_taps} tokens. Wanted: value heads a multiple of key heads, "
            f"an inner size of {spec.value_dim}, at most {MOST_TAPS} tokens.",
            path=metadata.path,
        )
    return spec


def _read_rope(metadata: Metadata, arch: str, head_dim: int) -> RopeSpec:
    n_dims = metadata.get_int(f"{arch}.rope.dimension_count", head_dim, minimum=2)
    if n_dims % 2 or n_dims > head_dim:
        raise UnsupportedModelError(
            f"{arch}.rope.dimension_count is {n_dims}, wanted an even number up to the head's "
            f"{head_dim} values.",
            path=metadata.path,
        )
    kind = metadata.get_str(f"{arch}.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise UnsupportedModelError(
            f"its rotary scaling is {kind!r}; this version knows none, linear and the factors of "
            "rope_freqs.weight. Use another file of the model.",
            path=metadata.path,
        )
    scale = 1.0
    if kind == "linear":
        scale = _read_positive(metadata, f"{arch}.rope.scaling.factor", 1.0)
    base = _read_positive(metadata, f"{arch}.rope.freq_base", 10000.0)
    return RopeSpec(n_dims=n_dims, base=base, scale=scale)


def _read_positive(metadata: Metadata, key: str, default: float | None = None) -> float:
    value = metadata.get_float(key) if default is None else metadata.get_float(key, default)
    if not 0 < value < math.inf:
        raise UnsupportedModelError(
            f"{key} is {value}, wanted a number above 0.", path=metadata.path
        )
    return value
