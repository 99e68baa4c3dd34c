"""The calls of the CUDA driver that virtual memory needs, each answer checked.

Which address has which memory is kept by `engine.memory.virtual_range`; who may have how much is
`engine.memory.arena`'s business.

DeviceError
└── DriverError     a driver call failed: which, with what result, doing what

`cuda.bindings` is imported when a `CudaDriver` is made, never by importing this module.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NewType, Protocol

from engine.errors import DeviceError

Handle = NewType("Handle", int)
"""Physical memory as the driver names it (CUmemGenericAllocationHandle)."""

Event = NewType("Event", int)
"""A recorded CUDA event (CUevent), e.g. CuPy's `event.ptr`."""

MIB = 2**20


class DriverError(DeviceError):
    """A call of the CUDA driver failed.

    Attributes:
        call: name of the call ("cuMemCreate").
        code_name: the driver's name of the result ("CUDA_ERROR_OUT_OF_MEMORY").
        is_out_of_memory: whether the card simply has no more to give.
    """

    def __init__(self, *, call: str, code_name: str, tried: str) -> None:
        self.call = call
        self.code_name = code_name
        self.is_out_of_memory = code_name == "CUDA_ERROR_OUT_OF_MEMORY"
        super().__init__(f"{call} answered {code_name} while {tried}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class CardMemory:
    """Physical memory of the card as the driver tells it now.

    Attributes:
        free_bytes: nobody holds it.
        total_bytes: all of it.
    """

    free_bytes: int
    total_bytes: int


class Driver(Protocol):
    """What virtual memory needs of the driver; every method raises DriverError if it fails.

    Attributes:
        granularity_bytes: the smallest piece the card maps; sizes and addresses are multiples.
    """

    granularity_bytes: int

    def reserve(self, n_bytes: int) -> int:
        """Reserve addresses without memory behind them; returns the first."""

    def free(self, address: int, n_bytes: int) -> None:
        """Give a whole reservation back; nothing may be mapped in it."""

    def create(self, n_bytes: int) -> Handle:
        """Take physical memory. Its bytes are undefined."""

    def release(self, handle: Handle) -> None:
        """Give physical memory back."""

    def map(self, address: int, n_bytes: int, handle: Handle) -> None:
        """Put physical memory behind reserved addresses; no access yet."""

    def unmap(self, address: int, n_bytes: int) -> None:
        """Undo one `map`. Does not wait for kernels that still use the addresses."""

    def set_access(self, address: int, n_bytes: int) -> None:
        """Let the card read and write mapped addresses, which may span several maps."""

    def wait(self, event: Event) -> None:
        """Block until everything before the event is done."""

    def synchronize(self) -> None:
        """Block until the card has nothing left to do."""

    def card_memory(self) -> CardMemory:
        """Ask how much physical memory is free."""


class CudaDriver:
    """The driver of one card, through `cuda.bindings`, in the context CuPy uses too.

    CUDA contexts belong to threads: the thread that makes this object may use it, another one
    calls `bind` first.

    Attributes:
        granularity_bytes: 2 MiB on every card so far.
        ordinal: number of the card.
        name: what the card calls itself.
    """

    def __init__(self, ordinal: int = 0, *, bindings: Any = None) -> None:
        """Open a card.

        Args:
            ordinal: its number, in the driver's order.
            bindings: the module `cuda.bindings.driver`, or something that answers like it.

        Raises:
            DeviceError: the bindings or the driver are missing, or the card cannot do this.
            DriverError: a driver call failed.
        """
        self.ordinal = ordinal
        self._cuda = _import_bindings() if bindings is None else bindings
        try:
            self._call("cuInit", 0, tried="starting the NVIDIA driver")
        except RuntimeError as fault:  # the bindings found no driver library
            raise DeviceError(
                "No NVIDIA driver was found on this machine. Install one from NVIDIA, or run with "
                "--backend cpu."
            ) from fault
        with ExitStack() as undo:
            self._device = self._call("cuDeviceGet", ordinal, tried=f"looking for card {ordinal}")
            raw_name = self._call("cuDeviceGetName", 256, self._device, tried="asking its name")
            self.name = bytes(raw_name).split(b"\0")[0].decode(errors="replace")
            self._refuse_without_virtual_memory()
            opening = f"opening {self.name} (card {ordinal})"
            self._context = self._call("cuDevicePrimaryCtxRetain", self._device, tried=opening)
            undo.callback(self._release_context)
            self.bind()
            self._allocation = self._describe_allocation()
            self._access = self._describe_access()
            minimum = self._cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
            self.granularity_bytes = int(
                self._call(
                    "cuMemGetAllocationGranularity",
                    self._allocation,
                    minimum,
                    tried="asking for the smallest piece the card maps",
                )
            )
            undo.pop_all()
        self._is_open = True

    def bind(self) -> None:
        """Make the card's context current in the calling thread."""
        self._call("cuCtxSetCurrent", self._context, tried=f"switching to {self.name}")

    def close(self) -> None:
        """Let go of the card's context; a second call does nothing."""
        if self._is_open:
            self._is_open = False
            self._release_context()

    def reserve(self, n_bytes: int) -> int:
        """Reserve addresses; returns the first."""
        tried = f"reserving {_mib(n_bytes)} of addresses"
        return int(self._call("cuMemAddressReserve", n_bytes, 0, 0, 0, tried=tried))

    def free(self, address: int, n_bytes: int) -> None:
        """Give a whole reservation back."""
        tried = f"giving back the addresses {_span(address, n_bytes)}"
        self._call("cuMemAddressFree", address, n_bytes, tried=tried)

    def create(self, n_bytes: int) -> Handle:
        """Take physical memory of the card."""
        tried = f"taking {_mib(n_bytes)} of {self.name}"
        handle = self._call("cuMemCreate", n_bytes, self._allocation, 0, tried=tried)
        return Handle(int(handle))

    def release(self, handle: Handle) -> None:
        """Give physical memory back."""
        self._call("cuMemRelease", handle, tried=f"giving back the memory {handle:#x}")

    def map(self, address: int, n_bytes: int, handle: Handle) -> None:
        """Put physical memory behind reserved addresses."""
        tried = f"mapping {handle:#x} at {_span(address, n_bytes)}"
        self._call("cuMemMap", address, n_bytes, 0, handle, 0, tried=tried)

    def unmap(self, address: int, n_bytes: int) -> None:
        """Undo one `map`; does not wait for kernels."""
        tried = f"unmapping {_span(address, n_bytes)}"
        self._call("cuMemUnmap", address, n_bytes, tried=tried)

    def set_access(self, address: int, n_bytes: int) -> None:
        """Let the card read and write mapped addresses."""
        tried = f"allowing access to {_span(address, n_bytes)}"
        self._call("cuMemSetAccess", address, n_bytes, [self._access], 1, tried=tried)

    def wait(self, event: Event) -> None:
        """Block until everything before the event is done."""
        self._call("cuEventSynchronize", event, tried="waiting for the last user of an extent")

    def synchronize(self) -> None:
        """Block until the card has nothing left to do."""
        self._call("cuCtxSynchronize", tried=f"waiting for {self.name} to finish")

    def card_memory(self) -> CardMemory:
        """Ask how much physical memory is free."""
        free_bytes, total_bytes = self._call("cuMemGetInfo", tried="asking for free memory")
        return CardMemory(free_bytes=int(free_bytes), total_bytes=int(total_bytes))

    def _call(self, name: str, *args: Any, tried: str) -> Any:
        """Call the driver and check what it answers; returns its value, tuple or None."""
        code, *values = getattr(self._cuda, name)(*args)
        if code != self._cuda.CUresult.CUDA_SUCCESS:
            raise DriverError(call=name, code_name=code.name, tried=tried)
        if not values:
            return None
        return values[0] if len(values) == 1 else tuple(values)

    def _release_context(self) -> None:
        self._call("cuDevicePrimaryCtxRelease", self._device, tried=f"closing {self.name}")

    def _refuse_without_virtual_memory(self) -> None:
        attribute = (
            self._cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        )
        tried = "asking whether the card has virtual memory management"
        if not self._call("cuDeviceGetAttribute", attribute, self._device, tried=tried):
            raise DeviceError(
                f"{self.name} (card {self.ordinal}) has no virtual memory management in this "
                "driver mode, which the engine needs. Update the driver, or run with --backend cpu."
            )

    def _location(self) -> Any:
        location = self._cuda.CUmemLocation()
        location.type = self._cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        location.id = self.ordinal
        return location

    def _describe_allocation(self) -> Any:
        wanted = self._cuda.CUmemAllocationProp()
        wanted.type = self._cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location = self._location()
        return wanted

    def _describe_access(self) -> Any:
        access = self._cuda.CUmemAccessDesc()
        access.location = self._location()
        access.flags = self._cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        return access


def _import_bindings() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as fault:
        raise DeviceError(
            "The CUDA packages are not installed. Install them with "
            "`pip install 'strata-desktop[cuda]'`, or run with --backend cpu."
        ) from fault
    return driver


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / MIB:.0f} MiB" if n_bytes >= MIB else f"{n_bytes} bytes"


def _span(address: int, n_bytes: int) -> str:
    return f"{address:#x} ({_mib(n_bytes)})"
