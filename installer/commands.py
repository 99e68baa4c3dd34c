"""Runs one command of a step: all of its output into the log, a condensed line to the console."""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from installer.console import Console
from installer.errors import InstallError

KEPT_LINES = 12
"""Last lines of a failed command that are shown; the log has all of them."""


def run_logged(
    command: Sequence[str],
    console: Console,
    *,
    what: str,
    folder: Path | None = None,
    extra_environment: Mapping[str, str] | None = None,
    condense: Callable[[str], str | None] = lambda line: None,
) -> list[str]:
    """Run a command to its end.

    Args:
        command: program and arguments.
        console: told what happens.
        what: name of the command in the error text.
        folder: working folder, or None for the current one.
        extra_environment: variables set for it besides ours.
        condense: makes a short progress text of one line of output, or None to show nothing new.

    Returns:
        Every line of output.

    Raises:
        InstallError: it cannot be started, or it ended with another exit code than 0.
    """
    console.log("$ " + " ".join(command))
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8"}
    environment.update(extra_environment or {})
    try:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        raise InstallError(f"{what} cannot be started: {error}.") from error
    lines: list[str] = []
    arrivals: queue.Queue[str | None] = queue.Queue()
    reader = threading.Thread(target=_read, args=(child, arrivals), daemon=True)
    reader.start()
    try:
        while True:
            try:
                line = arrivals.get(timeout=0.5)
            except queue.Empty:
                console.tick()
                continue
            if line is None:
                break
            progress = condense(line)
            if progress is not None:
                console.note(progress)
            else:
                console.tick()
            if not line.startswith("Progress "):
                lines.append(line)
                console.log(line)
    except BaseException:
        child.terminate()
        raise
    finally:
        child.wait()
        # A child of the command may hold the pipe a little longer than the command itself.
        reader.join(timeout=5.0)
    if child.returncode != 0:
        raise InstallError(
            f"{what} ended with exit code {child.returncode}.",
            lines=tuple(deque((line for line in lines if line.strip()), maxlen=KEPT_LINES)),
        )
    return lines


def _read(child: subprocess.Popen[str], arrivals: queue.Queue[str | None]) -> None:
    assert child.stdout is not None
    with child.stdout as output:
        for line in output:
            arrivals.put(line.rstrip("\r\n"))
    arrivals.put(None)
