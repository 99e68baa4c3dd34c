"""RAM, commit and the graphics card as the operating system tells them, cheap enough to poll.

One reading takes well under a millisecond: the dashboard asks ten times a second. What the numbers
mean for a load is decided elsewhere (`engine.service`); the shape of the answer is `engine.stats`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

from engine.stats import HostMemory, VramSnapshot

COMMIT_STRICT = 2
"""`vm.overcommit_memory` value at which Linux refuses allocations beyond CommitLimit."""

_MEMINFO = Path("/proc/meminfo")
_OVERCOMMIT = Path("/proc/sys/vm/overcommit_memory")
_STATM = Path("/proc/self/statm")


def read_host_memory() -> HostMemory:
    """Read RAM, commit and this process's resident memory.

    Returns:
        The reading. Where the system keeps no account of commit (macOS) both commit figures are 0
        and `has_commit_limit` is False.
    """
    if sys.platform == "win32":
        return _read_windows()
    elif sys.platform == "linux":  # noqa: RET505 - one chain, so the type checker follows it
        return linux_memory(
            _MEMINFO.read_text(encoding="ascii"),
            overcommit_mode=int(_OVERCOMMIT.read_text(encoding="ascii")),
            process_bytes=int(_STATM.read_text(encoding="ascii").split()[1])
            * os.sysconf("SC_PAGE_SIZE"),
        )
    else:
        return _read_psutil()


def linux_memory(meminfo: str, *, overcommit_mode: int, process_bytes: int) -> HostMemory:
    """Make a reading from the text of /proc/meminfo.

    Args:
        meminfo: the file's text; figures in it are KiB.
        overcommit_mode: `vm.overcommit_memory`.
        process_bytes: resident memory of this process.

    Returns:
        The reading; memory that the kernel can take back (page cache) counts as available.

    Source: proc(5), fields MemTotal, MemAvailable, CommitLimit, Committed_AS.
    """
    kib: dict[str, int] = {}
    for line in meminfo.splitlines():
        key, _, rest = line.partition(":")
        figure = rest.split()
        if figure:
            kib[key] = int(figure[0])
    total = kib["MemTotal"] * 1024
    available = kib.get("MemAvailable", kib.get("MemFree", 0)) * 1024
    return HostMemory(
        ram_total_bytes=total,
        ram_used_bytes=total - available,
        ram_available_bytes=available,
        commit_limit_bytes=kib.get("CommitLimit", 0) * 1024,
        commit_used_bytes=kib.get("Committed_AS", 0) * 1024,
        has_commit_limit=overcommit_mode == COMMIT_STRICT,
        process_bytes=process_bytes,
    )


class PerformanceInformation(ctypes.Structure):
    """Figures of the whole machine on Windows, most of them in pages.

    Source: Windows `PERFORMANCE_INFORMATION` (psapi.h).
    """

    # c_uint32, not wintypes.DWORD: that one has 8 bytes off Windows, where tests check the layout.
    _fields_ = (
        ("cb", ctypes.c_uint32),
        ("CommitTotal", ctypes.c_size_t),
        ("CommitLimit", ctypes.c_size_t),
        ("CommitPeak", ctypes.c_size_t),
        ("PhysicalTotal", ctypes.c_size_t),
        ("PhysicalAvailable", ctypes.c_size_t),
        ("SystemCache", ctypes.c_size_t),
        ("KernelTotal", ctypes.c_size_t),
        ("KernelPaged", ctypes.c_size_t),
        ("KernelNonpaged", ctypes.c_size_t),
        ("PageSize", ctypes.c_size_t),
        ("HandleCount", ctypes.c_uint32),
        ("ProcessCount", ctypes.c_uint32),
        ("ThreadCount", ctypes.c_uint32),
    )


class ProcessMemoryCounters(ctypes.Structure):
    """Figures of one process on Windows, in bytes.

    Source: Windows `PROCESS_MEMORY_COUNTERS` (psapi.h).
    """

    _fields_ = (
        ("cb", ctypes.c_uint32),
        ("PageFaultCount", ctypes.c_uint32),
        ("PeakWorkingSetSize", ctypes.c_size_t),
        ("WorkingSetSize", ctypes.c_size_t),
        ("QuotaPeakPagedPoolUsage", ctypes.c_size_t),
        ("QuotaPagedPoolUsage", ctypes.c_size_t),
        ("QuotaPeakNonPagedPoolUsage", ctypes.c_size_t),
        ("QuotaNonPagedPoolUsage", ctypes.c_size_t),
        ("PagefileUsage", ctypes.c_size_t),
        ("PeakPagefileUsage", ctypes.c_size_t),
    )


def windows_memory(machine: PerformanceInformation, *, process_bytes: int) -> HostMemory:
    """Make a reading from what Windows answered; commit there is a hard limit."""
    page = machine.PageSize
    total = machine.PhysicalTotal * page
    available = machine.PhysicalAvailable * page
    return HostMemory(
        ram_total_bytes=total,
        ram_used_bytes=total - available,
        ram_available_bytes=available,
        commit_limit_bytes=machine.CommitLimit * page,
        commit_used_bytes=machine.CommitTotal * page,
        has_commit_limit=True,
        process_bytes=process_bytes,
    )


if sys.platform == "win32":

    def _read_windows() -> HostMemory:
        """Ask kernel32 for both structures."""
        kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
        machine = PerformanceInformation(cb=ctypes.sizeof(PerformanceInformation))
        if not kernel32.K32GetPerformanceInfo(ctypes.byref(machine), machine.cb):
            raise ctypes.WinError(ctypes.get_last_error())
        kernel32.GetCurrentProcess.restype = ctypes.c_void_p
        process = ProcessMemoryCounters(cb=ctypes.sizeof(ProcessMemoryCounters))
        if not kernel32.K32GetProcessMemoryInfo(
            ctypes.c_void_p(kernel32.GetCurrentProcess()), ctypes.byref(process), process.cb
        ):
            raise ctypes.WinError(ctypes.get_last_error())
        return windows_memory(machine, process_bytes=process.WorkingSetSize)


def _read_psutil() -> HostMemory:
    """Read RAM through psutil, for systems without an account of commit."""
    ram = psutil.virtual_memory()
    return HostMemory(
        ram_total_bytes=ram.total,
        ram_used_bytes=ram.total - ram.available,
        ram_available_bytes=ram.available,
        commit_limit_bytes=0,
        commit_used_bytes=0,
        has_commit_limit=False,
        process_bytes=psutil.Process().memory_info().rss,
    )


class VramProbe:
    """Asks the NVIDIA driver about the first card; without a driver says why there is none.

    Opening the driver library takes tens of milliseconds, so one probe is kept and read often.

    Attributes:
        reason: why the engine uses no VRAM; shown beside the card's figures.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._name = ""
        self._read_bytes: Callable[[], tuple[int, int]] | None = None
        self._close: Callable[[], None] | None = None
        self._open()

    def read(self) -> VramSnapshot:
        """Read the card's memory; a driver that stops answering becomes a reason."""
        if self._read_bytes is not None:
            import pynvml

            try:
                total, used = self._read_bytes()
            except pynvml.NVMLError as fault:
                self.reason = f"The NVIDIA driver stopped answering ({fault})."
                self._read_bytes = None
            else:
                return VramSnapshot(
                    is_present=True,
                    reason=self.reason,
                    name=self._name,
                    total_bytes=total,
                    used_bytes=used,
                )
        return VramSnapshot(
            is_present=False, reason=self.reason, name="", total_bytes=0, used_bytes=0
        )

    def close(self) -> None:
        """Let the driver library go."""
        close, self._close, self._read_bytes = self._close, None, None
        if close is not None:
            close()
            self.reason = "The probe is closed."

    def _open(self) -> None:
        import pynvml

        reasons: Mapping[int, str] = {
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
                "No NVIDIA driver is installed here; the model is computed on the CPU."
            ),
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
                "The NVIDIA driver is installed but not running; the model is computed on the CPU."
            ),
        }
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as fault:
            self.reason = reasons.get(
                fault.value,
                f"The NVIDIA driver did not answer ({fault}); the model is computed on the CPU.",
            )
            return
        self._close = pynvml.nvmlShutdown
        try:
            if pynvml.nvmlDeviceGetCount() == 0:
                self.reason = "The NVIDIA driver sees no card; the model is computed on the CPU."
                return
            card = pynvml.nvmlDeviceGetHandleByIndex(0)
            name = pynvml.nvmlDeviceGetName(card)
        except pynvml.NVMLError as fault:
            self.reason = f"The NVIDIA driver did not name a card ({fault})."
            return

        def read_bytes() -> tuple[int, int]:
            memory = pynvml.nvmlDeviceGetMemoryInfo(card)
            return int(memory.total), int(memory.used)

        self._name = name if isinstance(name, str) else name.decode("utf-8", "replace")
        self._read_bytes = read_bytes
        self.reason = "This version computes on the CPU and uses no VRAM."
