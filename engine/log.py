"""Logging set-up for the programs (CLI, window); libraries only call `logging.getLogger`."""

from __future__ import annotations

import logging
import sys


def start_logging(*, is_verbose: bool = False) -> None:
    """Send the log to stderr: warnings and up, or everything from debug when verbose."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if is_verbose else logging.WARNING)
