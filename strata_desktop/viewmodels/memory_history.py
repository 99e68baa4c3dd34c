"""Five minutes of RAM and commit, one sample a second at most.

It keeps numbers; the curve draws them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SPAN_S = 300.0
"""How far back the curve looks."""
SAMPLE_S = 1.0
"""Shortest distance of two samples."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemorySample:
    """RAM and commit at one moment.

    Attributes:
        time_s: Unix time.
        ram_used_bytes: physical memory in use on the machine.
        commit_used_bytes: what the OS has promised.
        process_bytes: resident memory of the engine's process.
    """

    time_s: float
    ram_used_bytes: int
    commit_used_bytes: int
    process_bytes: int


class MemoryHistory:
    """A ring of samples, oldest first."""

    def __init__(self, *, span_s: float = SPAN_S, sample_s: float = SAMPLE_S) -> None:
        self._span_s = span_s
        self._sample_s = sample_s
        self._samples: deque[MemorySample] = deque()

    @property
    def samples(self) -> tuple[MemorySample, ...]:
        """All samples, oldest first."""
        return tuple(self._samples)

    def add(self, sample: MemorySample) -> bool:
        """Take a sample; False when it came too soon after the last one or from the past.

        A clock that was set back starts the curve anew.
        """
        if self._samples:
            apart_s = sample.time_s - self._samples[-1].time_s
            if apart_s < -self._sample_s:
                self._samples.clear()
            elif apart_s < self._sample_s:
                return False
        self._samples.append(sample)
        while sample.time_s - self._samples[0].time_s > self._span_s:
            self._samples.popleft()
        return True

    def nearest(self, time_s: float) -> MemorySample | None:
        """Return the sample closest in time, None when there is none."""
        return min(self._samples, key=lambda sample: abs(sample.time_s - time_s), default=None)
