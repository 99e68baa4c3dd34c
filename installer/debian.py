"""Debian's package tool, used only as root; elsewhere the command is named to the person."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence

from installer.commands import run_logged
from installer.console import Console
from installer.errors import InstallError

_QUIET = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}


def has_apt() -> bool:
    """Return whether this system installs packages with apt-get."""
    return os.name == "posix" and shutil.which("apt-get") is not None


def is_root_on_debian() -> bool:
    """Return whether packages can be installed here without asking anybody."""
    return has_apt() and os.geteuid() == 0


def install_debian_packages(packages: Sequence[str], console: Console) -> None:
    """Install packages, fetching the package lists only if they are too old to name them.

    Raises:
        InstallError: apt-get failed twice.
    """
    install = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    console.note("apt-get install " + " ".join(packages))
    try:
        run_logged(install, console, what="apt-get install", extra_environment=_QUIET)
    except InstallError:
        console.note("apt-get update")
        run_logged(["apt-get", "update"], console, what="apt-get update", extra_environment=_QUIET)
        console.note("apt-get install " + " ".join(packages))
        run_logged(install, console, what="apt-get install", extra_environment=_QUIET)
