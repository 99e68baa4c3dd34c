"""Which architectures there are. To add one: write its file, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, Self

from engine.errors import UnsupportedModelError
from engine.gguf.reader import GGUFModel
from engine.models.llama import Llama
from engine.models.qwen3moe import Qwen3
from engine.models.qwen3next import Qwen3Next
from engine.models.qwen4exp import Qwen4Exp
from engine.models.qwen35moe import Qwen35
from engine.models.spec import ModelSpec
from engine.ops import Batch, Ops, Rows, Weight


class Model(Protocol):
    """What every architecture offers.

    Attributes:
        spec: its dims.
        weights: every weight it uses.
    """

    spec: ModelSpec
    weights: tuple[Weight, ...]

    @classmethod
    def from_gguf(cls, model: GGUFModel) -> Self:
        """Take the model from a file."""
        ...

    def forward(self, ops: Ops, batch: Batch) -> Rows:
        """Read the batch's tokens and return logits of the wanted rows: [n_wanted, n_vocab]."""
        ...


ARCHITECTURES: Mapping[str, type[Model]] = {
    "llama": Llama,
    "qwen3": Qwen3,
    "qwen3moe": Qwen3,
    "qwen35": Qwen35,
    "qwen35moe": Qwen35,
    "qwen3next": Qwen3Next,
    "qwen4exp": Qwen4Exp,
}
"""By `general.architecture`."""


def build_model(model: GGUFModel) -> Model:
    """Take the model of whatever architecture the file names.

    Raises:
        UnsupportedModelError: this version has no such architecture.
        GGUFFormatError: a key or tensor is missing or wrong.
    """
    name = model.metadata.get_str("general.architecture")
    if name not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"its architecture is {name!r}; this version runs: {', '.join(ARCHITECTURES)}.",
            path=model.path,
        )
    return ARCHITECTURES[name].from_gguf(model)
