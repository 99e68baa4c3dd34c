"""Where models are, and the names that stand for them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from engine.paths import bundled_model, default_model, demo_model, find_model, named_models

BARD_SHA256 = "c9e41d10984aa5ebc4430f90696189ad34d56074ca7ca33b28fb337656bf093e"


def test_the_bundled_model_is_whole_and_described_beside_it() -> None:
    assert hashlib.sha256(bundled_model().read_bytes()).hexdigest() == BARD_SHA256
    assert BARD_SHA256 in (bundled_model().parent / "README.md").read_text(encoding="utf-8")


def test_the_bundled_model_is_in_what_is_packaged() -> None:
    import resources

    assert resources.__file__ is not None
    assert bundled_model().is_relative_to(Path(resources.__file__).resolve().parent)


def test_names_stand_for_models_and_everything_else_is_a_path() -> None:
    assert set(named_models()) == {"bard", "smollm2"}
    assert find_model("bard") == find_model("BARD") == bundled_model()
    assert find_model("SmolLM2") == demo_model()
    for text in ("./bard", "bard.gguf", "models/bard", "smol", ""):
        assert find_model(text) == Path(text)


def test_the_demo_model_comes_first_once_it_was_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRATA_HOME", str(tmp_path))
    assert default_model() == bundled_model()
    demo_model().parent.mkdir()
    demo_model().touch()
    assert default_model() == demo_model()
