"""Golden files with keys and tensors changed: the forms that other converters write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.gguf.metadata import ArrayValue
from engine.gguf.reader import open_model
from kernels.quants import QuantType
from tests.builders import ARRAY, RawTensor, Typed, make_gguf

Array = npt.NDArray[Any]
Keys = dict[str, Any]
Tensors = dict[str, RawTensor]


def rows_of(tensor: RawTensor) -> Array:
    """The bytes of a tensor, a row a row."""
    quant = QuantType(tensor.type_id)
    return np.frombuffer(bytes(tensor.encoded), np.uint8).reshape(
        -1, quant.row_bytes(tensor.dims[0])
    )


def with_rows(tensor: RawTensor, rows: Array) -> RawTensor:
    """A matrix of the same width and format with other rows."""
    return RawTensor((tensor.dims[0], len(rows)), tensor.type_id, rows.tobytes())


def rewrite(source: Path, target: Path, change: Callable[[Keys, Tensors], None]) -> Path:
    """Write a model again with what `change` made of its keys and tensors."""
    with open_model(source) as model:
        keys: Keys = {}
        for key in model.metadata:
            entry = model.metadata.entry(key)
            value = entry.value
            if isinstance(value, ArrayValue):
                keys[key] = Typed(ARRAY, value.to_list(), int(value.kind))
            else:
                keys[key] = Typed(int(entry.kind), value)
        tensors: Tensors = {
            name: RawTensor(tensor.dims, tensor.quant, model.tensor_bytes(name).tobytes())
            for name, tensor in model.tensors.items()
        }
    change(keys, tensors)
    return make_gguf(target, keys, tensors)
