"""The whole set-up of a tiny project: real environment, real pip, a folder as index."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.paths import demo_model
from installer.arguments import set_up
from installer.checkout import Checkout
from installer.console import Console
from installer.demo_model import DemoModel, demo_model_step
from installer.environment import venv_step
from installer.errors import InstallError
from installer.packages import PipProgress, extra_step, package_steps
from installer.steps import Step
from tests.installer.shelf import Shelf

CONTENT = b"GGUF and a little more"


def run_in(checkout: Checkout, code: str) -> str:
    return subprocess.run(
        [str(checkout.python), "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()


def test_set_up_from_nothing_resumes_repeats_and_rebuilds(
    checkout: Checkout,
    console: Console,
    screen: io.StringIO,
    shelf: Shelf,
    model_of: Callable[[bytes], DemoModel],
) -> None:
    def steps() -> list[Step]:
        return [
            venv_step(checkout),
            *package_steps(checkout),
            extra_step(checkout, "dev", "Test tools"),
            demo_model_step(checkout, model_of(CONTENT)),
        ]

    def shown() -> str:
        text = screen.getvalue()
        screen.seek(0)
        screen.truncate()
        return text

    # First there is a build tool, but not the package that the project depends on.
    shelf.put("tinytool")
    shelf.put("tinytest")
    with pytest.raises(InstallError, match="pip install ended") as caught:
        set_up(checkout, console, steps())
    assert any("tinydep" in line for line in caught.value.lines)
    assert "[1/5] Python environment: done" in shown()

    # The next run goes on behind the environment, and does not make it anew.
    marker = checkout.venv / "marker"
    marker.write_text("mine")
    shelf.put("tinydep")
    shelf.put_model(CONTENT)
    set_up(checkout, console, steps())
    text = shown()
    assert "[1/5]" not in text
    assert "[2/5]" not in text
    assert "[3/5] Packages and C kernels: done" in text
    assert "[5/5] Demo model: done" in text
    assert marker.exists()
    # What the compiler keeps lies in the checkout and goes with it.
    assert (checkout.root / ".cache" / "zig").is_dir()
    assert run_in(checkout, "import tinydep, tinytest, tinytool; print(tinydep.VALUE)") == "1"
    assert demo_model().read_bytes() == CONTENT

    # A repeat has nothing to do, without any index.
    for wheel in shelf.folder.iterdir():
        wheel.unlink()
    set_up(checkout, console, steps())
    assert shown() == ""

    # A changed C source is compiled again; a lost library too.
    source = checkout.root / "kernels" / "cpu" / "tiny.c"
    library = checkout.root / "kernels" / "cpu" / "libtiny.so"
    source.write_text("int tiny = 2;\n")
    set_up(checkout, console, steps())
    assert library.read_text() == "int tiny = 2;\n"
    library.unlink()
    set_up(checkout, console, steps())
    assert library.exists()
    assert shown().count("[3/5] Packages and C kernels: done") == 2

    # An environment whose Python is gone is made anew, and everything in it.
    shelf.put("tinytool")
    shelf.put("tinytest")
    shelf.put("tinydep")
    checkout.python.unlink()
    set_up(checkout, console, steps())
    assert not marker.exists()
    assert "[4/5] Test tools: done" in shown()


def test_pip_lines_become_one_short_text() -> None:
    progress = PipProgress()
    assert progress("Collecting numpy>=2.0") == "looking at numpy>=2.0"
    assert (
        progress("  Downloading PySide6_Essentials-6.11.3-cp39-abi3-linux.whl (95.2 MB)")
        == "downloading PySide6_Essentials (95.2 MB)"
    )
    assert progress("Progress 2097152 of 99824435") == (
        "downloading PySide6_Essentials 2 of 95 MiB"
    )
    assert progress("Installing collected packages: a, b, c") == "installing 3 packages"
    assert progress("  Building editable for strata-desktop: started") == "compiling the C kernels"
    assert progress("Successfully installed a-1 b-2") is None


def test_build_inputs_name_what_is_compiled(checkout: Checkout) -> None:
    names = {path.name for path in checkout.build_inputs()}
    assert {"pyproject.toml", "tiny.c"} <= names
    real = Checkout(Path(__file__).resolve().parents[2])
    assert all(path.exists() for path in real.build_inputs())
