"""A card for tests and measurements: context, buffers, streams, events, graphs.

The engine's memory is not here: it lives on virtual ranges of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from kernels.cuda.driver import checked, open_driver

PADDING = 64
"""Bytes that buffers have at their end beyond what was asked for."""


class Device:
    """A card with its primary context current in the calling thread, and one stream.

    Attributes:
        stream: handle of the stream.
        name: of the card.
    """

    def __init__(self, index: int = 0) -> None:
        """Open a card.

        Raises:
            KernelLaunchError: there is no driver or no such card.
        """
        self._driver = open_driver()
        driver = self._driver
        self._device = checked(driver.cuDeviceGet(index), f"opening card {index}")
        context = checked(driver.cuDevicePrimaryCtxRetain(self._device), "opening its context")
        checked(driver.cuCtxSetCurrent(context), "entering its context")
        name = checked(driver.cuDeviceGetName(256, self._device), "asking its name")
        self.name = name.rstrip(b"\0").decode()
        self._stream = checked(driver.cuStreamCreate(1), "making a stream")
        self.stream = int(self._stream)
        self._buffers: list[Buffer] = []

    def alloc(self, n_bytes: int) -> Buffer:
        """Make a buffer; it lives until `close` or its own `free`."""
        buffer = Buffer(self._driver, self._stream, n_bytes)
        self._buffers.append(buffer)
        return buffer

    def upload(self, array: npt.NDArray[Any]) -> Buffer:
        """Make a buffer with an array's bytes."""
        buffer = self.alloc(array.nbytes)
        buffer.write(array)
        return buffer

    def synchronize(self) -> None:
        """Wait for the stream."""
        checked(self._driver.cuStreamSynchronize(self._stream), "waiting for the stream")

    def capture(self, launch: Callable[[], None]) -> Graph:
        """Record what `launch` puts on the stream as a graph."""
        driver = self._driver
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        checked(driver.cuStreamBeginCapture(self._stream, mode), "beginning a capture")
        try:
            launch()
        finally:
            graph = checked(driver.cuStreamEndCapture(self._stream), "ending a capture")
        return Graph(driver, self._stream, graph)

    def elapsed_ms(self, launch: Callable[[], None]) -> float:
        """Return the time the stream spends on what `launch` puts on it."""
        driver = self._driver
        events = [checked(driver.cuEventCreate(0), "making an event") for _ in range(2)]
        checked(driver.cuEventRecord(events[0], self._stream), "recording an event")
        launch()
        checked(driver.cuEventRecord(events[1], self._stream), "recording an event")
        checked(driver.cuEventSynchronize(events[1]), "waiting for an event")
        elapsed = checked(driver.cuEventElapsedTime(events[0], events[1]), "reading events")
        for event in events:
            checked(driver.cuEventDestroy(event), "destroying an event")
        return float(elapsed)

    def free_buffers(self) -> None:
        """Wait, and give all buffers back."""
        self.synchronize()
        while self._buffers:
            self._buffers.pop().free()

    def close(self) -> None:
        """Free all buffers and leave the context."""
        self.free_buffers()
        checked(self._driver.cuStreamDestroy(self._stream), "destroying the stream")
        checked(self._driver.cuDevicePrimaryCtxRelease(self._device), "leaving the context")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Buffer:
    """Bytes on the card.

    Attributes:
        address: of the first.
        n_bytes: as asked for.
    """

    def __init__(self, driver: Any, stream: Any, n_bytes: int) -> None:
        self._driver = driver
        self._stream = stream
        self.n_bytes = n_bytes
        self.address = int(checked(driver.cuMemAlloc(n_bytes + PADDING), f"making {n_bytes} bytes"))

    def write(self, array: npt.NDArray[Any]) -> None:
        """Copy an array's bytes to the start, in the stream's order, and wait."""
        whole = np.ascontiguousarray(array)
        checked(
            self._driver.cuMemcpyHtoDAsync(
                self.address, whole.ctypes.data, whole.nbytes, self._stream
            ),
            "copying in",
        )
        checked(self._driver.cuStreamSynchronize(self._stream), "copying in")

    def read(self, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> npt.NDArray[Any]:
        """Copy the start out, after all that is on the stream."""
        array = np.empty(shape, dtype)
        checked(
            self._driver.cuMemcpyDtoHAsync(
                array.ctypes.data, self.address, array.nbytes, self._stream
            ),
            "copying out",
        )
        checked(self._driver.cuStreamSynchronize(self._stream), "copying out")
        return array

    def fill(self, byte: int) -> None:
        """Set every byte, on the stream."""
        checked(
            self._driver.cuMemsetD8Async(self.address, byte, self.n_bytes, self._stream), "filling"
        )

    def copy_from(self, other: Buffer) -> None:
        """Copy another buffer's bytes, on the stream."""
        checked(
            self._driver.cuMemcpyDtoDAsync(
                self.address, other.address, min(self.n_bytes, other.n_bytes), self._stream
            ),
            "copying",
        )

    def free(self) -> None:
        """Give the memory back; nothing may use it."""
        if self.address:
            checked(self._driver.cuMemFree(self.address), "freeing")
            self.address = 0


class Graph:
    """Recorded launches, replayed as one."""

    def __init__(self, driver: Any, stream: Any, graph: Any) -> None:
        self._driver = driver
        self._stream = stream
        self._graph = graph
        self._exec = checked(driver.cuGraphInstantiate(graph, 0), "instantiating a graph")

    def launch(self) -> None:
        """Put a replay on the stream."""
        checked(self._driver.cuGraphLaunch(self._exec, self._stream), "launching a graph")

    def close(self) -> None:
        """Destroy the graph; no replay may be running."""
        checked(self._driver.cuGraphExecDestroy(self._exec), "destroying a graph")
        checked(self._driver.cuGraphDestroy(self._graph), "destroying a graph")
