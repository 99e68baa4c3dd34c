"""What a person sees while steps run: numbered lines with times, and the log file behind them.

Everything goes to stderr, so that stdout holds nothing but what the started program prints.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

HEARTBEAT_S = 20.0
"""Seconds between two signs of life where lines cannot be rewritten."""

REDRAW_S = 0.1


class Console:
    """Numbered steps on a terminal, or plain lines where there is none.

    Attributes:
        log_path: file that holds the whole output of every command.
    """

    def __init__(
        self, stream: TextIO, log_path: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.log_path = log_path
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._head = ""
        self._detail = ""
        self._began_s = 0.0
        self._drawn_s = 0.0

    def begin(self, number: int, total: int, title: str) -> None:
        """Open the line of a step."""
        self._head = f"[{number}/{total}] {title}"
        self._detail = ""
        self._began_s = self._drawn_s = self._clock()
        self.log(f"== {self._head}")
        if self._is_terminal:
            self._draw()
        else:
            self._print(f"{self._head} ...")

    def note(self, detail: str) -> None:
        """Say what the step does just now."""
        self._detail = detail
        self.tick()

    def tick(self) -> None:
        """Show that time passes; cheap enough to be called for every line of output."""
        pause_s = REDRAW_S if self._is_terminal else HEARTBEAT_S
        if self._clock() - self._drawn_s < pause_s:
            return
        self._drawn_s = self._clock()
        if self._is_terminal:
            self._draw()
        else:
            detail = f"{self._detail}, " if self._detail else ""
            self._print(f"      {detail}{self._elapsed()}")

    def done(self, result: str = "done") -> None:
        """Close the line of the step with its time."""
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
        self._print(f"{self._head}: {result} ({self._elapsed()})")
        self.log(f"== {self._head}: {result} ({self._elapsed()})")
        self._head = ""

    def fail(self, message: str, lines: tuple[str, ...] = ()) -> None:
        """Say why the work ended early, and where the whole log is."""
        if self._head and self._is_terminal:
            self._stream.write("\r\x1b[K")
        if self._head:
            self._print(f"{self._head}: failed after {self._elapsed()}")
        for line in lines:
            self._print(f"    {line}")
        self._print(message)
        if self.log_path.is_file():
            self._print(f"The whole log: {self.log_path}")
        self.log(f"== failed: {message}")

    def say(self, text: str) -> None:
        """Print one line that belongs to no step."""
        self._print(text)

    def log(self, line: str) -> None:
        """Write one line to the log file only."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"{time.strftime('%H:%M:%S')} {line}\n")

    def _elapsed(self) -> str:
        seconds = self._clock() - self._began_s
        return f"{seconds:.1f} s" if seconds < 60 else f"{seconds / 60:.1f} min"

    def _draw(self) -> None:
        text = f"{self._head} ({self._elapsed()}) {self._detail}"
        width = max(20, shutil.get_terminal_size().columns - 1)
        self._stream.write("\r\x1b[K" + text[:width])
        self._stream.flush()

    def _print(self, text: str) -> None:
        # A terminal of another encoding must not end an installation.
        encoding = self._stream.encoding or "ascii"
        self._stream.write(text.encode(encoding, "replace").decode(encoding) + "\n")
        self._stream.flush()
