"""Golden files: which there are, and running a model over their prompts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.backend.cpu import CpuBackend
from engine.config import BackendConfig
from engine.gguf.reader import open_model
from engine.step import LaneId, Span, StepPlan
from tests.conftest import REPO

Array = npt.NDArray[Any]

COMMITTED = REPO / "tests" / "golden"
SHARED = Path(os.environ.get("STRATA_SHARED", REPO.parent / "shared"))


@dataclass(frozen=True)
class Golden:
    """A model file and the file of what it must compute."""

    model: Path
    values: Path

    @property
    def is_float(self) -> bool:
        return any(part in ("f32", "f16", "bf16") for part in self.model.stem.split("-"))

    def load(self) -> dict[str, Array]:
        with np.load(self.values) as values:
            return {name: values[name] for name in values.files}


def committed() -> list[Any]:
    """Golden files of the repository, as test parameters."""
    return [
        pytest.param(Golden(path, path.with_suffix(".npz")), id=path.stem)
        for path in sorted(COMMITTED.glob("*.gguf"))
    ]


def shared() -> list[Any]:
    """Those of the shared folder, where it is there."""
    found = []
    for path in sorted(SHARED.glob("golden/*/*.gguf")):
        values = path.with_suffix(".npz")
        if not values.is_file():  # every float format of a model has the same values
            arch, dims = path.stem.split("-")[:2]
            values = path.parent / f"{arch}-{dims}-f32.npz"
        found.append(Golden(path, values))
    bard = SHARED / "models" / "bard" / "bard-q8_0.gguf"
    if bard.is_file():
        found.append(Golden(bard, bard.with_name("bard-q8_0-golden.npz")))
    return [
        pytest.param(golden, id=f"shared {golden.model.stem}", marks=pytest.mark.shared)
        for golden in found
    ]


@contextmanager
def open_backend(path: Path, **changes: Any) -> Iterator[CpuBackend]:
    """A backend over a model file, closed at the end."""
    config = BackendConfig(
        n_threads=changes.pop("n_threads", 2), is_exact=changes.pop("is_exact", False)
    )
    sizes: dict[str, Any] = {
        "n_lanes": 1,
        "context_tokens": 1024,
        "n_chunks": 8,
        "chunk_cells": 128,
        "is_pooled": False,
    }
    with open_model(path) as model:
        backend = CpuBackend(model, config, **(sizes | changes))
        try:
            yield backend
        finally:
            backend.close()


def one_span(lane: int, start: int, ids: Array, *, wants_logits: bool = True) -> Span:
    return Span(lane=LaneId(lane), start=start, ids=ids.astype(np.int32), wants_logits=wants_logits)


def read(
    backend: CpuBackend, ids: Array, *, lane: int = 0, start: int = 0, n_tokens: int = 256
) -> Array:
    """Read ids in spans of n_tokens; return logits of the last one."""
    logits: Array | None = None
    for at in range(start, len(ids), n_tokens):
        span = one_span(lane, at, ids[at : at + n_tokens], wants_logits=at + n_tokens >= len(ids))
        logits = backend.run(StepPlan(step_id=at, spans=(span,))).logits.get(LaneId(lane))
    assert logits is not None
    return logits


def divergence(wanted: Array, had: Array) -> float:
    """Return KL(wanted || had) of two rows of logits."""
    logs = []
    for row in (wanted, had):
        wide = row.astype(np.float64) - row.max()
        logs.append(wide - np.log(np.exp(wide).sum()))
    return float((np.exp(logs[0]) * (logs[0] - logs[1])).sum())
