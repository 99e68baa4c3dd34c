from __future__ import annotations

from pathlib import Path

from engine.paths import DEMO_MODEL_FILE, bundled_model
from strata_desktop.viewmodels.starters import (
    BARD_PROMPTS,
    PROMPTS,
    find_starters,
    is_bard,
    prompts_for,
)


def test_the_models_to_begin_with_say_what_they_are(tmp_path: Path) -> None:
    bard, smollm2 = find_starters(tmp_path)
    assert (bard.name, bard.path, bard.gap) == ("Bard", bundled_model(), "")
    assert "no download" in bard.origin
    for word in ("mixture-of-experts", "trained weights", "Shakespeare", "knows no facts"):
        assert word in bard.words
    assert (smollm2.name, smollm2.path) == ("SmolLM2", tmp_path / DEMO_MODEL_FILE)
    assert "answers simple questions" in smollm2.words
    assert "python -m installer run" in smollm2.gap
    smollm2.path.touch()
    assert find_starters(tmp_path)[1].gap == ""


def test_each_model_is_asked_what_it_can_answer() -> None:
    from engine.config import ApiConfig, ModelConfig
    from engine.service import EngineService

    service = EngineService(ApiConfig())
    try:
        service.load(ModelConfig(path=bundled_model()))
        assert service.wait_ready(60)
        assert service.loaded is not None
        assert is_bard(service.loaded.summary.id)
    finally:
        service.stop()
    assert prompts_for("bard-q4_k_m") == BARD_PROMPTS
    assert prompts_for("SmolLM2-135M-Instruct.Q4_1") == prompts_for("") == PROMPTS
    assert len(BARD_PROMPTS) == len(PROMPTS)
