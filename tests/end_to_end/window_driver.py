"""Runs the window as a process of its own, asks it something, and ends it in mid-answer.

    python -m tests.end_to_end.window_driver MODEL (kill|close|look) [CHARACTERS]

`kill` ends the process as a crash would, `close` as a person would, once so many characters of an
answer are shown (a small model is done before many are); `look` only starts it anew.
What was on the screen at the end is printed as JSON. The data folder is STRATA_HOME.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from PySide6.QtCore import Qt, QTimer

from engine.paths import data_home
from strata_desktop.app import build_app
from strata_desktop.viewmodels.engine_state import EnginePhase

QUESTION = "Tell me a very long story about the sea."
LIMIT_MS = 120_000


def main(model: str, how: str, n_chars: str = "1") -> int:
    app, window, host = build_app([model, "--port", "0", "--max-context", "1024"], data_home())
    conversation = window.chat_page._model.current
    app.aboutToQuit.connect(window.end)
    window.show()
    QTimer.singleShot(LIMIT_MS, lambda: app.exit(3))

    def shown() -> str:
        return json.dumps([view.message.text for view in window.chat_page.transcript.views])

    if how == "look":
        print(shown(), flush=True)
        window.close()
        return 0
    state = window._parts.engine

    def ask() -> None:
        # Again when an answer was too short.
        if state.phase is EnginePhase.READY and not conversation.is_writing:
            conversation.send(QUESTION)

    def end() -> None:
        if not conversation.is_writing or len(conversation.messages[-1].text) < int(n_chars):
            return
        print(shown(), flush=True)
        if how == "kill":
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        conversation.changed.disconnect(end)
        conversation.writing_changed.disconnect(ask)
        window.close()
        app.quit()

    state.changed.connect(ask)
    conversation.writing_changed.connect(ask, Qt.ConnectionType.QueuedConnection)
    # After the view: it was connected first.
    conversation.changed.connect(end)
    host.start()
    return app.exec()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
