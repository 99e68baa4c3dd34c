"""Loads libstrata_cpu and says clearly what to do when it is not there or not of these sources.

Building is left to `kernels.cpu.build`, the layout of a tape's records to
`kernels.cpu.records` and `kernels.cpu.layer_records`.
"""

from __future__ import annotations

import ctypes
import enum
import logging
from pathlib import Path

from kernels.cpu.build import HERE, SOURCES, find_target, source_stamp
from kernels.cpu.layer_records import LAYER_RECORDS
from kernels.cpu.records import OP_BYTES, RECORDS, Record
from kernels.errors import KernelLaunchError
from kernels.quants import QuantType

_log = logging.getLogger(__name__)

HOW_TO_BUILD = (
    "Build it with `python -m kernels.cpu.build` (needs the ziglang package: pip install ziglang), "
    "or install the project again with `pip install -e .`."
)


class Level(enum.IntEnum):
    """Which instructions the row kernels use."""

    GENERIC = 0
    AVX2 = 1
    AVX512 = 2


class QuantSupport(enum.IntEnum):
    """What the library can do with a weight format."""

    NONE = 0
    FLOATS = 1
    """Products with float32 activations, if need be of unpacked weights."""
    CODES = 2
    """Also products with activation codes, much faster."""


class CpuLibrary:
    """The native library.

    Attributes:
        path: the file.
        best_level: the most this processor can run.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        native = ctypes.CDLL(str(path))
        native.strata_detect_level.restype = ctypes.c_int32
        native.strata_stamp.restype = ctypes.c_char_p
        native.strata_op_bytes.argtypes = [ctypes.c_int32]
        native.strata_op_bytes.restype = ctypes.c_int32
        native.strata_quant_support.argtypes = [ctypes.c_int32, ctypes.c_int32]
        native.strata_quant_support.restype = ctypes.c_int32
        native.strata_code_values.argtypes = native.strata_code_floats.argtypes = [ctypes.c_int64]
        native.strata_code_values.restype = native.strata_code_floats.restype = ctypes.c_int64
        native.strata_attend_scratch.argtypes = [ctypes.c_int32] * 3
        native.strata_attend_scratch.restype = ctypes.c_int64
        native.strata_team_start.argtypes = [ctypes.c_int32, ctypes.c_int32]
        native.strata_team_start.restype = ctypes.c_void_p
        native.strata_team_stop.argtypes = [ctypes.c_void_p]
        native.strata_team_stop.restype = None
        native.strata_run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64]
        native.strata_run.restype = ctypes.c_int64
        native.strata_dequantize.argtypes = [
            ctypes.c_int32,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int64,
        ]
        native.strata_dequantize.restype = ctypes.c_int32
        self.native = native
        self.best_level = Level(native.strata_detect_level())

    @property
    def stamp(self) -> str:
        """Digest of the sources the library was made of."""
        return str(self.native.strata_stamp().decode())

    def quant_support(self, quant: QuantType, *, level: Level | None = None) -> QuantSupport:
        """Return what can be done with weights of a format."""
        used = self.best_level if level is None else level
        return QuantSupport(self.native.strata_quant_support(int(used), int(quant)))

    def code_shape(self, n_cols: int) -> tuple[int, int]:
        """Return the 16-bit codes and the floats that a row of activations is turned into."""
        native = self.native
        return int(native.strata_code_values(n_cols)), int(native.strata_code_floats(n_cols))

    def attend_scratch(self, *, n_heads: int, n_kv_heads: int, head_dim: int) -> int:
        """Return the floats of scratch that attention needs for each thread."""
        return int(self.native.strata_attend_scratch(n_heads, n_kv_heads, head_dim))


class Team:
    """Threads that run tapes; the calling thread is one of them.

    Attributes:
        library: the library they run.
        n_threads: how many, the caller included.
        level: instructions in use.
    """

    def __init__(self, library: CpuLibrary, n_threads: int, *, level: Level | None = None) -> None:
        """Start the threads.

        Args:
            library: the loaded library.
            n_threads: 1 or more, the caller included.
            level: None = the best this processor can run.

        Raises:
            KernelLaunchError: the level is beyond this processor, or no thread could be started.
        """
        self.library = library
        self.n_threads = n_threads
        self.level = library.best_level if level is None else level
        if self.level > library.best_level:
            raise KernelLaunchError(
                f"Kernels of level {self.level.name} were asked for, but this processor can only "
                f"run {library.best_level.name}."
            )
        self._handle: int | None = library.native.strata_team_start(n_threads, int(self.level))
        if not self._handle:
            raise KernelLaunchError(
                f"The system refused to start {n_threads - 1} more threads. Ask for fewer "
                "with --threads."
            )

    def run(self, tape: bytes) -> None:
        """Run every record of a tape; other Python threads go on meanwhile.

        Raises:
            KernelLaunchError: the team was stopped, or the tape has a record of unknown kind.
        """
        if self._handle is None:
            raise KernelLaunchError("The kernel threads were stopped already.")
        failed = self.library.native.strata_run(self._handle, tape, len(tape) // OP_BYTES)
        if failed < 0:
            raise KernelLaunchError("There is no memory left to run the kernels.")
        if failed:
            raise KernelLaunchError(f"Record {failed - 1} of the tape is of no known kind.")

    def close(self) -> None:
        """Stop the threads. A second call does nothing."""
        handle, self._handle = self._handle, None
        if handle is not None:
            self.library.native.strata_team_stop(handle)


def make_tape(records: list[Record]) -> bytes:
    """Join records to a tape."""
    return b"".join(bytes(record).ljust(OP_BYTES, b"\0") for record in records)


def load_library(path: Path | None = None) -> CpuLibrary:
    """Load the library and check that it is of these sources.

    Args:
        path: the file; None = the one beside this module.

    Raises:
        KernelLaunchError: it is missing, cannot be loaded, or was built from other sources; the
            text says how to build it.
    """
    file = HERE / find_target(None).file_name if path is None else path
    if not file.is_file():
        raise KernelLaunchError(f"The CPU kernels are not built: {file} is missing. {HOW_TO_BUILD}")
    try:
        library = CpuLibrary(file)
    except (OSError, AttributeError) as fault:
        raise KernelLaunchError(
            f"The CPU kernels cannot be loaded from {file}: {fault}. {HOW_TO_BUILD}"
        ) from fault
    has_sources = all((HERE / name).is_file() for name in SOURCES)
    if has_sources and library.stamp != source_stamp():
        raise KernelLaunchError(
            f"The CPU kernels in {file} were built from other sources (stamp {library.stamp}, "
            f"wanted {source_stamp()}). {HOW_TO_BUILD}"
        )
    for record in (*RECORDS, *LAYER_RECORDS):
        built = library.native.strata_op_bytes(record.KIND)
        if built != ctypes.sizeof(record):
            raise KernelLaunchError(
                f"{file} has records of {built} bytes for {record.__name__}, wanted "
                f"{ctypes.sizeof(record)}. {HOW_TO_BUILD}"
            )
    _log.debug("loaded %s, level %s", file, library.best_level.name)
    return library
