"""Makes the pictures of the README from the running program, with the demo model at work.

    python tests/bench/screenshots.py [--theme dark] [--size 1280x800] [--scale 1] [--out FOLDER]

It starts the real window with an engine of its own and a data folder that goes away afterwards.
Nothing is pretended: the chats are answered by the model, and four of them are being written while
the picture of the memory page is taken. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strata_desktop.viewmodels.conversation import Conversation

REPO = Path(__file__).resolve().parents[2]

QUESTION = "Write a short Python function that adds two numbers, with a docstring."
LIMIT_S = 600.0

POOL_TOKENS = 32768
MAX_CONTEXT = 8192


SOURCES = ("docs/DESIGN.md", "CONTRIBUTING.md")
"""Texts of this repository that the chats are about."""


@dataclass(frozen=True)
class Talk:
    """A chat of the memory page's picture.

    Attributes:
        question: what is asked.
        first_char, n_chars: the piece of the texts that is its system prompt.
    """

    question: str
    first_char: int
    n_chars: int


TALKS = (
    Talk("What is missing in this design?", 0, 20_000),
    Talk("Explain this to a beginner.", 0, 16_000),
    Talk("Which tests come first?", 15_000, 4_000),
    Talk("Tell me a story of a lighthouse.", 0, 0),
)
"""The first two begin with the same text, so that they share a chunk."""
GO_ON = "Please go on, and give more details."
"""Said when an answer ends before the picture is taken."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    parser.add_argument("--size", default="1280x800", metavar="WxH")
    parser.add_argument("--scale", type=float, default=1.0, help="pixels for each unit")
    parser.add_argument("--out", type=Path, default=REPO / "docs" / "screenshots")
    parser.add_argument("--suffix", default="", help="put behind the names of the pictures")
    parser.add_argument("--model", type=Path, help="GGUF file (default: the demo model)")
    return parser.parse_args()


class Stage:
    """The running program, driven as a person and four clients would.

    Attributes:
        app, window, host: of `strata_desktop.app.build_app`.
    """

    def __init__(self, options: argparse.Namespace, home: Path) -> None:
        from strata_desktop.app import build_app

        width, height = (int(part) for part in options.size.split("x"))
        self.app, self.window, self.host = build_app(
            [
                str(options.model),
                "--port=0",
                f"--theme={options.theme}",
                "--batch=4",
                f"--kv-pool-tokens={POOL_TOKENS}",
                f"--max-context={MAX_CONTEXT}",
            ],
            home,
        )
        self.window.resize(width, height)
        self.window.show()
        self.host.start()
        self.wait("the engine", lambda: bool(self.host.address))
        self.wait("the model", lambda: self.status()["model"]["state"] == "ready")

    def wait(self, what: str, is_there: Callable[[], bool], *, pause_s: float = 0.1) -> None:
        """Let the window live until something is there."""
        ends_s = time.monotonic() + LIMIT_S
        while not is_there():
            if time.monotonic() > ends_s:
                raise TimeoutError(f"{what} did not come within {LIMIT_S:.0f} s")
            self.live(pause_s)

    def live(self, seconds: float) -> None:
        """Let the window live for a while."""
        ends_s = time.monotonic() + seconds
        while time.monotonic() < ends_s:
            self.app.processEvents()
            time.sleep(0.005)

    def status(self) -> dict[str, Any]:
        import httpx

        reply = httpx.get(f"{self.host.address}/v1/status", timeout=60)
        reply.raise_for_status()
        status: dict[str, Any] = reply.json()
        return status

    def ask_in_the_window(self, question: str) -> str:
        """Type a question, send it, wait for the whole answer, and return the chat's id."""
        from PySide6.QtCore import Qt
        from PySide6.QtTest import QTest

        from strata_desktop.viewmodels.messages import ChatSettings
        from strata_desktop.views.composer import Composer
        from strata_desktop.views.prompt_edit import PromptEdit

        # The same picture each time, as far as the model goes.
        self.window._parts.chat.current.set_settings(ChatSettings(temperature=0.0, max_tokens=300))
        prompt = self.window.chat_page.findChild(Composer).findChild(PromptEdit)
        self.live(1.0)
        prompt.setFocus()
        QTest.keyClicks(prompt, question)
        QTest.keyClick(prompt, Qt.Key.Key_Return)

        def is_answered() -> bool:
            requests = self.status()["engine"]["requests"]
            return bool(requests["finished"] >= 1 and not requests["running"])

        self.wait("the answer", is_answered)
        self.live(1.5)
        conversation_id: str = self.window._parts.chat.current.id
        return conversation_id

    def picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self.window.grab().save(str(path)):
            raise OSError(f"{path} cannot be written")
        print(path)


def begin(stage: Stage, talk: Talk) -> Conversation:
    """Begin a chat as the window's own page does."""
    from strata_desktop.viewmodels.messages import ChatSettings

    text = "".join((REPO / source).read_text(encoding="utf-8") for source in SOURCES)
    chat = stage.window._parts.chat
    chat.new_chat()
    system_prompt = text[talk.first_char :][: talk.n_chars]
    chat.current.set_settings(ChatSettings(system_prompt=system_prompt, seed=7))
    if not chat.current.send(talk.question):
        raise RuntimeError(f"The window did not take the question {talk.question!r}")
    return chat.current


def show_busy_memory(stage: Stage, path: Path) -> None:
    """Picture the memory page while every talk's answer is being written."""
    talks: list[Conversation] = []

    def are_written() -> bool:
        for conversation in talks:
            if conversation.messages[-1].error_text:
                raise RuntimeError(conversation.messages[-1].error_text)
            if not conversation.is_writing:
                conversation.send(GO_ON)
        sessions = stage.status()["engine"]["kv_pool"]["sessions"]
        written = {session["key"] for session in sessions if session["state"] == "writing"}
        return written >= {conversation.id for conversation in talks}

    for talk in TALKS:
        talks.append(begin(stage, talk))
        # The next one comes when this one is read, so that it finds the beginning they share.
        stage.wait(talk.question, are_written)
    stage.window.show_page("memory")
    # No mark of the keyboard's place on the map.
    stage.window.setFocus()
    # Speeds are those of the last seconds; these shall hold little reading.
    stage.live(6.0)
    stage.wait("four at once", are_written)
    stage.live(0.5)
    stage.picture(path)
    for conversation in talks:
        conversation.stop()


def main() -> None:
    options = parse_arguments()
    sys.path.insert(0, str(REPO))
    from tests.demo_model import require_model

    options.model = require_model(options.model)
    # Qt reads both when it is loaded.
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    os.environ["QT_SCALE_FACTOR"] = str(options.scale)
    with tempfile.TemporaryDirectory(prefix="strata-pictures-") as home:
        stage = Stage(options, Path(home))
        try:
            asked = stage.ask_in_the_window(QUESTION)
            show_busy_memory(stage, options.out / f"memory{options.suffix}.png")
            stage.window._parts.chat.select(asked)
            stage.live(1.0)
            stage.picture(options.out / f"chat{options.suffix}.png")
        finally:
            stage.window.end()


if __name__ == "__main__":
    main()
