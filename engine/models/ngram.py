"""The n-gram embedding: rows of a large table that the last few ids are hashed into."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.errors import GGUFFormatError
from engine.gguf.metadata import Metadata
from engine.models.layers import StateMap, Step
from engine.models.spec import MOST_TAPS, ModelSpec
from engine.models.weights import Weights
from engine.ops import NgramHash, Ops, Rows, Weight

MOST_GRAMS = 8
"""Tokens of the longest n-gram; real models have 3."""


class NgramEmbedding:
    """Adds what a table knows of the last few ids to every stream, and smooths it over tokens.

    Source:
        The GGUF layout of `qwen4exp`, "N-gram embedding".
    """

    def __init__(
        self,
        weights: Weights,
        at: str,
        spec: ModelSpec,
        keys: Metadata,
        *,
        n_streams: int,
        states: StateMap,
    ) -> None:
        """Take the tensors whose names begin with `at`, the table, and room for the state."""
        arch = spec.architecture
        self._hashing = read_hash(keys, n_vocab=spec.n_vocab)
        self._epsilon, self._n_streams = spec.norm_epsilon, n_streams
        self._n_gram, self._n_heads = len(self._hashing.multipliers), len(self._hashing.sizes)
        row_dim = keys.get_int(f"{arch}.embedding_length_per_layer_input", minimum=1)
        table = "per_layer_token_embd.weight"
        n_rows = weights.n_rows(table)
        self._table = weights.matrix(table, n_rows=n_rows, n_cols=row_dim, is_streamed=True)
        ends = self._hashing.offsets.astype(object) + self._hashing.sizes.astype(object)
        if max(ends) > n_rows:
            raise GGUFFormatError(
                f"the n-gram hash reaches row {max(ends) - 1} of {table!r}, which has {n_rows}.",
                path=keys.path,
            )
        width, joined = n_streams * spec.d_model, self._n_heads * row_dim
        self._key = weights.matrix(at + "ple_key.weight", n_rows=width, n_cols=joined)
        self._value = weights.matrix(at + "ple_value.weight", n_rows=spec.d_model, n_cols=joined)
        self._key_norm = weights.vector(at + "ple_norm_key.weight", width)
        self._query_norm = weights.vector(at + "ple_norm_query.weight", width)
        self._conv_norm = weights.vector(at + "ple_norm_conv.weight", width)
        n_taps = keys.get_int(f"{arch}.ple.conv_kernel", minimum=2, maximum=MOST_TAPS)
        taps = weights.values(at + "ple_conv1d.weight", n_rows=width, n_cols=n_taps)
        self._taps = weights.constant(at + "ple_conv1d.weight", taps.T)
        self._ids_state = states.take(self._n_gram - 1)
        self._conv_state = states.take((n_taps - 1) * self._n_gram * width)

    def forward(self, ops: Ops, x: Rows, step: Step) -> None:
        """Change the streams x in place."""
        rows = ops.ngram_rows(step.batch, self._hashing, self._ids_state)
        ops.note("ngram_rows", 0, rows)
        e = ops.embed_far(self._table, rows, n_heads=self._n_heads)
        key = self._norm(ops, ops.matmul(e, self._key), self._key_norm)
        query = self._norm(ops, x, self._query_norm)
        y = ops.ngram_gate(key, query, ops.matmul(e, self._value))
        smooth = ops.conv(
            self._norm(ops, y, self._conv_norm),
            self._taps,
            self._conv_state,
            step.batch,
            dilation=self._n_gram,
        )
        ops.add(x, y)
        ops.add(x, smooth)

    def _norm(self, ops: Ops, x: Rows, weight: Weight) -> Rows:
        return ops.grouped_norm(x, weight, n_groups=self._n_streams, epsilon=self._epsilon)


def read_hash(keys: Metadata, *, n_vocab: int) -> NgramHash:
    """Read how n-grams are hashed. All numbers stay whole: a float has no room for them.

    Raises:
        GGUFFormatError: a key is missing, of the wrong type or length, or out of bounds.
    """
    prefix = keys.get_str("general.architecture") + ".ple."
    n_gram = keys.get_int(prefix + "ngram_size", minimum=2, maximum=MOST_GRAMS)
    n_each = keys.get_int(prefix + "heads_per_ngram", minimum=1)
    n_heads = (n_gram - 1) * n_each
    multipliers = _read_words(keys, prefix + "layer_multipliers", n_gram)
    if int(multipliers.max()) * (n_vocab - 1) >= 1 << 63:
        raise GGUFFormatError(
            f"the key {prefix + 'layer_multipliers'!r} holds {int(multipliers.max())}; times an id "
            f"of a vocabulary of {n_vocab} that is 2^63 or more. The file is damaged.",
            path=keys.path,
        )
    return NgramHash(
        multipliers=multipliers,
        offsets=_read_words(keys, prefix + "head_offsets", n_heads),
        sizes=_read_words(keys, prefix + "head_vocab_sizes", n_heads, minimum=1),
        end_id=keys.get_int(prefix + "eos_token_id", minimum=0, maximum=n_vocab - 1),
    )


def _read_words(keys: Metadata, key: str, n: int, *, minimum: int = 0) -> npt.NDArray[np.uint64]:
    numbers = keys.get_array(key, int)
    if len(numbers) != n or min(numbers) < minimum:
        raise GGUFFormatError(
            f"the key {key!r} should hold {n} numbers from {minimum} on, but holds "
            f"{len(numbers)}, the least of them {min(numbers, default=0)}.",
            path=keys.path,
        )
    return np.array(numbers, np.uint64)
