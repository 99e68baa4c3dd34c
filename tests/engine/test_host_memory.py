"""RAM, commit and VRAM readings: the parsing by known answers, the real machine by plain sense."""

from __future__ import annotations

import ctypes
import mmap

import psutil
import pytest

from engine.host_memory import (
    PerformanceInformation,
    ProcessMemoryCounters,
    VramProbe,
    linux_memory,
    read_host_memory,
    windows_memory,
)
from tests.call_count import count_calls

MEMINFO = """MemTotal:       32000 kB
MemFree:         1000 kB
MemAvailable:   20000 kB
HugePages_Total:       0
CommitLimit:    16000 kB
Committed_AS:    9000 kB
Odd line without a figure:
"""

MAX_READ_CALLS = 500
"""The dashboard reads ten times a second; about 150 calls of functions are usual."""


@pytest.mark.parametrize(("mode", "has_limit"), [(0, False), (1, False), (2, True)])
def test_linux_figures_are_bytes_and_only_strict_overcommit_is_a_limit(
    mode: int, has_limit: bool
) -> None:
    memory = linux_memory(MEMINFO, overcommit_mode=mode, process_bytes=77)
    assert memory.ram_total_bytes == 32000 * 1024
    assert memory.ram_available_bytes == 20000 * 1024
    assert memory.ram_used_bytes == 12000 * 1024
    assert memory.commit_limit_bytes == 16000 * 1024
    assert memory.commit_used_bytes == 9000 * 1024
    assert memory.process_bytes == 77
    assert memory.has_commit_limit is has_limit


def test_linux_kernel_without_memavailable_counts_free_memory() -> None:
    text = MEMINFO.replace("MemAvailable:   20000 kB\n", "")
    assert linux_memory(text, overcommit_mode=0, process_bytes=0).ram_available_bytes == 1024000


def test_windows_figures_are_pages_and_commit_is_a_limit() -> None:
    machine = PerformanceInformation(
        CommitTotal=300, CommitLimit=900, PhysicalTotal=800, PhysicalAvailable=500, PageSize=4096
    )
    memory = windows_memory(machine, process_bytes=5)
    assert memory.ram_total_bytes == 800 * 4096
    assert memory.ram_used_bytes == 300 * 4096
    assert memory.commit_limit_bytes == 900 * 4096
    assert memory.commit_used_bytes == 300 * 4096
    assert memory.has_commit_limit


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="sizes of the 64-bit layout")
def test_windows_structures_have_the_documented_sizes() -> None:
    assert ctypes.sizeof(PerformanceInformation) == 104
    assert PerformanceInformation.PageSize.offset == 80
    assert ctypes.sizeof(ProcessMemoryCounters) == 72


def test_this_machine_agrees_with_psutil() -> None:
    memory = read_host_memory()
    assert memory.ram_total_bytes == psutil.virtual_memory().total
    assert memory.ram_used_bytes + memory.ram_available_bytes == memory.ram_total_bytes
    assert 0 < memory.process_bytes < memory.ram_total_bytes
    # Other processes come and go between the two readings.
    assert memory.ram_available_bytes == pytest.approx(psutil.virtual_memory().available, rel=0.25)


def test_process_memory_follows_what_is_allocated() -> None:
    before = read_host_memory().process_bytes
    # Pages of its own: the allocator might hand out some that were resident already.
    with mmap.mmap(-1, 64 << 20) as held:
        held.write(b"\x01" * len(held))
        after = read_host_memory().process_bytes
    assert after - before > 32 << 20


def test_a_reading_is_cheap() -> None:
    read_host_memory()
    assert count_calls(read_host_memory) < MAX_READ_CALLS


def test_vram_is_a_card_or_a_sentence() -> None:
    probe = VramProbe()
    vram = probe.read()
    probe.close()
    assert vram.reason.endswith(".")
    if vram.is_present:
        assert vram.name
        assert 0 < vram.used_bytes <= vram.total_bytes
    else:
        assert (vram.name, vram.total_bytes, vram.used_bytes) == ("", 0, 0)
    closed = probe.read()
    assert not closed.is_present
    assert closed.reason.endswith(".")
