"""Which driver call each step makes, and that none of their answers is overlooked.

The bindings are played by an object that answers as told; the real ones are asked on a machine
with a card (`test_vmm_device.py`), and here for their refusal when there is no driver.
"""

from __future__ import annotations

import enum
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import DeviceError
from engine.memory.vmm import CudaDriver, DriverError, Event, Handle
from tests.conftest import REPO


class Code(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_UNKNOWN = 999


VALUES: dict[str, tuple[Any, ...]] = {
    "cuDeviceGet": (3,),
    "cuDeviceGetName": (b"NVIDIA Test Card\0\0\0",),
    "cuDeviceGetAttribute": (1,),
    "cuDevicePrimaryCtxRetain": ("context",),
    "cuMemGetAllocationGranularity": (2 << 20,),
    "cuMemAddressReserve": (0x7000,),
    "cuMemCreate": (0xABC,),
    "cuMemGetInfo": (5, 16),
}


class Bindings(SimpleNamespace):
    """Answers like `cuda.bindings.driver`; one call can be told to fail."""

    def __init__(self) -> None:
        super().__init__(
            CUresult=Code,
            CUdevice_attribute=SimpleNamespace(
                CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED="vmm"
            ),
            CUmemAllocationGranularity_flags=SimpleNamespace(
                CU_MEM_ALLOC_GRANULARITY_MINIMUM="minimum"
            ),
            CUmemLocationType=SimpleNamespace(CU_MEM_LOCATION_TYPE_DEVICE="device"),
            CUmemAllocationType=SimpleNamespace(CU_MEM_ALLOCATION_TYPE_PINNED="pinned"),
            CUmemAccess_flags=SimpleNamespace(CU_MEM_ACCESS_FLAGS_PROT_READWRITE="rw"),
            CUmemLocation=SimpleNamespace,
            CUmemAllocationProp=SimpleNamespace,
            CUmemAccessDesc=SimpleNamespace,
        )
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.failing = ""
        self.code = Code.CUDA_ERROR_UNKNOWN
        self.values = dict(VALUES)

    def __getattr__(self, name: str) -> Callable[..., tuple[Any, ...]]:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args: Any) -> tuple[Any, ...]:
            self.calls.append((name, args))
            if name == self.failing:
                return (self.code, *[None for _ in self.values.get(name, ())])
            return (Code.CUDA_SUCCESS, *self.values.get(name, ()))

        return call


def open_card() -> tuple[CudaDriver, Bindings]:
    bindings = Bindings()
    driver = CudaDriver(1, bindings=bindings)
    bindings.calls.clear()
    return driver, bindings


def test_opening_asks_for_the_card_its_context_and_its_granularity() -> None:
    bindings = Bindings()
    driver = CudaDriver(1, bindings=bindings)
    assert [name for name, _ in bindings.calls] == [
        "cuInit",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceGetAttribute",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuMemGetAllocationGranularity",
    ]
    assert bindings.calls[1] == ("cuDeviceGet", (1,))
    wanted, flag = bindings.calls[-1][1]
    assert (wanted.type, wanted.location.type, wanted.location.id) == ("pinned", "device", 1)
    assert flag == "minimum"
    assert (driver.name, driver.granularity_bytes) == ("NVIDIA Test Card", 2 << 20)


STEPS: list[tuple[str, Callable[[CudaDriver], object], tuple[Any, ...], object]] = [
    ("cuMemAddressReserve", lambda d: d.reserve(64), (64, 0, 0, 0), 0x7000),
    ("cuMemAddressFree", lambda d: d.free(0x7000, 64), (0x7000, 64), None),
    ("cuMemCreate", lambda d: d.create(64), (64, "prop", 0), 0xABC),
    ("cuMemRelease", lambda d: d.release(Handle(0xABC)), (0xABC,), None),
    ("cuMemMap", lambda d: d.map(0x7000, 64, Handle(0xABC)), (0x7000, 64, 0, 0xABC, 0), None),
    ("cuMemUnmap", lambda d: d.unmap(0x7000, 64), (0x7000, 64), None),
    ("cuMemSetAccess", lambda d: d.set_access(0x7000, 64), (0x7000, 64, "access", 1), None),
    ("cuEventSynchronize", lambda d: d.wait(Event(9)), (9,), None),
    ("cuCtxSynchronize", lambda d: d.synchronize(), (), None),
    ("cuCtxSetCurrent", lambda d: d.bind(), ("context",), None),
    ("cuDevicePrimaryCtxRelease", lambda d: d.close(), (3,), None),
]


@pytest.mark.parametrize(("name", "step", "args", "value"), STEPS, ids=[step[0] for step in STEPS])
def test_each_step_is_one_call_with_its_answer_checked(
    name: str, step: Callable[[CudaDriver], object], args: tuple[Any, ...], value: object
) -> None:
    driver, bindings = open_card()
    assert step(driver) == value
    ((called, given),) = bindings.calls
    assert called == name
    for want, had in zip(args, given, strict=True):
        if want == "prop":
            assert had.type == "pinned"
        elif want == "access":
            assert [(each.flags, each.location.id) for each in had] == [("rw", 1)]
        else:
            assert had == want

    driver, bindings = open_card()
    bindings.failing = name
    with pytest.raises(DriverError, match=rf"^{name} answered CUDA_ERROR_UNKNOWN while \w+ing"):
        step(driver)


def test_free_memory_comes_as_one_value() -> None:
    driver, bindings = open_card()
    memory = driver.card_memory()
    assert (memory.free_bytes, memory.total_bytes) == (5, 16)
    bindings.failing = "cuMemGetInfo"
    with pytest.raises(DriverError, match="cuMemGetInfo"):
        driver.card_memory()


def test_a_full_card_can_be_told_from_a_broken_one() -> None:
    driver, bindings = open_card()
    bindings.failing, bindings.code = "cuMemCreate", Code.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DriverError, match="taking 32 MiB of NVIDIA Test Card") as caught:
        driver.create(32 << 20)
    assert caught.value.is_out_of_memory
    bindings.code = Code.CUDA_ERROR_UNKNOWN
    with pytest.raises(DriverError) as caught:
        driver.create(32 << 20)
    assert not caught.value.is_out_of_memory


@pytest.mark.parametrize("failing", ["cuCtxSetCurrent", "cuMemGetAllocationGranularity"])
def test_a_failed_opening_lets_go_of_the_context(failing: str) -> None:
    bindings = Bindings()
    bindings.failing = failing
    with pytest.raises(DriverError, match=failing):
        CudaDriver(bindings=bindings)
    assert bindings.calls[-1] == ("cuDevicePrimaryCtxRelease", (3,))


def test_a_card_without_virtual_memory_is_refused_by_name() -> None:
    bindings = Bindings()
    bindings.values["cuDeviceGetAttribute"] = (0,)
    with pytest.raises(DeviceError, match=r"NVIDIA Test Card \(card 0\) has no virtual memory"):
        CudaDriver(bindings=bindings)
    assert "cuDevicePrimaryCtxRetain" not in [name for name, _ in bindings.calls]


def test_closing_twice_releases_once() -> None:
    driver, bindings = open_card()
    driver.close()
    driver.close()
    assert [name for name, _ in bindings.calls] == ["cuDevicePrimaryCtxRelease"]


def test_importing_needs_no_cuda() -> None:
    code = (
        "import sys; import engine.memory.bump, engine.memory.vmm; "
        "sys.exit(any(name.split('.')[0] in ('cuda', 'cupy') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=REPO, check=False).returncode == 0


def test_without_driver_or_packages_the_refusal_says_what_to_do() -> None:
    try:
        driver = CudaDriver()
    except DeviceError as fault:
        assert "--backend cpu" in str(fault)  # noqa: PT017
    else:
        driver.close()
        pytest.skip("this machine has a card")


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(DeviceError, match=r"pip install 'strata-desktop\[cuda\]'"):
        CudaDriver()
