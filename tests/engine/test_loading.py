"""Sizes of the pool, the memory check, and the refusals before anything is allocated."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from engine.config import PoolConfig
from engine.errors import ConfigError, MemoryBudgetError, ModelFileError
from engine.gguf.summary import summarize_file
from engine.loading import check_is_file, check_memory, gib, settle_shape
from engine.stats import HostMemory, ModelSummary
from tests.builders import make_tiny_llama

GIB = 1 << 30

MEMORY = HostMemory(
    ram_total_bytes=16 * GIB,
    ram_used_bytes=6 * GIB,
    ram_available_bytes=10 * GIB,
    commit_limit_bytes=20 * GIB,
    commit_used_bytes=15 * GIB,
    has_commit_limit=True,
    process_bytes=GIB,
)


@pytest.fixture
def summary(tmp_path: Path) -> ModelSummary:
    return summarize_file(make_tiny_llama(tmp_path / "tiny.gguf", n_layers=1), ["llama"])


def shape_of(**pool: Any) -> tuple[int, int, tuple[str, ...]]:
    config = PoolConfig(chunk_cells=8, n_lanes=2, **pool)
    shape, notes = settle_shape(config, model_context_tokens=100)
    return shape.context_tokens, shape.n_chunks, notes


def test_without_a_pool_every_lane_has_a_whole_context() -> None:
    assert shape_of() == (100, 2 * 13, ())
    assert shape_of(context_tokens=50) == (50, 2 * 7, ())


def test_a_pool_is_rounded_up_to_chunks() -> None:
    assert shape_of(pool_tokens=101, context_tokens=50) == (50, 13, ())
    assert shape_of(pool_tokens=104) == (100, 13, ())


def test_a_context_beyond_the_models_is_lowered_and_told() -> None:
    context, _, [note] = shape_of(context_tokens=200)
    assert context == 100
    assert "200" in note
    assert "100" in note


def test_a_small_pool_lowers_a_context_nobody_asked_for() -> None:
    context, n_chunks, [note] = shape_of(pool_tokens=60)
    assert (context, n_chunks) == (64, 8)
    assert "64 cells" in note


def test_a_context_that_was_promised_must_fit_the_pool() -> None:
    with pytest.raises(ConfigError, match=r"--kv-pool-tokens 60 .* 64 cells.*--max-context 65"):
        shape_of(pool_tokens=60, context_tokens=65)
    assert shape_of(pool_tokens=60, context_tokens=64)[0] == 64


def checked(summary: ModelSummary, pool_gib: float, memory: HostMemory = MEMORY) -> None:
    sized = dataclasses.replace(summary, file_bytes=4 * GIB, kv_bytes_per_token=1 << 20)
    cells = int(pool_gib * 1024)
    config = PoolConfig(n_lanes=1, chunk_cells=4, context_tokens=64, pool_tokens=cells)
    shape, _ = settle_shape(config, model_context_tokens=64)
    check_memory(sized, shape, memory)


def test_a_model_that_fits_passes(summary: ModelSummary) -> None:
    checked(summary, 4.9)


def test_commit_may_be_the_limit(summary: ModelSummary) -> None:
    with pytest.raises(
        MemoryBudgetError, match=r"Commit is the limit.* 5\.50 GiB.* 5\.00 GiB"
    ) as no:
        checked(summary, 5.496)
    assert no.value.limit == "commit"
    checked(summary, 5.5, dataclasses.replace(MEMORY, has_commit_limit=False))


def test_ram_may_be_the_limit(summary: ModelSummary) -> None:
    with pytest.raises(MemoryBudgetError, match=r"RAM is the limit.*10\.00 GiB of 16\.00") as no:
        checked(summary, 6.1)
    assert no.value.limit == "ram"
    assert "--kv-pool-tokens" in str(no.value)


def test_paths_without_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no such file"):
        check_is_file(tmp_path / "none.gguf")
    with pytest.raises(ModelFileError, match="choose a .gguf file"):
        check_is_file(tmp_path)


def test_bytes_for_people() -> None:
    assert gib(3 * GIB) == "3.00 GiB"
    assert gib(3 << 20) == "3.0 MiB"
