"""Libraries of the system that Qt loads on Linux: found out by loading them, then installed."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from installer.console import Console
from installer.debian import has_apt, install_debian_packages, is_root_on_debian
from installer.errors import InstallError
from installer.steps import Step, digest_of

QT_LIBRARIES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11.so.6": "libx11-6",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libxkbcommon.so.0": "libxkbcommon0",
}
"""What Qt needs in any case, without a display too: library -> Debian package."""

X11_LIBRARIES = {
    "libX11-xcb.so.1": "libx11-xcb1",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
}
"""What a window on an X11 display needs besides."""

FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts", "~/.local/share/fonts", "~/.fonts")
FONT_PACKAGE = "fonts-dejavu-core"


def is_loadable(library: str) -> bool:
    """Return whether the system's loader finds a library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def has_fonts(folders: tuple[str, ...] = FONT_FOLDERS) -> bool:
    """Return whether any font that Qt can draw is installed."""
    for folder in folders:
        for path in Path(folder).expanduser().rglob("*"):
            if path.suffix.lower() in (".ttf", ".otf", ".ttc"):
                return True
    return False


def missing_libraries(
    libraries: Mapping[str, str], *, can_load: Callable[[str], bool] = is_loadable
) -> dict[str, str]:
    """Return those of the libraries that do not load, with their packages."""
    return {name: package for name, package in libraries.items() if not can_load(name)}


def system_libraries_step(*, wants_window: bool) -> Step:
    """Return the step that brings Qt's libraries; it has nothing to do outside Linux."""
    libraries = {**QT_LIBRARIES, **X11_LIBRARIES} if wants_window else QT_LIBRARIES
    is_linux = sys.platform.startswith("linux")

    def is_there() -> bool:
        return not is_linux or (not missing_libraries(libraries) and has_fonts())

    def work(console: Console) -> None:
        if is_linux:
            bring_libraries(libraries, console)

    return Step(
        name="system-libraries-window" if wants_window else "system-libraries",
        title="System libraries for Qt",
        digest=lambda: digest_of(sorted(libraries)),
        is_there=is_there,
        work=work,
    )


def bring_libraries(libraries: Mapping[str, str], console: Console) -> None:
    """Install what is missing as root on Debian; else name what would.

    Raises:
        InstallError: something is missing and we may not, or could not, install it.
    """
    missing = missing_libraries(libraries)
    packages = sorted(set(missing.values()))
    if not has_fonts():
        packages.append(FONT_PACKAGE)
    if not packages:
        return
    if not has_apt():
        wanted = ", ".join(sorted(missing)) or "any TrueType font"
        raise InstallError(
            f"Qt needs libraries that this system does not have: {wanted}. Install the packages of "
            "your distribution that hold them, then run the same command again."
        )
    if not is_root_on_debian():
        raise InstallError(
            "Qt needs libraries that this system does not have. One command installs them: "
            f"sudo apt-get install {' '.join(packages)}"
        )
    install_debian_packages(packages, console)
    if still := missing_libraries(libraries):
        raise InstallError(
            f"These libraries still do not load after installing their packages: "
            f"{', '.join(sorted(still))}."
        )
