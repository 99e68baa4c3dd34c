"""Qwen3.5 and Qwen3.5 MoE: three layers in four are gated delta nets, the fourth attends, gated.

Value heads lie in tiled order: head j uses key head j mod n_key_heads. A block behind the last
layer that predicts further tokens is left unread.

Source:
    Qwen3.5 model card and the GGUF layout of `qwen35moe`; delta net: Yang et al. 2024.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Self

from engine.gguf.reader import GGUFModel
from engine.models.decoder import Decoder, Layer
from engine.models.layers import (
    Attention,
    DeltaInputs,
    DeltaNet,
    OutputGate,
    Part,
    StateMap,
    take_delta_inputs,
    take_ffn,
)
from engine.models.spec import (
    DeltaSpec,
    ModelSpec,
    read_decoder_spec,
    read_delta_spec,
    read_recurrent_layers,
)
from engine.models.weights import Weights


class Qwen35(Decoder):
    """The model, dense or of experts.

    Attributes:
        spec: its dims.
        weights: every weight it uses.
    """

    is_tiled = True
    """How value heads share key heads."""

    @classmethod
    def from_gguf(cls, model: GGUFModel) -> Self:
        """Take the model from a file.

        Raises:
            GGUFFormatError: a key or tensor is missing or of another shape.
            UnsupportedModelError: it has parts this version does not compute.
        """
        weights, keys, states = Weights(model), model.metadata, StateMap()
        spec = read_decoder_spec(keys, n_vocab=weights.n_rows("token_embd.weight"))
        delta = read_delta_spec(keys)
        recurrent = read_recurrent_layers(keys, spec.n_layers)
        layers = []
        for i, is_recurrent in enumerate(recurrent):
            at = f"blk.{i}."
            if is_recurrent:
                mixer = cls._take_delta_net(weights, at, spec, delta, states)
            else:
                kv_layer = recurrent[:i].count(False)
                mixer = Attention(weights, at, spec, kv_layer=kv_layer, is_gated=True)
            layers.append(
                Layer(
                    mixer_norm=weights.vector(at + "attn_norm.weight", spec.d_model),
                    mixer=mixer,
                    ffn_norm=weights.vector(at + "post_attention_norm.weight", spec.d_model),
                    ffn=take_ffn(weights, model, spec, layer=i),
                )
            )
        spec = replace(spec, n_kv_layers=recurrent.count(False), state_values=states.n_values)
        return cls(spec, weights, layers)

    @classmethod
    def _take_delta_net(
        cls, weights: Weights, at: str, spec: ModelSpec, delta: DeltaSpec, states: StateMap
    ) -> Part:
        return DeltaNet(
            weights,
            at,
            cls._take_inputs(weights, at, delta, d_model=spec.d_model),
            spec,
            delta=delta,
            is_tiled=cls.is_tiled,
            states=states,
            output_gate=OutputGate.SILU,
        )

    @staticmethod
    def _take_inputs(weights: Weights, at: str, delta: DeltaSpec, *, d_model: int) -> DeltaInputs:
        return take_delta_inputs(weights, at, delta, d_model=d_model)
