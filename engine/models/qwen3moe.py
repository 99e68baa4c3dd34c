"""Qwen3 and Qwen3 MoE: a decoder with norms of q and k; its feed-forward part dense or of experts.

Source:
    Qwen3 technical report (2025), section 2; tensor names: GGUF format.
"""

from __future__ import annotations

from typing import Self

from engine.gguf.reader import GGUFModel
from engine.models.decoder import Decoder, Layer
from engine.models.layers import Attention, FeedForward, MixtureOfExperts, Part
from engine.models.spec import ModelSpec, read_decoder_spec
from engine.models.weights import Weights


class Qwen3(Decoder):
    """The model, of either kind.

    Attributes:
        spec: its dims.
        weights: every weight it uses.
    """

    @classmethod
    def from_gguf(cls, model: GGUFModel) -> Self:
        """Take the model from a file.

        Raises:
            GGUFFormatError: a key or tensor is missing or of another shape.
            UnsupportedModelError: it has parts this version does not compute.
        """
        weights, keys = Weights(model), model.metadata
        spec = read_decoder_spec(keys, n_vocab=weights.n_rows("token_embd.weight"))
        d_ff = spec.d_ff
        if spec.n_experts:
            d_ff = keys.get_int(f"{spec.architecture}.expert_feed_forward_length", minimum=1)
        layers = [_take_layer(weights, spec, i, d_ff=d_ff) for i in range(spec.n_layers)]
        return cls(spec, weights, layers)


def _take_layer(weights: Weights, spec: ModelSpec, index: int, *, d_ff: int) -> Layer:
    at, d_model = f"blk.{index}.", spec.d_model
    ffn: Part
    if spec.n_experts:
        ffn = MixtureOfExperts(weights, at, spec, layer=index, d_ff=d_ff, shared_d_ff=0)
    else:
        ffn = FeedForward(weights, at, d_model=d_model, d_ff=d_ff)
    return Layer(
        mixer_norm=weights.vector(at + "attn_norm.weight", d_model),
        mixer=Attention(weights, at, spec, kv_layer=index, is_gated=False),
        ffn_norm=weights.vector(at + "ffn_norm.weight", d_model),
        ffn=ffn,
    )
