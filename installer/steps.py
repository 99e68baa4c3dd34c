"""Steps, and the stamps that say which are done: a repeat skips them, an interruption resumes.

A stamp holds the digest of everything a step was made from. A step is done when its stamp has the
digest of today and what it made is still there. What the steps do is left to other files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from installer.console import Console


@dataclass(frozen=True, kw_only=True)
class Step:
    """One thing to be done once.

    Attributes:
        name: file name of its stamp.
        title: what a person reads.
        digest: of everything the result depends on.
        is_there: whether the result still exists; must be quick.
        work: does it; may be called again after it was cut off at any point.
    """

    name: str
    title: str
    digest: Callable[[], str]
    is_there: Callable[[], bool]
    work: Callable[[Console], None]


class Stamps:
    """The folder of stamps, one small file a step."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> str | None:
        """Return the digest of the last finished run, or None."""
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            return None

    def write(self, name: str, digest: str) -> None:
        """Note that a step is finished; the file appears whole or not at all."""
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / f"{name}.part"
        part.write_text(digest, encoding="utf-8")
        os.replace(part, self._folder / name)

    def remove(self, name: str) -> None:
        """Forget a step, since its work begins anew."""
        (self._folder / name).unlink(missing_ok=True)


def run_steps(steps: Sequence[Step], stamps: Stamps, console: Console) -> int:
    """Do every step that is not done yet, in order.

    Returns:
        The number of steps that had to be worked on.

    Raises:
        InstallError: from the step that failed; those before it stay done.
    """
    n_worked = 0
    for number, step in enumerate(steps, 1):
        # Looked at only now: a step before this one may have removed what this one made.
        digest = step.digest()
        if stamps.read(step.name) == digest and step.is_there():
            continue
        console.begin(number, len(steps), step.title)
        stamps.remove(step.name)
        step.work(console)
        stamps.write(step.name, digest)
        console.done()
        n_worked += 1
    return n_worked


def digest_of(texts: Iterable[str] = (), files: Iterable[Path] = ()) -> str:
    """Return one digest of texts and of files with their names; a missing file counts as such."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(b"text\0" + text.encode() + b"\0")
    for path in files:
        digest.update(b"file\0" + path.name.encode() + b"\0")
        digest.update(path.read_bytes() if path.is_file() else b"missing")
    return digest.hexdigest()


@contextlib.contextmanager
def only_one(path: Path, console: Console) -> Iterator[None]:
    """Hold the lock of a checkout, so that two installers do not work in it at the same time.

    The system frees the lock when its holder ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as lock:
        if not _try_lock(lock.fileno()):
            console.say("Another installer works in this folder; waiting for it to finish.")
            _wait_for_lock(lock.fileno())
        yield


if sys.platform == "win32":
    import msvcrt
    import time

    def _try_lock(descriptor: int) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _wait_for_lock(descriptor: int) -> None:
        while not _try_lock(descriptor):
            time.sleep(0.5)
else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _wait_for_lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
