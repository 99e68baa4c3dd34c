"""The cards of the models to begin with, on the page where they stand."""

from __future__ import annotations

import pytest

from engine.paths import DEMO_MODEL_FILE, bundled_model
from strata_desktop.viewmodels.engine_state import EnginePhase

pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


def cards(page):
    return {card.starter.name: card for card in page.welcome.starters.cards}


def test_both_are_offered_and_one_that_is_not_there_says_how_to_get_it(page, state) -> None:
    state._set(EnginePhase.NO_MODEL)
    assert list(cards(page)) == ["Bard", "SmolLM2"]
    assert all(card.isVisible() for card in cards(page).values())
    assert cards(page)["Bard"].button.isEnabled()
    assert not cards(page)["SmolLM2"].button.isEnabled()
    told = cards(page)["SmolLM2"].button.accessibleDescription()
    assert "answers simple questions" in told
    assert "python -m installer run" in told
    state.models_dir.mkdir(parents=True)
    (state.models_dir / DEMO_MODEL_FILE).touch()
    page.welcome.refresh()
    assert cards(page)["SmolLM2"].button.isEnabled()
    kept = cards(page)
    page.welcome.refresh()
    assert cards(page) == kept


def test_a_card_loads_its_model(qtbot, page, state, engine) -> None:
    engine.replies["/v1/inspect"] = {"models": [{"context_tokens": 4096}], "errors": []}
    state._set(EnginePhase.NO_MODEL)
    cards(page)["Bard"].button.click()
    assert state.phase is EnginePhase.LOADING
    assert not page.welcome.starters.isVisible()
    qtbot.waitUntil(lambda: [path for path, _ in engine.posts] == ["/v1/inspect", "/v1/load"])
    body = engine.posts[1][1]
    assert body["path"] == str(bundled_model())
    assert body["context_tokens"] == 4096


def test_they_come_back_after_a_failure_and_are_not_there_otherwise(page, state) -> None:
    for phase in EnginePhase:
        state._set(phase, name="x", detail="It went wrong.")
        offers = phase in (EnginePhase.NO_MODEL, EnginePhase.FAILED)
        assert page.welcome.starters.isVisible() is offers


def test_the_examples_suit_the_model(page, state) -> None:
    state._set(EnginePhase.READY, name="bard-q4_k_m", model_id="bard-q4_k_m")
    page.welcome._prompt_buttons[0].click()
    assert page.composer.text == "Speak as Juliet."
    state._set(EnginePhase.READY, name="tiny", model_id="tiny")
    page.welcome._prompt_buttons[0].click()
    assert page.composer.text.startswith("Explain")
