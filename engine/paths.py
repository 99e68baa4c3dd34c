"""Where the program keeps its files on each system. It creates nothing and needs no package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DEMO_MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
BUNDLED_MODEL_FILE = "bard-q4_k_m.gguf"


def data_home() -> Path:
    r"""Return the folder for models, chats and settings.

    `STRATA_HOME` wins; else `%LOCALAPPDATA%\Strata` on Windows, `~/Library/Application
    Support/Strata` on macOS, `$XDG_DATA_HOME/strata` or `~/.local/share/strata` elsewhere.
    """
    if home := os.environ.get("STRATA_HOME"):
        return Path(home)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
        return Path(base) / "Strata"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "Strata"
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "strata"


def models_dir() -> Path:
    """Return the folder that models are downloaded to and looked for in first."""
    return data_home() / "models"


def demo_model() -> Path:
    """Return where the installer puts the demo model."""
    return models_dir() / DEMO_MODEL_FILE


def bundled_model() -> Path:
    """Return the model that is part of the program and needs no download."""
    return Path(__file__).resolve().parent.parent / "resources" / "models" / BUNDLED_MODEL_FILE


def named_models() -> dict[str, Path]:
    """Return the models that may be named instead of their files, by name."""
    return {"bard": bundled_model(), "smollm2": demo_model()}


def find_model(text: str) -> Path:
    """Return the file that a person means: by one of the names (in any case), or by its path.

    A file that bears such a name itself is meant by `./bard`.
    """
    return named_models().get(text.lower()) or Path(text)


def default_model() -> Path:
    """Return the model that is used where none is named: the demo model once it was fetched."""
    return demo_model() if demo_model().is_file() else bundled_model()
