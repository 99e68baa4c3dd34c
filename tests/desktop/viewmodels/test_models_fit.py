from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from engine.config import PoolConfig
from engine.errors import MemoryBudgetError
from engine.loading import check_memory, settle_shape
from strata_desktop.client.engine_host import LoadOptions
from strata_desktop.viewmodels.models_fit import Fit, LoadEstimate, default_context, estimate_load
from tests.desktop.snapshots import GIB, HOST, SUMMARY, Held, make_pool, make_status

PATH = Path("model.gguf")


def estimate(**changes) -> LoadEstimate:
    made = LoadEstimate(
        context_tokens=8192,
        pool_tokens=32768,
        weights_bytes=4 * GIB,
        kv_bytes=2 * GIB,
        ram_bytes=21 * GIB,
        commit_bytes=31 * GIB,
    )
    return dataclasses.replace(made, **changes)


@pytest.mark.parametrize(
    ("changes", "fit", "told"),
    [
        ({}, Fit.FITS, "Fits."),
        ({"ram_bytes": 7 * GIB}, Fit.TIGHT, "15 %"),
        ({"ram_bytes": 5 * GIB}, Fit.POOL_TOO_LARGE, "1.0 GiB too much"),
        ({"commit_bytes": GIB}, Fit.POOL_TOO_LARGE, "page file"),
        ({"ram_bytes": 3 * GIB}, Fit.MODEL_TOO_LARGE, "1.0 GiB more than is free"),
        ({"pool_tokens": 4096}, Fit.POOL_TOO_SMALL, "4,096 cells"),
        ({"kv_bytes": None}, Fit.UNKNOWN, "the model's needs"),
        ({"ram_bytes": None}, Fit.UNKNOWN, "free memory"),
    ],
)
def test_verdicts(changes: dict[str, int], fit: Fit, told: str) -> None:
    one = estimate(**changes)
    assert one.fit is fit
    assert told in one.verdict
    assert one.can_load is (fit in (Fit.FITS, Fit.TIGHT, Fit.UNKNOWN))


def test_unknown_reads_unknown_and_never_nan() -> None:
    one = estimate(weights_bytes=None, kv_bytes=None, ram_bytes=None, commit_bytes=None)
    told = dict(one.numbers)
    assert set(told.values()) == {"unknown"}
    assert "nan" not in one.verdict.lower()


def test_the_sum_follows_the_rules_of_the_load() -> None:
    one = estimate_load(SUMMARY, PATH, LoadOptions(), make_status())
    assert one.context_tokens == 8192
    assert one.pool_tokens == 32768
    assert one.weights_bytes == SUMMARY.file_bytes
    assert one.kv_bytes == (32768 + 4096) * SUMMARY.kv_bytes_per_token
    assert one.ram_bytes == 21 * GIB
    assert one.commit_bytes == 31 * GIB


@pytest.mark.parametrize("ram_mib", [400, 500, 505, 510, 600])
def test_it_agrees_with_the_engine_on_what_is_refused(ram_mib: int) -> None:
    memory = dataclasses.replace(HOST, ram_available_bytes=ram_mib * 1024**2)
    one = estimate_load(SUMMARY, PATH, LoadOptions(), make_status(memory=memory))
    shape, _ = settle_shape(
        PoolConfig(context_tokens=one.context_tokens, pool_tokens=one.pool_tokens),
        model_context_tokens=SUMMARY.context_tokens,
    )
    try:
        check_memory(SUMMARY, shape, memory)
        is_taken = True
    except MemoryBudgetError:
        is_taken = False
    assert one.can_load is is_taken


def test_what_the_loaded_model_holds_comes_back() -> None:
    pool = make_pool(16, [Held(id="s1", n_tokens=9000)])
    one = estimate_load(SUMMARY, PATH, LoadOptions(), make_status(pool))
    assert one.ram_bytes == 21 * GIB + 3 * 4096 * 11_520
    assert one.commit_bytes == 31 * GIB + 16 * 4096 * 11_520


def test_no_hard_commit_limit_means_no_commit_line() -> None:
    free = dataclasses.replace(HOST, has_commit_limit=False)
    one = estimate_load(SUMMARY, PATH, LoadOptions(), make_status(memory=free))
    assert one.commit_bytes is None
    assert "Free commit" not in dict(one.numbers)


def test_a_pool_is_rounded_up_to_chunks() -> None:
    options = LoadOptions(context_tokens=2048, pool_tokens=5000)
    one = estimate_load(SUMMARY, PATH, options, None)
    assert one.pool_tokens == 8192
    assert one.fit is Fit.UNKNOWN


def test_a_long_context_is_not_chosen_unasked() -> None:
    assert default_context(dataclasses.replace(SUMMARY, context_tokens=262_144)) == 32_768
    assert default_context(dataclasses.replace(SUMMARY, context_tokens=0)) == 32_768
    assert default_context(SUMMARY) == 8192
