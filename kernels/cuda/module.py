"""Kernels of one device: compiled on first use or in advance, loaded, and launched.

Compiling is `kernels.cuda.compiler`'s part, checking a launch's shapes that of each launcher.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.cuda.compiler import Compiler, Cubin, Unit
from kernels.cuda.driver import checked, open_driver
from kernels.errors import KernelLaunchError

logger = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the number of units that are ready and their total."""

Dim3 = tuple[int, int, int]
_DEFAULT_SHARED_BYTES = 48 * 1024


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a launcher needs to know of the card.

    Attributes:
        arch: compute capability times ten.
        n_multiprocessors: of the card.
        shared_bytes_per_block: with the opt-in that large launches need.
        l2_bytes: of the second-level cache.
    """

    arch: int
    n_multiprocessors: int
    shared_bytes_per_block: int
    l2_bytes: int


def read_limits(device_index: int = 0) -> DeviceLimits:
    """Ask the driver about a card.

    Raises:
        KernelLaunchError: there is no driver or no such card.
    """
    driver = open_driver()
    device = checked(driver.cuDeviceGet(device_index), f"opening card {device_index}")
    names = driver.CUdevice_attribute

    def ask(attribute: Any) -> int:
        return int(checked(driver.cuDeviceGetAttribute(attribute, device), "asking the card"))

    return DeviceLimits(
        arch=ask(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10
        + ask(names.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        n_multiprocessors=ask(names.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        shared_bytes_per_block=ask(names.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        l2_bytes=ask(names.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE),
    )


class Kernel:
    """A loaded kernel.

    Attributes:
        name: its C++ name.
    """

    def __init__(self, driver: Any, function: Any, name: str) -> None:
        self.name = name
        self._driver = driver
        self._function = function
        self._launch = driver.cuLaunchKernel
        self._allowed_shared_bytes = _DEFAULT_SHARED_BYTES

    def launch(
        self, stream: int, grid: Dim3, block: Dim3, shared_bytes: int, args: Sequence[Any]
    ) -> None:
        """Put the kernel on a stream.

        Args:
            stream: handle of the stream, 0 for the default one.
            grid: thread blocks in x, y, z.
            block: threads of a block in x, y, z.
            shared_bytes: dynamic shared memory of a block.
            args: ctypes values or structures, one a parameter; copied before this returns.

        Raises:
            KernelLaunchError: the driver refused.
        """
        if shared_bytes > self._allowed_shared_bytes:
            self._allow(shared_bytes)
        pointers = (ctypes.c_void_p * len(args))(*map(ctypes.addressof, args))
        (status,) = self._launch(
            self._function, *grid, *block, shared_bytes, stream, ctypes.addressof(pointers), 0
        )
        if int(status) != 0:
            raise KernelLaunchError(
                f"the driver refused {self.name} with grid {grid}, block {block}, {shared_bytes} "
                f"bytes of shared memory: {status.name}."
            )

    def blocks_per_multiprocessor(self, n_threads: int, shared_bytes: int) -> int:
        """Return how many blocks of that size run side by side on a multiprocessor."""
        if shared_bytes > self._allowed_shared_bytes:
            self._allow(shared_bytes)
        call = self._driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
        return int(checked(call(self._function, n_threads, shared_bytes), "asking for occupancy"))

    def _allow(self, shared_bytes: int) -> None:
        names = self._driver.CUfunction_attribute
        checked(
            self._driver.cuFuncSetAttribute(
                self._function,
                names.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                shared_bytes,
            ),
            f"allowing {self.name} {shared_bytes} bytes of shared memory",
        )
        self._allowed_shared_bytes = shared_bytes


class KernelSet:
    """The kernels of the current context's card; loaded ones stay until `close`.

    A context of the card must be current in the calling thread.

    Attributes:
        limits: of the card.
    """

    def __init__(self, limits: DeviceLimits, cache_dir: Path | None) -> None:
        """Make an empty set.

        Args:
            limits: of the card.
            cache_dir: where compiled kernels are kept; None keeps none.

        Raises:
            KernelLaunchError: there is no driver.
            KernelCompileError: there is no compiler.
        """
        self.limits = limits
        self._driver = open_driver()
        self._compiler = Compiler(limits.arch, cache_dir)
        self._kernels: dict[tuple[str, str], Kernel] = {}
        self._libraries: list[Any] = []
        self._occupancy: dict[tuple[str, int, int], int] = {}

    def kernel(self, stem: str, name: str) -> Kernel:
        """Return a kernel, compiling its unit with nothing else if it was not prepared.

        Raises:
            KernelCompileError: it does not compile.
            KernelLaunchError: it cannot be loaded.
        """
        kernel = self._kernels.get((stem, name))
        if kernel is None:
            unit = Unit(stem, (name,))
            self._load(unit, self._compiler.compile(unit))
            kernel = self._kernels[stem, name]
        return kernel

    def prepare(
        self, units: Iterable[Unit], *, n_threads: int = 4, on_progress: Progress | None = None
    ) -> None:
        """Compile and load units side by side; those already loaded are left out.

        Raises:
            KernelCompileError: one does not compile.
            KernelLaunchError: one cannot be loaded.
        """
        wanted = []
        for unit in dict.fromkeys(units):
            missing = tuple(name for name in unit.kernels if (unit.stem, name) not in self._kernels)
            if missing:
                wanted.append(Unit(unit.stem, missing))
        if on_progress is not None:
            on_progress(0, len(wanted))
        with ThreadPoolExecutor(n_threads) as pool:
            futures = {pool.submit(self._compiler.compile, unit): unit for unit in wanted}
            for n_ready, future in enumerate(as_completed(futures), start=1):
                self._load(futures[future], future.result())
                if on_progress is not None:
                    on_progress(n_ready, len(wanted))

    def resident_blocks(self, kernel: Kernel, n_threads: int, shared_bytes: int) -> int:
        """Return how many blocks of that size the whole card runs side by side."""
        key = (kernel.name, n_threads, shared_bytes)
        if key not in self._occupancy:
            self._occupancy[key] = max(1, kernel.blocks_per_multiprocessor(n_threads, shared_bytes))
        return self._occupancy[key] * self.limits.n_multiprocessors

    def close(self) -> None:
        """Unload all kernels; none may be running."""
        self._kernels.clear()
        while self._libraries:
            checked(self._driver.cuLibraryUnload(self._libraries.pop()), "unloading kernels")

    def _load(self, unit: Unit, cubin: Cubin) -> None:
        driver = self._driver
        library = checked(
            driver.cuLibraryLoadData(cubin.code, [], [], 0, [], [], 0),
            f"loading {unit.stem} for sm_{self.limits.arch}",
        )
        self._libraries.append(library)
        for name, symbol in cubin.symbols.items():
            handle = checked(driver.cuLibraryGetKernel(library, symbol.encode()), f"finding {name}")
            function = checked(driver.cuKernelGetFunction(handle), f"loading {name}")
            self._kernels[unit.stem, name] = Kernel(driver, function, name)
        logger.debug("loaded %s (%s), cached: %s", unit.stem, unit.kernels, cubin.is_cached)
