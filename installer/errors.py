"""Failures of the installer that a person can act on; everything else is a fault of ours."""

from __future__ import annotations


class InstallError(Exception):
    """A step cannot be done.

    Attributes:
        lines: the last lines of the command that failed, if one did.
    """

    def __init__(self, message: str, *, lines: tuple[str, ...] = ()) -> None:
        self.lines = lines
        super().__init__(message)
