"""The real driver with what a test needs besides: to touch memory and to keep the card busy."""

from __future__ import annotations

import numpy as np

from engine.memory.vmm import CudaDriver, Event

N_PASSES = 20
"""Times the card writes a region for one piece of work, so that it is still busy afterwards."""


class DeviceDriver(CudaDriver):
    """A card whose memory a test can read, write and use.

    Attributes:
        last_value: what the work launched last writes.
    """

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__(ordinal)
        flags = self._cuda.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._stream = self._call("cuStreamCreate", flags, tried="making a stream")
        self._events: list[Event] = []
        self.last_value = 0

    def read(self, address: int, n_bytes: int) -> bytes:
        host = np.empty(n_bytes, np.uint8)
        self._call("cuMemcpyDtoH", host.ctypes.data, address, n_bytes, tried="reading memory")
        return host.tobytes()

    def write(self, address: int, content: bytes) -> None:
        host = np.frombuffer(content, np.uint8)
        self._call("cuMemcpyHtoD", address, host.ctypes.data, len(host), tried="writing memory")
        self._call("cuStreamSynchronize", 0, tried="waiting for a copy")  # not for launched work

    def fill(self, address: int, value: int, n_bytes: int) -> None:
        """Set bytes, and wait until they are."""
        self._call("cuMemsetD8", address, value, n_bytes, tried="filling memory")
        self._call("cuStreamSynchronize", 0, tried="waiting for a fill")

    def launch(self, address: int, n_bytes: int) -> Event:
        """Begin writing these bytes, again and again; done once the event has passed."""
        self.last_value = (self.last_value + 1) % 256
        for _ in range(N_PASSES):
            args = (address, self.last_value, n_bytes, self._stream)
            self._call("cuMemsetD8Async", *args, tried="keeping the card busy")
        disabled = self._cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING
        event = self._call("cuEventCreate", disabled, tried="making an event")
        self._call("cuEventRecord", event, self._stream, tried="recording an event")
        self._events.append(Event(int(event)))
        return self._events[-1]

    def close(self) -> None:
        if self._is_open:
            self.synchronize()
            for event in self._events:
                self._call("cuEventDestroy", event, tried="ending an event")
            self._call("cuStreamDestroy", self._stream, tried="ending a stream")
        super().close()
