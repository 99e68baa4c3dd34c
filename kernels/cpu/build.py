"""Builds libstrata_cpu out of the C files beside it; needs the ziglang package and no compiler.

`python -m kernels.cpu.build` builds for this machine, into this folder. Installation calls
`build_library` through `installer/build_hook.py`. Loading is left to `kernels.cpu.library`.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernels.errors import KernelCompileError

HERE = Path(__file__).resolve().parent
SOURCES = (
    "attention.c",
    "cpuid.c",
    "dequant.c",
    "gates.c",
    "layers_avx2.c",
    "layers_avx512.c",
    "layers_generic.c",
    "matmul.c",
    "ngram.c",
    "ops.c",
    "picks.c",
    "recurrent.c",
    "rows_avx2.c",
    "rows_avx512.c",
    "rows_generic.c",
    "sparse.c",
    "team.c",
)
HEADERS = (
    "attention.h",
    "codes.h",
    "formats.h",
    "internal.h",
    "layers.h",
    "layers_internal.h",
    "rows.h",
    "strata.h",
    "strata_layers.h",
    "unpack_flat.h",
    "unpack_iq.h",
    "unpack_k.h",
    "values.h",
    "../include/blocks.h",
    "../include/grids.h",
)
FLAGS = (
    "-std=c11",
    "-O3",
    "-ffp-contract=off",  # a sum is rounded as it is written, whatever is inlined where
    "-fno-sanitize=all",
    "-Wall",
    "-Wextra",
    "-Wno-psabi",
    "-Wno-parentheses",
    "-shared",
    "-fvisibility=hidden",
    "-s",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A system the library can be built for.

    Attributes:
        triple: what the compiler calls it.
        file_name: of the library.
        wheel_tag: platform part of a wheel's name.
    """

    triple: str
    file_name: str
    wheel_tag: str


TARGETS = {
    "linux-x86_64": Target(
        triple="x86_64-linux-gnu.2.17",
        file_name="libstrata_cpu.so",
        wheel_tag="manylinux_2_17_x86_64.manylinux2014_x86_64",
    ),
    "linux-aarch64": Target(
        triple="aarch64-linux-gnu.2.17",
        file_name="libstrata_cpu.so",
        wheel_tag="manylinux_2_17_aarch64.manylinux2014_aarch64",
    ),
    "windows-x86_64": Target(
        triple="x86_64-windows-gnu", file_name="strata_cpu.dll", wheel_tag="win_amd64"
    ),
    "macos-arm64": Target(
        triple="aarch64-macos.11.0",
        file_name="libstrata_cpu.dylib",
        wheel_tag="macosx_11_0_arm64",
    ),
    "macos-x86_64": Target(
        triple="x86_64-macos.11.0",
        file_name="libstrata_cpu.dylib",
        wheel_tag="macosx_11_0_x86_64",
    ),
}
"""By the names that STRATA_BUILD_TARGET takes."""

_SYSTEMS = {"linux": "linux", "win32": "windows", "darwin": "macos"}
_MACHINES = {"amd64": "x86_64", "x86_64": "x86_64", "aarch64": "aarch64", "arm64": "arm64"}


def host_target() -> str:
    """Name the target of this machine.

    Raises:
        KernelCompileError: the kernels are not made for this system.
    """
    system = _SYSTEMS.get(sys.platform, sys.platform)
    machine = _MACHINES.get(platform.machine().lower(), platform.machine().lower())
    if (system, machine) == ("linux", "arm64"):
        machine = "aarch64"
    return _known(f"{system}-{machine}")


def find_target(name: str | None) -> Target:
    """Return the target called `name`, or this machine's for None.

    Raises:
        KernelCompileError: there is no such target.
    """
    return TARGETS[host_target() if name is None else _known(name)]


def source_stamp() -> str:
    """Return a short digest of all C sources and flags; the library carries that of its own."""
    digest = hashlib.sha256("\n".join(FLAGS).encode())
    for name in (*SOURCES, *HEADERS):
        text = (HERE / name).read_bytes().replace(b"\r\n", b"\n")
        digest.update(name.encode() + b"\0" + text + b"\0")
    return digest.hexdigest()[:16]


def build_library(out_dir: Path, target: str | None = None) -> Path:
    """Compile the kernels.

    Args:
        out_dir: folder the library is put into; it is created if missing.
        target: a key of `TARGETS`; None = this machine.

    Returns:
        The library's path. It appears whole or not at all.

    Raises:
        KernelCompileError: unknown target, ziglang is missing, or the compiler refused.
    """
    chosen = find_target(target)
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out_dir, prefix=".build-") as folder:
        made = Path(folder) / chosen.file_name
        command = [
            sys.executable,
            "-m",
            "ziglang",
            "cc",
            "-target",
            chosen.triple,
            *FLAGS,
            *(() if chosen.file_name.endswith(".dll") else ("-fPIC",)),
            f'-DSTRATA_STAMP="{source_stamp()}"',
            "-o",
            str(made),
            *(str(HERE / name) for name in SOURCES),
            *(("-lpthread", "-lm") if "linux" in chosen.triple else ()),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise KernelCompileError(
                f"The CPU kernels could not be compiled for {chosen.triple} (exit status "
                f"{done.returncode}). If ziglang is missing, install it: pip install ziglang\n"
                f"{done.stderr.strip()}"
            )
        return made.replace(out_dir / chosen.file_name)


def _known(name: str) -> str:
    if name not in TARGETS:
        raise KernelCompileError(
            f"No kernels can be built for {name!r}; known: {', '.join(TARGETS)}."
        )
    return name


if __name__ == "__main__":
    sys.stdout.write(f"{build_library(HERE, sys.argv[1] if len(sys.argv) > 1 else None)}\n")
