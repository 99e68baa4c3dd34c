"""Where tests and benches find the demo model."""

from __future__ import annotations

import sys
from pathlib import Path

from engine.paths import DEMO_MODEL_FILE, demo_model

REPO = Path(__file__).resolve().parent.parent


def find_demo_model() -> Path | None:
    """Where the installer put it, else a copy in the checkout's `local` folder; None = not there.

    It follows `STRATA_HOME`: ask before that is set to a folder of one's own.
    """
    known = (demo_model(), REPO / "local" / "models" / DEMO_MODEL_FILE)
    return next((path for path in known if path.is_file()), None)


def require_model(given: Path | None) -> Path:
    """Return the model a bench was given, else the demo model; end the program without one."""
    path = given or find_demo_model()
    if path is None or not path.is_file():
        sys.exit(
            f"{given} is not there."
            if given
            else "The demo model is not there; `python -m installer run` fetches it."
        )
    return path
