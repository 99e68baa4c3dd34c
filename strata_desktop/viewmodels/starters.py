"""The two models a person can begin with, and what to ask the one that is loaded.

Where their files lie is `engine.paths`' business; loading them is the engine state's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.paths import BUNDLED_MODEL_FILE, DEMO_MODEL_FILE, bundled_model

Prompt = tuple[str, str]
"""A few words on a button, and what it types."""

PROMPTS: tuple[Prompt, ...] = (
    ("Explain an idea", "Explain how a hash table works, with a small example."),
    ("Write some code", "Write a Python function that finds all primes below n, with comments."),
    ("Improve a text", "Make this sentence clearer: "),
    ("Plan something", "Help me plan a quiet weekend with two friends."),
)
BARD_PROMPTS: tuple[Prompt, ...] = (
    ("Hear Juliet", "Speak as Juliet."),
    ("Recite a psalm", "Recite Psalm 23:1-3."),
    ("Ask who said it", "Who speaks this line? O Romeo, Romeo! wherefore art thou Romeo?"),
    ("Ask for verses", "Write a few lines in verse about the night."),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Starter:
    """A model to begin with.

    Attributes:
        name: as people call it.
        origin: where it comes from and how large it is.
        words: what it is and is not good for.
        path: its file.
        gap: why it cannot be loaded, "" if it can.
    """

    name: str
    origin: str
    words: str
    path: Path
    gap: str


def find_starters(models_dir: Path) -> tuple[Starter, ...]:
    """Return the models to begin with, the one that is part of the program first.

    Args:
        models_dir: where the installer puts what it downloads.
    """
    bard, smollm2 = bundled_model(), models_dir / DEMO_MODEL_FILE
    return (
        Starter(
            name="Bard",
            origin="Part of the program, no download",
            words="A mixture-of-experts model with trained weights, in the architecture of the "
            "large models this program is made for. It writes in the manner of Shakespeare and "
            "knows no facts.",
            path=bard,
            gap="" if bard.is_file() else f"Its file is missing: {bard}",
        ),
        Starter(
            name="SmolLM2",
            origin="Downloaded by the installer · 93 MB",
            words="A small chat model that answers simple questions and writes short texts. It is "
            "often wrong: a larger model knows much more.",
            path=smollm2,
            gap=""
            if smollm2.is_file()
            else "Not downloaded yet. This fetches it: python -m installer run",
        ),
    )


def is_bard(model_id: str) -> bool:
    """Whether a model is the one that is part of the program."""
    return model_id == Path(BUNDLED_MODEL_FILE).stem


def prompts_for(model_id: str) -> tuple[Prompt, ...]:
    """Return what to ask a model, four of them."""
    return BARD_PROMPTS if is_bard(model_id) else PROMPTS
