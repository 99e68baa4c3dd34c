"""The counts of the server for monitors: Prometheus text, or JSON for people and scripts.

The same snapshot as `/v1/status`, told in the words of each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import Request
from starlette.responses import JSONResponse, Response

from engine.api.served import EngineDep
from engine.stats import (
    EngineSnapshot,
    ExpertPicks,
    KvPoolSnapshot,
    RequestCounts,
    StatusSnapshot,
    WorkCounts,
)

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


async def metrics(request: Request, engine: EngineDep) -> Response:
    """Send the counts; JSON with `?format=json` or `Accept: application/json`."""
    snapshot = engine.status()
    wanted = request.query_params.get("format", "")
    accept = request.headers.get("accept", "")
    if wanted == "json" or (not wanted and "application/json" in accept):
        return JSONResponse(metrics_json(snapshot))
    return Response(metrics_text(snapshot), media_type=PROMETHEUS)


def metrics_json(snapshot: StatusSnapshot) -> dict[str, Any]:
    """Tell the counts as JSON; pool, requests and work are null while no model is loaded."""
    engine, picks = snapshot.engine, snapshot.experts.picks
    return {
        "model": None if snapshot.model.summary is None else snapshot.model.summary.id,
        "model_state": snapshot.model.state,
        "uptime_s": snapshot.server.uptime_s,
        "kv_pool": None if engine is None else _pool_json(engine.kv_pool),
        "requests": None if engine is None else dataclasses.asdict(engine.requests),
        "work": None if engine is None else dataclasses.asdict(engine.work),
        "memory": dataclasses.asdict(snapshot.memory),
        "vram": dataclasses.asdict(snapshot.vram),
        "expert_picks": None if picks is None else dataclasses.asdict(picks),
    }


def _pool_json(pool: KvPoolSnapshot) -> dict[str, Any]:
    told = dataclasses.asdict(pool)
    del told["chunks"]
    return told


def metrics_text(snapshot: StatusSnapshot) -> str:
    """Tell the counts in the Prometheus text format, version 0.0.4."""
    return "".join(_lines(snapshot))


def _lines(snapshot: StatusSnapshot) -> Iterator[str]:
    memory, vram = snapshot.memory, snapshot.vram
    yield from _gauge("up_seconds", "Seconds since the service started.", snapshot.server.uptime_s)
    is_ready = snapshot.model.state == "ready"
    yield from _gauge("model_loaded", "1 when a model answers.", float(is_ready))
    yield from _gauge("ram_total_bytes", "Physical memory.", memory.ram_total_bytes)
    yield from _gauge("ram_available_bytes", "Free physical memory.", memory.ram_available_bytes)
    yield from _gauge("commit_limit_bytes", "What the OS can promise.", memory.commit_limit_bytes)
    yield from _gauge("commit_used_bytes", "What the OS has promised.", memory.commit_used_bytes)
    yield from _gauge("process_bytes", "Resident memory of the server.", memory.process_bytes)
    if vram.is_present:
        yield from _gauge("vram_total_bytes", "Memory of the card.", vram.total_bytes)
        yield from _gauge("vram_used_bytes", "Memory of the card in use.", vram.used_bytes)
    if snapshot.engine is not None:
        yield from _engine_lines(snapshot.engine)
    if snapshot.experts.picks is not None:
        yield from _expert_lines(snapshot.experts.picks)


def _engine_lines(engine: EngineSnapshot) -> Iterator[str]:
    yield from _request_lines(engine.requests)
    yield from _work_lines(engine.work)
    pool = engine.kv_pool
    yield from _gauge("kv_pool_cells", "Cells of the K/V pool.", pool.cells)
    yield from _gauge("kv_pool_free_cells", "Cells nobody holds.", pool.free)
    yield from _gauge("kv_pool_chunk_cells", "Cells of a chunk.", pool.chunk_cells)
    yield from _gauge("kv_pool_cell_bytes", "K and V of a cell.", pool.bytes_per_cell)
    samples: list[Sample] = [
        (
            {
                "session": session.id,
                "lane": "" if session.lane is None else str(session.lane),
                "state": session.state,
            },
            session.cells,
        )
        for session in pool.sessions
    ]
    yield from _metric("session_cells", "gauge", "Cells a conversation holds.", samples)


def _expert_lines(picks: ExpertPicks) -> Iterator[str]:
    samples: list[Sample] = [
        ({"layer": str(layer), "expert": str(expert)}, n_picks)
        for layer, row in enumerate(picks.counts or ())
        for expert, n_picks in enumerate(row)
    ]
    help_text = "Times the router picked an expert."
    yield from _metric("expert_picks_total", "counter", help_text, samples)


def _request_lines(requests: RequestCounts) -> Iterator[str]:
    yield from _gauge("requests_running", "Requests that run now.", requests.running)
    yield from _gauge("requests_waiting", "Requests that wait now.", requests.waiting)
    samples: list[Sample] = [
        ({"outcome": outcome}, getattr(requests, outcome))
        for outcome in ("finished", "refused", "truncated", "cancelled", "failed")
    ]
    yield from _metric("requests_total", "counter", "Requests that ended, by outcome.", samples)


def _work_lines(work: WorkCounts) -> Iterator[str]:
    counters = (
        ("steps_total", "Steps run.", work.n_steps),
        ("prompt_tokens_total", "Prompt tokens read.", work.n_prompt_tokens),
        ("cached_tokens_total", "Prompt tokens that needed no reading.", work.n_cached_tokens),
        ("completion_tokens_total", "Tokens generated.", work.n_completion_tokens),
        ("swaps_total", "Admissions by swapping tables.", work.n_swaps),
        ("evictions_total", "Idle conversations that gave way.", work.n_evictions),
        ("copied_bytes_total", "K/V bytes copied.", work.copied_bytes),
    )
    for name, help_text, value in counters:
        yield from _metric(name, "counter", help_text, [({}, value)])
    yield from _gauge(
        "prefill_tokens_per_second", "Prompt speed, last seconds.", work.prefill_tokens_per_s
    )
    yield from _gauge(
        "decode_tokens_per_second", "Writing speed, last seconds.", work.decode_tokens_per_s
    )


def _gauge(name: str, help_text: str, value: float) -> Iterator[str]:
    yield from _metric(name, "gauge", help_text, [({}, value)])


def _metric(name: str, kind: str, help_text: str, samples: list[Sample]) -> Iterator[str]:
    yield f"# HELP strata_{name} {help_text}\n# TYPE strata_{name} {kind}\n"
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"strata_{name}{'{' + inside + '}' if inside else ''} {value:.15g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
