"""Every architecture against Hugging Face transformers in float32 on the same weights.

The files of the repository are one of a kind; where the shared folder is there, all of it is run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.backend.logits import compute_logits
from kernels.cpu.library import Level, load_library
from tests.engine.models.goldens import (
    Golden,
    committed,
    divergence,
    open_backend,
    read,
    shared,
)

Array = npt.NDArray[Any]

FLOAT_LOGIT = 3e-4
"""Largest difference of a logit where weights are plain numbers: float32 sums in another order."""
QUANT_LOGIT = 1e-3
"""The same for quantised weights, on what they stand for."""
DEFAULT_KL = 2e-3
"""Mean Kullback-Leibler divergence on the default path, in nats."""
RESIDUAL = 2e-5
"""Of a layer's output, relative to its largest value."""

ALL = committed() + shared()
WITH_LAYERS = [case for case in ALL if "short.layer_out" in case.values[0].load()]


@pytest.mark.parametrize("prompt", ["short", "long"])
@pytest.mark.parametrize("golden", ALL)
def test_the_exact_path_meets_the_golden_logits(golden: Golden, prompt: str) -> None:
    values = golden.load()
    greedy = values[f"{prompt}.greedy_ids"]
    had = compute_logits(golden.model, values[f"{prompt}.ids"], is_exact=True, n_greedy=len(greedy))
    tolerance = FLOAT_LOGIT if golden.is_float else QUANT_LOGIT
    assert np.abs(had["last_logits"] - values[f"{prompt}.logits_last"]).max() < tolerance
    assert np.array_equal(had["argmax"], values[f"{prompt}.top_ids"][:, 0])
    assert np.array_equal(had["greedy"], greedy)


@pytest.mark.parametrize("golden", ALL)
def test_the_default_path_stays_close(golden: Golden) -> None:
    values = golden.load()
    divergences = []
    with open_backend(golden.model) as backend:
        for prompt in ("short", "long"):
            ids = values[f"{prompt}.ids"]
            divergences.append(divergence(values[f"{prompt}.logits_last"], read(backend, ids)))
            told = values.get(f"{prompt}.greedy_logits_at", np.zeros(0, np.int32))
            whole = np.concatenate([ids, values[f"{prompt}.greedy_ids"]])
            for row, at in enumerate(told):
                had = read(backend, whole[: len(ids) + at])
                divergences.append(divergence(values[f"{prompt}.greedy_logits"][row], had))
    assert np.mean(divergences) < DEFAULT_KL


@pytest.mark.parametrize("golden", WITH_LAYERS)
def test_every_layer_meets_its_golden_output(golden: Golden) -> None:
    values = golden.load()
    ids, wanted = values["short.ids"], values["short.layer_out"]
    at = values.get("short.layer_out_at", np.arange(len(ids)))
    had: dict[int, Array] = {}

    def watch(name: str, layer: int, shown: tuple[Array, ...]) -> None:
        if name == "layer_out":
            had[layer] = shown[0]

    with open_backend(golden.model, is_exact=True) as backend:
        backend.watch(watch)
        read(backend, ids)
    for layer, rows in enumerate(wanted):
        np.testing.assert_allclose(
            had[layer][at], rows, rtol=0, atol=RESIDUAL * float(np.abs(rows).max())
        )


@pytest.mark.parametrize("level", list(Level), ids=lambda level: level.name)
@pytest.mark.parametrize("golden", committed())
def test_every_level_of_instructions_meets_the_golden_logits(golden: Golden, level: Level) -> None:
    if level > load_library().best_level:
        pytest.skip(f"this processor has no {level.name}")
    values = golden.load()
    ids, wanted = values["long.ids"], values["long.logits_last"]
    with open_backend(golden.model, is_exact=True, level=level) as backend:
        had = read(backend, ids, n_tokens=100)
        assert np.abs(had - wanted).max() < (FLOAT_LOGIT if golden.is_float else QUANT_LOGIT)
    with open_backend(golden.model, level=level) as backend:
        had = read(backend, ids, n_tokens=100)
        assert divergence(wanted, had) < DEFAULT_KL
        assert np.array_equal(read(backend, ids, n_tokens=33), had)


def chosen_tokens(pages: Array, lasts: Array, n_cells: int, page_cells: int) -> Array:
    """Return which of the cells 0 .. n_cells - 1 a row attends to."""
    n_most = len(pages)
    whole = n_cells // page_cells
    is_chosen = np.zeros(n_cells, bool)
    for page in pages[: min(n_most, whole)]:
        is_chosen[page * page_cells : (page + 1) * page_cells] = True
    is_chosen[whole * page_cells :] = True
    assert int(is_chosen.sum()) == int(lasts) + 1
    return is_chosen


@pytest.mark.parametrize("prompt", ["short", "long"])
@pytest.mark.parametrize(
    "golden", [case for case in ALL if "long.selected_bits" in case.values[0].load()]
)
def test_every_position_attends_to_the_golden_tokens(golden: Golden, prompt: str) -> None:
    values = golden.load()
    ids = values[f"{prompt}.ids"]
    wanted = np.unpackbits(values[f"{prompt}.selected_bits"], axis=-1)[..., : len(ids)].astype(bool)
    had: dict[int, list[Array]] = {0: [], 1: []}

    def watch(name: str, layer: int, shown: tuple[Array, ...]) -> None:
        if name == "selection":
            pages, lasts = shown
            start = len(had[layer])
            for row, picked in enumerate(pages.reshape(len(lasts), -1)):
                had[layer].append(chosen_tokens(picked, lasts[row], start + row + 1, 4))

    with open_backend(golden.model, is_exact=True) as backend:
        backend.watch(watch)
        read(backend, ids, n_tokens=37)
    for layer, rows in enumerate(wanted):
        for position, row in enumerate(rows):
            assert np.array_equal(np.flatnonzero(row), np.flatnonzero(had[layer][position]))


@pytest.mark.parametrize("prompt", ["short", "long"])
@pytest.mark.parametrize(
    "golden", [case for case in ALL if "long.ngram_rows" in case.values[0].load()]
)
def test_every_token_reads_the_golden_rows_of_the_table(golden: Golden, prompt: str) -> None:
    values = golden.load()
    wanted = values[f"{prompt}.ngram_rows"]
    had: list[Array] = []

    def watch(name: str, layer: int, shown: tuple[Array, ...]) -> None:
        del layer
        if name == "ngram_rows":
            had.append(shown[0].reshape(-1, wanted.shape[1]))

    with open_backend(golden.model) as backend:
        backend.watch(watch)
        read(backend, values[f"{prompt}.ids"], n_tokens=29)
    assert np.array_equal(np.concatenate(had), wanted)


def test_watching_changes_no_bit() -> None:
    golden = next(case.values[0] for case in committed() if "qwen4exp-t" in case.id)
    ids = golden.load()["short.ids"]
    with open_backend(golden.model) as backend:
        alone = read(backend, ids)
        backend.watch(lambda *_: None)
        watched = read(backend, ids)
        backend.watch(None)
        assert np.array_equal(alone, watched)
        assert np.array_equal(alone, read(backend, ids))
