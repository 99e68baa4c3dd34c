"""A progress line on stderr, shown only where a person watches; it knows nothing of models."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

REDRAW_S = 0.1
BAR_WIDTH = 24


class ProgressLine:
    """One line that is rewritten in place and vanishes when the work is done."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty()
        self._drawn_s = 0.0
        self._is_drawn = False

    def show(self, text: str, done: int, total: int) -> None:
        """Draw how far the work is; a total of 0 means unknown."""
        now_s = time.monotonic()
        if not self._is_shown or now_s - self._drawn_s < REDRAW_S:
            return
        self._drawn_s = now_s
        self._is_drawn = True
        line = text
        if total > 0:
            share = min(max(done / total, 0.0), 1.0)
            n_full = round(share * BAR_WIDTH)
            line = f"{text} [{'#' * n_full}{'.' * (BAR_WIDTH - n_full)}] {share:4.0%}"
        width = max(20, shutil.get_terminal_size().columns - 1)
        self._stream.write("\r\x1b[K" + line[:width])
        self._stream.flush()

    def clear(self) -> None:
        """Take the line away, so that text may follow."""
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False
