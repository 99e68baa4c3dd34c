"""Counts as Prometheus text and as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.api.metrics import _metric
from tests.engine.api.api_rig import ApiRig

MakeRig = Callable[..., ApiRig]

SAMPLE = re.compile(r'^strata_[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+$')


def samples_of(text: str) -> dict[str, float]:
    """Every sample by its name with labels; checks the form of each line."""
    samples: dict[str, float] = {}
    described: set[str] = set()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            described.add(line.split()[2])
        elif line.startswith("# TYPE "):
            assert line.split()[2] in described
            assert line.split()[3] in ("gauge", "counter")
        else:
            assert SAMPLE.match(line), line
            name, value = line.rsplit(" ", 1)
            assert name.split("{")[0] in described
            samples[name] = float(value)
    return samples


def test_prometheus_text_counts_what_happened(rig: ApiRig) -> None:
    usage = rig.chat(max_tokens=5, ignore_eos=True).json()["usage"]
    reply = rig.get("/metrics")
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = samples_of(reply.text)
    assert samples["strata_model_loaded"] == 1
    assert samples['strata_requests_total{outcome="finished"}'] == 1
    assert samples['strata_requests_total{outcome="failed"}'] == 0
    assert samples["strata_prompt_tokens_total"] == usage["prompt_tokens"]
    assert samples["strata_completion_tokens_total"] == 5
    assert samples["strata_kv_pool_cells"] == 512
    held = samples['strata_session_cells{session="s1",lane="0",state="idle"}']
    assert samples["strata_kv_pool_free_cells"] == 512 - held
    assert samples["strata_ram_total_bytes"] > 0


def test_json_by_query_or_by_accept(rig: ApiRig) -> None:
    rig.chat()
    asked = (
        rig.get("/metrics?format=json"),
        rig.get("/metrics", headers={"accept": "application/json"}),
    )
    for reply in asked:
        body = reply.json()
        pool = body["kv_pool"]
        assert {"cells", "free", "chunk_cells", "sessions"} <= pool.keys()
        [session] = pool["sessions"]
        assert {"id", "lane", "cells", "state"} <= session.keys()
        assert pool["cells"] - pool["free"] == session["cells"]
        assert body["requests"]["finished"] == 1
        assert body["work"]["n_completion_tokens"] == 8
    assert rig.get("/metrics", headers={"accept": "*/*"}).text.startswith("# HELP")
    forced = rig.get("/metrics?format=prometheus", headers={"accept": "application/json"})
    assert forced.text.startswith("# HELP")


def test_without_a_model_there_are_no_made_up_counts(make_rig: MakeRig) -> None:
    rig = make_rig(is_loaded=False)
    body = rig.get("/metrics?format=json").json()
    assert body["kv_pool"] is None
    assert body["requests"] is None
    samples = samples_of(rig.get("/metrics").text)
    assert samples["strata_model_loaded"] == 0
    assert not any("kv_pool" in name for name in samples)


def test_labels_are_escaped() -> None:
    text = "".join(_metric("x", "gauge", "X.", [({"a": 'q"\\\n'}, 1.5)]))
    assert text.splitlines()[-1] == 'strata_x{a="q\\"\\\\\\n"} 1.5'
