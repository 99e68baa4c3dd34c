"""Qwen4 (experimental): residual streams, delta nets, sparse attention, experts, n-gram embedding.

The residual is a few streams of d_model values; every part reads a mixture of them and is written
back into each with a weight of its own. Every fourth layer attends, to the best pages of cells
only; the others are delta nets. One layer also reads rows of a table that n-grams of ids are
hashed into.

Source:
    The GGUF layout of `qwen4exp`; hyper-connections: Zhu et al. 2024; delta net: Yang et al. 2024.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from engine.gguf.metadata import Metadata
from engine.gguf.reader import GGUFModel
from engine.models.layers import (
    Attention,
    DeltaNet,
    OutputGate,
    Part,
    StateMap,
    Step,
    rope_frequencies,
    take_delta_inputs,
    take_ffn,
)
from engine.models.ngram import NgramEmbedding
from engine.models.page_index import Indexer, index_spec, read_page_indexes
from engine.models.spec import (
    DeltaSpec,
    ModelSpec,
    read_decoder_spec,
    read_delta_spec,
    read_recurrent_layers,
)
from engine.models.weights import Weights
from engine.ops import Batch, Ops, Rows

PREFIX = "qwen4exp."
LAST_MIXER = "output_hc_"
"""What the names of the mixer before the output begin with."""


class StreamMixer:
    """Reads a mixture of the streams, and says how much of a result goes back into each.

    Attributes:
        n_streams: residual streams.

    Source:
        Zhu et al. 2024, "Hyper-Connections", equations 5 and 6, with low-rank mixing weights.
    """

    def __init__(self, weights: Weights, at: str, spec: ModelSpec, keys: Metadata) -> None:
        """Take the tensors whose names begin with `at`; the last mixer's have no way back."""
        self.n_streams = keys.get_int(PREFIX + "hyper_connection.count", minimum=1)
        rank = keys.get_int(PREFIX + "hyper_connection.low_rank", minimum=1)
        self._epsilon, width = spec.norm_epsilon, self.n_streams * spec.d_model
        self._norm = weights.vector(at + "norm.weight", width)
        self._down = weights.matrix(at + "down.weight", n_rows=rank, n_cols=width)
        self._up = weights.matrix(at + "up.weight", n_rows=width, n_cols=rank)
        self._inject = None
        if at != LAST_MIXER:
            name = at + "inject.weight"
            self._inject = weights.matrix(name, n_rows=self.n_streams, n_cols=width)

    def read(self, ops: Ops, x: Rows) -> tuple[Rows, Rows | None]:
        """Return the mixture, and what `Ops.inject` takes as gate.

        Shapes:
            x: [n_rows, n_streams * d_model]; result: [n_rows, d_model], [n_rows, n_streams].
        """
        u = ops.grouped_norm(x, self._norm, n_groups=self.n_streams, epsilon=self._epsilon)
        low = ops.matmul(u, self._down)
        gate = None if self._inject is None else ops.matmul(u, self._inject)
        ops.silu(low, scale=1 / self.n_streams)
        return ops.mix_streams(u, ops.matmul(low, self._up), n_streams=self.n_streams), gate


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamLayer:
    """A layer: an n-gram embedding if it has one, what mixes tokens, and its experts."""

    ngrams: NgramEmbedding | None
    mixer_streams: StreamMixer
    mixer: Part
    ffn_streams: StreamMixer
    ffn: Part


class Qwen4Exp:
    """The model.

    Attributes:
        spec: its dims.
        weights: every weight it uses.
    """

    def __init__(self, model: GGUFModel) -> None:
        """Take the model from a file.

        Raises:
            GGUFFormatError: a key or tensor is missing or of another shape.
            UnsupportedModelError: it has parts this version does not compute.
        """
        weights, keys, states = Weights(model), model.metadata, StateMap()
        spec = read_decoder_spec(keys, n_vocab=weights.n_rows("token_embd.weight"))
        recurrent = read_recurrent_layers(keys, spec.n_layers)
        indexes = read_page_indexes(keys, recurrent, n_rotated=spec.rope.n_dims)
        delta = read_delta_spec(keys)
        ngram_layers = keys.get_array(PREFIX + "ple.layers", int, [])
        self._embedding = weights.embedding(spec)
        self._frequencies = rope_frequencies(spec.rope, weights)
        self._layers = []
        for layer, is_recurrent in enumerate(recurrent):
            at = f"blk.{layer}."
            streams = StreamMixer(weights, at + "hc_attn_", spec, keys)
            mixer: Part
            if is_recurrent:
                mixer = _take_delta_net(weights, at, spec, delta, states)
            else:
                chooser = None
                if layer in indexes:
                    chooser = Indexer(
                        weights,
                        at,
                        spec,
                        index=indexes[layer],
                        frequencies=self._frequencies,
                        states=states,
                    )
                kv_layer = recurrent[:layer].count(False)
                mixer = Attention(
                    weights, at, spec, kv_layer=kv_layer, is_gated=True, chooser=chooser
                )
            ngrams = None
            if layer in ngram_layers:
                ngrams = NgramEmbedding(
                    weights, at, spec, keys, n_streams=streams.n_streams, states=states
                )
            self._layers.append(
                StreamLayer(
                    ngrams=ngrams,
                    mixer_streams=streams,
                    mixer=mixer,
                    ffn_streams=StreamMixer(weights, at + "hc_ffn_", spec, keys),
                    ffn=take_ffn(weights, model, spec, layer=layer),
                )
            )
        self._output_streams = StreamMixer(weights, LAST_MIXER, spec, keys)
        self._output = weights.output(spec, self._embedding)
        self.weights = tuple(weights.taken)
        self.spec = replace(
            spec,
            n_kv_layers=recurrent.count(False),
            index=index_spec(indexes),
            state_values=states.n_values,
        )

    @classmethod
    def from_gguf(cls, model: GGUFModel) -> Self:
        """Take the model from a file.

        Raises:
            GGUFFormatError: a key or tensor is missing or of another shape.
            UnsupportedModelError: it has parts this version does not compute.
        """
        return cls(model)

    def forward(self, ops: Ops, batch: Batch) -> Rows:
        """Read the batch's tokens and return logits of the wanted rows.

        Shapes:
            result: [n_wanted, n_vocab].
        """
        step = Step(batch, ops.rope_angles(batch.positions, self._frequencies))
        x = ops.repeat(ops.embed(self._embedding, batch.ids), self._output_streams.n_streams)
        for i, layer in enumerate(self._layers):
            if layer.ngrams is not None:
                with ops.scratch():
                    layer.ngrams.forward(ops, x, step)
            for streams, part in (
                (layer.mixer_streams, layer.mixer),
                (layer.ffn_streams, layer.ffn),
            ):
                with ops.scratch():
                    h, gate = streams.read(ops, x)
                    y = part.forward(ops, h, step)
                    assert gate is not None  # only the last mixer has none
                    ops.inject(x, y, gate)
            ops.note("layer_out", i, x)
        h, _ = self._output_streams.read(ops, ops.gather_rows(x, batch.wanted))
        return ops.matmul(h, self._output)


def _take_delta_net(
    weights: Weights, at: str, spec: ModelSpec, delta: DeltaSpec, states: StateMap
) -> DeltaNet:
    return DeltaNet(
        weights,
        at,
        take_delta_inputs(weights, at, delta, d_model=spec.d_model),
        spec,
        delta=delta,
        is_tiled=True,
        states=states,
        output_gate=OutputGate.SIGMOID,
    )
