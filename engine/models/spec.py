"""What a model is, as numbers read from its file; tensors are left to `engine.models.weights`."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import UnsupportedModelError
from engine.gguf.metadata import Metadata


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
        warnings: what a person should know about how this file is run.
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
    warnings: tuple[str, ...] = ()

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
    n_layers = metadata.get_int(f"{arch}.block_count", minimum=1)
    return ModelSpec(
        architecture=arch,
        n_layers=n_layers,
        n_kv_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        d_ff=metadata.get_int(f"{arch}.feed_forward_length", minimum=1),
        n_vocab=n_vocab,
        context_tokens=metadata.get_int(f"{arch}.context_length", minimum=1),
        norm_epsilon=metadata.get_float(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope=_read_rope(metadata, arch, head_dim),
    )


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
    scale = metadata.get_float(f"{arch}.rope.scaling.factor", 1.0) if kind == "linear" else 1.0
    if scale <= 0:
        raise UnsupportedModelError(
            f"{arch}.rope.scaling.factor is {scale}, wanted more than 0.", path=metadata.path
        )
    return RopeSpec(
        n_dims=n_dims, base=metadata.get_float(f"{arch}.rope.freq_base", 10000.0), scale=scale
    )
