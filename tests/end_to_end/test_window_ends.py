"""The real window with a real model, ended in mid-answer: what was on the screen comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strata_desktop.app import STORE_FILE
from strata_desktop.viewmodels.messages import MessageState
from strata_desktop.viewmodels.store import ConversationStore
from tests.end_to_end.window_driver import QUESTION

REPO = Path(__file__).resolve().parents[2]


def run_window(home: Path, model: Path, how: str, n_chars: int = 1) -> tuple[int, list[str]]:
    """Return how the process ended, and the texts on the screen at that moment."""
    ended = subprocess.run(
        [sys.executable, "-m", "tests.end_to_end.window_driver", str(model), how, str(n_chars)],
        cwd=REPO,
        env={**os.environ, "STRATA_HOME": str(home), "QT_QPA_PLATFORM": "offscreen"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.stdout, ended.stderr[-4000:]
    return ended.returncode, json.loads(ended.stdout.splitlines()[-1])


def check_end(home: Path, model: Path, how: str, n_chars: int = 1) -> None:
    status, shown = run_window(home, model, how, n_chars)
    assert (status == 0) is (how == "close")
    assert shown[0] == QUESTION
    status, again = run_window(home, model, "look")
    assert status == 0
    assert again[:-1] == shown[:-1]
    assert len(shown[-1]) >= n_chars
    assert again[-1].startswith(shown[-1])
    store = ConversationStore(home / STORE_FILE)
    (head,) = store.conversations()
    *_, answer = store.messages(head.id)
    store.close()
    assert answer.state is MessageState.INTERRUPTED


@pytest.mark.model
@pytest.mark.parametrize("how", ["kill", "close"])
def test_nothing_seen_is_lost(tmp_path: Path, smollm2_path: Path, how: str) -> None:
    check_end(tmp_path, smollm2_path, how, 60)
