"""Makes the pictures of the README from the running program, with the demo model at work.

    python tests/bench/screenshots.py [--theme dark] [--size 1280x800] [--scale 1] [--out FOLDER]

It starts the real window with an engine of its own and a data folder that goes away afterwards.
Nothing is pretended: the chat is answered by the model, and the four sessions of the memory page
are requests over HTTP that are being written while the picture is taken. Takes about two minutes.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]

QUESTION = "Write a short Python function that adds two numbers, with a docstring."
LIMIT_S = 600.0

POOL_TOKENS = 32768
MAX_CONTEXT = 8192


SOURCES = ("docs/DESIGN.md", "CONTRIBUTING.md")
"""Texts of this repository that the visitors ask about."""


@dataclass(frozen=True)
class Visitor:
    """A client whose conversation is shown.

    Attributes:
        name: what it calls the conversation.
        first_char, n_chars: the piece of the texts it sends.
    """

    name: str
    first_char: int
    n_chars: int


VISITORS = (
    Visitor("editor: review", 0, 21_000),
    Visitor("editor: summary", 0, 17_000),
    Visitor("agent: tests", 15_000, 4_500),
    Visitor("phone", 19_000, 900),
)
"""The first two send the same beginning, so that they share a chunk."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    parser.add_argument("--size", default="1280x800", metavar="WxH")
    parser.add_argument("--scale", type=float, default=1.0, help="pixels for each unit")
    parser.add_argument("--out", type=Path, default=REPO / "docs" / "screenshots")
    parser.add_argument("--suffix", default="", help="put behind the names of the pictures")
    parser.add_argument("--model", type=Path, help="GGUF file (default: the demo model)")
    return parser.parse_args()


def find_model(given: Path | None) -> Path:
    from engine.paths import DEMO_MODEL_FILE, demo_model

    for path in (given, demo_model(), REPO / "local" / "models" / DEMO_MODEL_FILE):
        if path is not None and path.is_file():
            return path
    sys.exit("The demo model is not there; `python -m installer run` fetches it.")


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
                str(find_model(options.model)),
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

    def ask_in_the_window(self, question: str) -> None:
        """Type a question, send it, and wait for the whole answer."""
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

    def picture(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self.window.grab().save(str(path)):
            raise OSError(f"{path} cannot be written")
        print(path)


class Client(threading.Thread):
    """One visitor's request; it is written until it is told to end."""

    def __init__(self, address: str, visitor: Visitor) -> None:
        super().__init__(name=visitor.name, daemon=True)
        self.error: Exception | None = None
        self._address = address
        self._visitor = visitor
        self._is_ending = threading.Event()

    def run(self) -> None:
        import httpx

        text = "".join((REPO / source).read_text(encoding="utf-8") for source in SOURCES)
        text = text[self._visitor.first_char :][: self._visitor.n_chars]
        body = {
            "messages": [{"role": "user", "content": f"{text}\n\nWhat is this text about?"}],
            "prompt_cache_key": self._visitor.name,
            "stream": True,
            "ignore_eos": True,
            "seed": 7,
        }
        address = f"{self._address}/v1/chat/completions"
        try:
            with httpx.stream("POST", address, json=body, timeout=LIMIT_S) as reply:
                if reply.status_code != 200:
                    raise RuntimeError(reply.read().decode())
                for _ in reply.iter_lines():
                    if self._is_ending.is_set():
                        return
        except (httpx.HTTPError, RuntimeError) as error:
            self.error = error

    def end(self) -> None:
        self._is_ending.set()


def show_busy_memory(stage: Stage, path: Path) -> None:
    """Picture the memory page while every visitor's answer is being written."""
    stage.window.show_page("memory")
    stage.live(0.5)
    clients = [Client(stage.host.address, visitor) for visitor in VISITORS]

    def sessions_in(*states: str) -> set[str]:
        for client in clients:
            if client.error is not None:
                raise client.error
        sessions = stage.status()["engine"]["kv_pool"]["sessions"]
        return {session["key"] for session in sessions if session["state"] in states}

    for client, visitor in zip(clients, VISITORS, strict=True):
        client.start()
        # The next one comes when this one is read, so that it finds the beginning they share.
        stage.wait(visitor.name, lambda name=visitor.name: name in sessions_in("writing"))
    names = {visitor.name for visitor in VISITORS}
    stage.wait("four at once", lambda: sessions_in("writing") >= names)
    # Speeds are those of the last seconds; these shall hold no reading.
    stage.live(8.0)
    stage.picture(path)
    for client in clients:
        client.end()
    for client in clients:
        client.join(30)


def main() -> None:
    options = parse_arguments()
    # Qt reads both when it is loaded.
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    os.environ["QT_SCALE_FACTOR"] = str(options.scale)
    with tempfile.TemporaryDirectory(prefix="strata-pictures-") as home:
        stage = Stage(options, Path(home))
        try:
            stage.ask_in_the_window(QUESTION)
            stage.picture(options.out / f"chat{options.suffix}.png")
            show_busy_memory(stage, options.out / f"memory{options.suffix}.png")
        finally:
            stage.window.end()


if __name__ == "__main__":
    main()
