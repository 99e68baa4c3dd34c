"""The pressure test over the scripted backend."""

from __future__ import annotations

from engine.scheduler.text import TokenizerText
from tests.pressure import N_PROMPT, run_pressure
from tests.scripted_backend import LetterTokenizer, ScriptedBackend, ScriptedSpec


def test_four_conversations_on_a_pool_for_three() -> None:
    prompts = [[value] * N_PROMPT for value in (1, 2, 3, 4)]
    run_pressure(
        lambda shape: ScriptedBackend(ScriptedSpec(), shape=shape),
        prompts,
        text=TokenizerText(LetterTokenizer()),  # type: ignore[arg-type]
    )
