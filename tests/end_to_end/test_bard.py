"""The model that is part of the program, over HTTP: it answers, and its router is counted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from engine.config import ApiConfig, ModelConfig, PoolConfig
from engine.paths import bundled_model
from engine.service import EngineService

LIMIT_S = 60
N_LAYERS, N_EXPERTS, N_EXPERTS_USED = 8, 20, 4


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    service = EngineService(ApiConfig(port=0))
    try:
        base = service.start()
        pool = PoolConfig(n_lanes=2, context_tokens=1024, pool_tokens=4096)
        service.load(ModelConfig(path=bundled_model(), pool=pool))
        assert service.wait_ready(LIMIT_S), service.status().model.error
        yield base
    finally:
        service.stop()


def ask(address: str, text: str, n_tokens: int) -> dict[str, Any]:
    body = {
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": n_tokens,
        "ignore_eos": True,
    }
    reply = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=LIMIT_S)
    reply.raise_for_status()
    answer: dict[str, Any] = reply.json()
    return answer


def status(address: str) -> dict[str, Any]:
    told: dict[str, Any] = httpx.get(f"{address}/v1/status", timeout=LIMIT_S).json()
    return told


def test_it_answers_and_every_pick_of_its_router_is_told(address: str) -> None:
    picks = status(address)["experts"]["picks"]
    assert (picks["n_layers"], picks["n_experts"]) == (N_LAYERS, N_EXPERTS)
    assert picks["n_experts_used"] == N_EXPERTS_USED
    before = picks["n_picks"]
    answer = ask(address, "Recite Psalm 23:1-3.", 12)
    text = answer["choices"][0]["message"]["content"]
    assert text.startswith("The LORD is my shepherd; I shall not want.")
    told = status(address)
    picks = told["experts"]["picks"]
    usage = answer["usage"]
    # The last token is picked and never read.
    n_read = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
    n_tokens = n_read + usage["completion_tokens"] - 1
    assert picks["n_picks"] - before == n_tokens * N_LAYERS * N_EXPERTS_USED
    counts = picks["counts"]
    assert [len(row) for row in counts] == [N_EXPERTS] * N_LAYERS
    work = told["engine"]["work"]
    n_all = work["n_prompt_tokens"] + work["n_completion_tokens"]
    n_all -= told["engine"]["requests"]["finished"]
    assert [sum(row) for row in counts] == [n_all * N_EXPERTS_USED] * N_LAYERS
    assert "All experts are computed on the CPU from RAM" in told["experts"]["reason"]
    assert not told["experts"]["is_present"]


def test_the_router_picks_some_experts_more_than_others(address: str) -> None:
    ask(address, "Speak as Juliet.", 60)
    for row in status(address)["experts"]["picks"]["counts"]:
        assert max(row) > 1.4 * sum(row) / N_EXPERTS


def test_metrics_and_status_agree(address: str) -> None:
    counts = status(address)["experts"]["picks"]["counts"]
    lines = httpx.get(f"{address}/metrics", timeout=LIMIT_S).text.splitlines()
    for layer, row in enumerate(counts):
        for expert, n_picks in enumerate(row):
            name = f'strata_expert_picks_total{{layer="{layer}",expert="{expert}"}}'
            assert f"{name} {n_picks}" in lines
    body = httpx.get(f"{address}/metrics?format=json", timeout=LIMIT_S).json()
    assert body["expert_picks"]["counts"] == counts


def test_a_name_is_as_good_as_a_path(address: str) -> None:
    reply = httpx.post(f"{address}/v1/inspect", json={"path": "Bard"}, timeout=LIMIT_S).json()
    assert [model["id"] for model in reply["models"]] == ["bard-q4_k_m"]
    assert reply["models"][0]["n_experts"] == N_EXPERTS
    body = {"path": "bard", "context_tokens": 512, "alias": "poet"}
    reply = httpx.post(f"{address}/v1/load", json=body, timeout=LIMIT_S)
    assert reply.status_code == 202, reply.text
    assert reply.json()["path"] == str(bundled_model())
