"""Where the program keeps its files on each system. It creates nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DEMO_MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


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
