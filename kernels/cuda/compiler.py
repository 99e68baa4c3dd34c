"""NVRTC: from the text of kernels to machine code for one architecture, kept on disk by content.

It needs no GPU and no driver. Machine code (cubin), never PTX: an older driver refuses the PTX of a
newer compiler. Loading and launching are left to `kernels.cuda.module`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.cuda.source import needs_cuda_headers, read_source
from kernels.errors import KernelCompileError

ARCHITECTURES = (75, 80, 86, 89, 90, 120)
"""Compute capabilities (times ten) that every kernel must compile for."""

OPTIONS = ("--std=c++17", "-default-device")
_CACHE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Unit:
    """What is compiled in one go.

    Attributes:
        stem: of the .cu file.
        kernels: C++ name of every kernel wanted from it, as `matvec<12, 1, 4, 1>`.
    """

    stem: str
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cubin:
    """Machine code of a unit.

    Attributes:
        code: the cubin.
        symbols: name in the cubin of each kernel of the unit.
        log: what the compiler said; empty for code from the cache.
        is_cached: whether it came from the cache.
    """

    code: bytes
    symbols: dict[str, str]
    log: str
    is_cached: bool


def cuda_include_dir() -> Path:
    """Find the headers of the CUDA toolkit: of the nvidia packages, or of an installed toolkit.

    Raises:
        KernelCompileError: there are none.
    """
    candidates: list[Path] = []
    packages = importlib.util.find_spec("nvidia")
    for base in (packages.submodule_search_locations or ()) if packages else ():
        candidates += [Path(base) / "cu13" / "include", Path(base) / "cuda_runtime" / "include"]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            candidates.append(Path(value) / "include")
    candidates.append(Path("/usr/local/cuda/include"))
    for path in candidates:
        if (path / "cuda_fp16.h").is_file():
            return path
    raise KernelCompileError(
        "the CUDA headers were not found (looked in "
        + ", ".join(str(path) for path in candidates)
        + "); install the package nvidia-cuda-runtime or set CUDA_HOME."
    )


class Compiler:
    """Compiles units for one architecture and remembers them on disk.

    Attributes:
        arch: compute capability times ten, as 89.
        cache_dir: folder of compiled units; None keeps nothing.
        version: of NVRTC.
    """

    def __init__(
        self, arch: int, cache_dir: Path | None, *, extra_options: tuple[str, ...] = ()
    ) -> None:
        """Open the compiler.

        Args:
            arch: compute capability times ten.
            cache_dir: made on first use.
            extra_options: more options of NVRTC.

        Raises:
            KernelCompileError: NVRTC is not installed.
        """
        self.arch = arch
        self.cache_dir = cache_dir
        try:
            from cuda.bindings import nvrtc

            status, major, minor = nvrtc.nvrtcVersion()
        except (ImportError, RuntimeError) as error:
            raise KernelCompileError(
                "the CUDA compiler is not installed; install Strata with its cuda extra "
                f"(packages cuda-bindings and nvidia-cuda-nvrtc): {error}"
            ) from error
        self._nvrtc: Any = nvrtc
        self._check(status, "asking for its version")
        self.version = f"{major}.{minor}"
        self._options = (*OPTIONS, f"--gpu-architecture=sm_{arch}", *extra_options)

    def compile(self, unit: Unit) -> Cubin:
        """Return a unit's machine code, from the cache if it is there.

        Raises:
            KernelCompileError: the compiler refused; the text holds its log.
        """
        text = read_source(unit.stem)
        path = self._cache_path(text, unit)
        if path is not None and (cached := _read_cached(path)) is not None:
            return cached
        cubin = self._build(text, unit)
        if path is not None:
            _write_cached(path, cubin)
        return cubin

    def _cache_path(self, text: str, unit: Unit) -> Path | None:
        if self.cache_dir is None:
            return None
        key = json.dumps([_CACHE_FORMAT, self.version, self._options, unit.kernels, text])
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        return self.cache_dir / f"{unit.stem}-sm{self.arch}-{digest}.cubin"

    def _build(self, text: str, unit: Unit) -> Cubin:
        nvrtc = self._nvrtc
        options = [option.encode() for option in self._options]
        if needs_cuda_headers(text):
            options.append(f"-I{cuda_include_dir()}".encode())
        status, program = nvrtc.nvrtcCreateProgram(
            text.encode(), f"{unit.stem}.cu".encode(), 0, [], []
        )
        self._check(status, "creating a program")
        try:
            for name in unit.kernels:
                (status,) = nvrtc.nvrtcAddNameExpression(program, name.encode())
                self._check(status, f"naming {name}")
            (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
            log = self._read_log(program)
            if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
                raise KernelCompileError(
                    f"{unit.stem}.cu did not compile for sm_{self.arch} with NVRTC {self.version} "
                    f"({', '.join(unit.kernels)}):\n{log}"
                )
            symbols = {}
            for name in unit.kernels:
                status, symbol = nvrtc.nvrtcGetLoweredName(program, name.encode())
                self._check(status, f"finding {name}")
                symbols[name] = symbol.decode()
            status, n_bytes = nvrtc.nvrtcGetCUBINSize(program)
            self._check(status, "sizing the machine code")
            room = _room(n_bytes)
            (status,) = nvrtc.nvrtcGetCUBIN(program, room)
            self._check(status, "reading the machine code")
            code = room[:n_bytes]
        finally:
            nvrtc.nvrtcDestroyProgram(program)
        return Cubin(code=code, symbols=symbols, log=log, is_cached=False)

    def _read_log(self, program: Any) -> str:
        status, n_bytes = self._nvrtc.nvrtcGetProgramLogSize(program)
        self._check(status, "sizing the log")
        log = _room(n_bytes)
        (status,) = self._nvrtc.nvrtcGetProgramLog(program, log)
        self._check(status, "reading the log")
        return log.rstrip(b"\0 \n").decode(errors="replace")

    def _check(self, status: Any, what: str) -> None:
        if status != self._nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise KernelCompileError(f"NVRTC failed while {what}: {status.name}.")


def _room(n_bytes: int) -> bytes:
    """Return bytes for a C function to write to; Python shares objects of fewer than two."""
    return bytes(n_bytes + 2)


def _read_cached(path: Path) -> Cubin | None:
    """Read a kept unit: a line of JSON, then the code. A damaged file counts as absent."""
    try:
        head, _, code = path.read_bytes().partition(b"\n")
        described = json.loads(head)
        if hashlib.sha256(code).hexdigest() != described["sha256"]:
            return None
        return Cubin(code=code, symbols=described["symbols"], log="", is_cached=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_cached(path: Path, cubin: Cubin) -> None:
    """Keep a unit; written aside and renamed, so that readers never see a part of it."""
    described = {"sha256": hashlib.sha256(cubin.code).hexdigest(), "symbols": cubin.symbols}
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
        file.write(json.dumps(described).encode() + b"\n" + cubin.code)
    Path(file.name).replace(path)
