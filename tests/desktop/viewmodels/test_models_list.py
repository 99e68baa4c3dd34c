from __future__ import annotations

import dataclasses
from pathlib import Path

from PySide6.QtCore import QPersistentModelIndex

from strata_desktop.viewmodels.models_list import (
    MARK_ROLE,
    SUBLINE_ROLE,
    ModelEntry,
    ModelList,
    model_facts,
)
from tests.desktop.snapshots import SUMMARY


def entry(name: str, **changes) -> ModelEntry:
    path = f"/models/{name}.gguf"
    summary = dataclasses.replace(SUMMARY, name=name, path=path, **changes)
    return ModelEntry(path=Path(path), summary=summary)


BROKEN = ModelEntry(path=Path("/models/broken.gguf"), summary=None, error="It ends too early.")


def names(model: ModelList) -> list[str]:
    return [model.index(row).data() for row in range(model.rowCount())]


def test_those_that_can_be_loaded_come_first(qapp) -> None:
    made = ModelList()
    unsupported = entry("aaa", is_supported=False, reason="Not there yet.")
    made.update_entries([BROKEN, unsupported, entry("beta"), entry("Alpha")])
    assert names(made) == ["Alpha", "beta", "aaa", "broken.gguf"]
    assert [made.index(row).data(MARK_ROLE) for row in range(4)] == [
        "",
        "",
        "unsupported",
        "unreadable",
    ]


def test_updates_leave_the_rest_in_place(qapp) -> None:
    made = ModelList()
    made.update_entries([entry("b"), entry("d")])
    kept = QPersistentModelIndex(made.index(1))
    resets: list[int] = []
    made.modelReset.connect(lambda: resets.append(1))
    made.update_entries([entry("d"), entry("a"), entry("c")])
    assert names(made) == ["a", "c", "d"]
    assert kept.data() == "d"
    assert resets == []


def test_only_one_is_marked(qapp) -> None:
    made = ModelList()
    made.update_entries([entry("a"), entry("b")])
    made.set_mark(Path("/models/a.gguf"), "loading")
    made.set_mark(Path("/models/b.gguf"), "loaded")
    assert [made.index(row).data(MARK_ROLE) for row in range(2)] == ["", "loaded"]


def test_split_files_read_as_one(qapp) -> None:
    assert entry("a", n_shards=3).subline == "93.4 MiB · 3 parts · Q4_1 · llama"
    made = ModelList()
    made.update_entries([entry("a", n_shards=3)])
    assert "3 parts" in made.index(0).data(SUBLINE_ROLE)


def test_problems_say_why() -> None:
    assert BROKEN.problem == "It ends too early."
    assert not BROKEN.can_load
    assert entry("a").problem == ""
    assert entry("a", is_supported=False, reason="No such thing.").problem == "No such thing."


def test_facts() -> None:
    facts = {fact.label: fact.value for fact in model_facts(SUMMARY)}
    assert facts["Architecture"] == "llama"
    assert facts["File size"] == "93.4 MiB"
    assert facts["Weights"] == "135 M · Q4_1"
    assert facts["Trained context"] == "8,192 tokens"
    assert facts["Experts"] == "none (dense)"
    assert facts["K/V"] == "11 KiB a token"
    moe = dataclasses.replace(SUMMARY, n_experts=128, n_experts_used=8)
    assert {f.label: f.value for f in model_facts(moe)}["Experts"] == "128, of which 8 a token"


def test_facts_that_are_not_told_read_unknown() -> None:
    blank = dataclasses.replace(
        SUMMARY,
        n_params=0,
        context_tokens=0,
        kv_bytes_per_token=0,
        quantization="",
        architecture="",
    )
    facts = {fact.label: fact.value for fact in model_facts(blank)}
    assert facts["Trained context"] == facts["K/V"] == facts["Architecture"] == "unknown"
    assert facts["Weights"] == "unknown · unknown"
