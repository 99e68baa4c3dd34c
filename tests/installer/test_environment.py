"""Which Python the environment is made with, and what is said when none will do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from installer import environment
from installer.checkout import Checkout
from installer.console import Console
from installer.environment import Interpreter, find_interpreter, make_venv, probe
from installer.errors import InstallError


def pretend(path: Path, version: tuple[int, int], modules: list[str]) -> Path:
    """Write a program that answers our question like a Python of that kind."""
    path.write_text(
        "#!/bin/sh\ncat <<'END'\n[[{}, {}], [{}]]\nEND\n".format(
            *version, ", ".join(f'"{name}"' for name in modules)
        )
    )
    path.chmod(0o755)
    return path


WHOLE = ["venv", "ensurepip", "ssl"]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are shell scripts")


@pytest.fixture
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that is searched for Pythons; the running one is a stand-in too."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(environment, "TRIED_VERSIONS", ((3, 93), (3, 92), (3, 91)))
    return folder


def test_the_real_python_can_be_asked() -> None:
    answer = probe([sys.executable])
    assert answer is not None
    assert answer.version == sys.version_info[:2]


def test_the_newest_that_can_make_environments_wins(bin_folder: Path) -> None:
    pretend(bin_folder / "python3.93", (3, 93), ["venv", "ssl"])
    newest = pretend(bin_folder / "python3.92", (3, 92), WHOLE)
    pretend(bin_folder / "python3.91", (3, 91), WHOLE)
    assert find_interpreter() == Interpreter(
        command=(str(newest),), version=(3, 92), can_make_venv=True
    )


def test_broken_and_old_ones_are_passed_over(bin_folder: Path) -> None:
    broken = bin_folder / "python3.93"
    broken.write_text("#!/bin/sh\necho 'command not found' >&2; exit 127\n")
    broken.chmod(0o755)
    pretend(bin_folder / "python3.92", (3, 10), WHOLE)
    last = pretend(bin_folder / "python3.91", (3, 91), WHOLE)
    assert find_interpreter().command == (str(last),)


def test_the_running_python_is_the_last_resort(bin_folder: Path) -> None:
    assert find_interpreter().version == sys.version_info[:2]


def test_a_python_without_venv_names_the_one_command(
    bin_folder: Path,
    checkout: Checkout,
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = pretend(bin_folder / "python3.93", (3, 93), ["venv", "ssl"])
    monkeypatch.setattr(environment.sys, "_base_executable", str(bare))
    monkeypatch.setattr(environment, "is_root_on_debian", lambda: False)
    with pytest.raises(InstallError, match="sudo apt-get install python3-venv"):
        make_venv(checkout, console)
    assert not checkout.venv.exists()


def test_root_on_debian_installs_the_missing_package(
    bin_folder: Path,
    checkout: Checkout,
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = pretend(bin_folder / "python3.93", (3, 93), ["venv", "ssl"])
    monkeypatch.setattr(environment.sys, "_base_executable", str(bare))
    monkeypatch.setattr(environment, "is_root_on_debian", lambda: True)
    # apt-get that fails until its lists are there, then makes the Python whole.
    apt = bin_folder / "apt-get"
    apt.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {bin_folder}/calls\n'
        f'case "$1" in update) touch {bin_folder}/lists ;;\n'
        f"install) [ -f {bin_folder}/lists ] || exit 100\n"
        f"cat > {bare} <<'END'\n#!/bin/sh\n"
        'if [ "$2" = venv ]; then shift 3; mkdir -p "$1/bin" && touch "$1/bin/python"; exit; fi\n'
        'echo \'[[3, 93], ["venv", "ensurepip", "ssl"]]\'\n'
        "END\n;; esac\n"
    )
    apt.chmod(0o755)
    make_venv(checkout, console)
    assert (bin_folder / "calls").read_text().splitlines() == [
        "install -y --no-install-recommends python3.93-venv",
        "update",
        "install -y --no-install-recommends python3.93-venv",
    ]
    assert checkout.python.exists()


def test_a_whole_environment_is_taken_as_it_is(
    checkout: Checkout, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Checkout, "python", property(lambda self: Path(sys.executable)))
    make_venv(checkout, console)
    assert not checkout.venv.exists()
    assert not console.log_path.exists()
