"""A card and its kernels, or a skip that says why there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.cuda.compile_all import all_units
from kernels.cuda.device import Device
from kernels.cuda.module import KernelSet, read_limits
from kernels.errors import KernelLaunchError

CACHE_DIR = Path(__file__).resolve().parents[3] / ".cache" / "cuda"
"""Compiled kernels of earlier runs; git ignores it."""


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    try:
        opened = Device()
    except KernelLaunchError as error:
        pytest.skip(f"no NVIDIA card here: {error}")
    with opened:
        yield opened


@pytest.fixture(scope="session")
def kernels(device: Device) -> Iterator[KernelSet]:
    made = KernelSet(read_limits(), CACHE_DIR)
    made.prepare(all_units(), n_threads=os.cpu_count() or 1)
    yield made
    device.synchronize()
    made.close()


@pytest.fixture(autouse=True)
def freed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Free a test's buffers at its end."""
    yield
    if "device" in request.fixturenames:
        device: Device = request.getfixturevalue("device")
        device.free_buffers()
