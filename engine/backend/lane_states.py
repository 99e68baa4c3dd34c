"""Recurrent states of the lanes, and copies of them kept under a name.

Bytes of a lane's state are laid out by the model (`State` handles); which snapshots are worth their
memory is the scheduler's to decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.errors import MemoryBudgetError
from engine.ops import State
from engine.step import (
    DropState,
    LaneId,
    LoadState,
    SaveState,
    SnapshotId,
    Span,
    StateOp,
    SwapState,
)


@dataclass(frozen=True, slots=True, eq=False)
class _Snapshot:
    """A copy of a lane's state, and how many tokens it has taken in."""

    values: npt.NDArray[np.uint32]
    n_tokens: int


class LaneStates:
    """The states that kernels read and write.

    Without recurrent layers every call does nothing.

    Attributes:
        n_values: 4-byte values of a lane's state.
    """

    def __init__(self, *, n_lanes: int, n_values: int) -> None:
        """Reserve the states of all lanes, all zeros.

        Raises:
            MemoryBudgetError: the system does not promise that much memory.
        """
        self.n_values = n_values
        self._snapshots: dict[SnapshotId, _Snapshot] = {}
        self._n_tokens = [0] * n_lanes
        try:
            self._states = np.zeros((n_lanes, n_values), np.uint32)
        except MemoryError as fault:
            raise MemoryBudgetError(
                f"The system does not give {4 * n_lanes * n_values / 2**20:.0f} MiB for the "
                f"recurrent states of {n_lanes} lanes. Use a smaller --batch.",
                limit="ram",
            ) from fault

    @property
    def lane_bytes(self) -> int:
        """Bytes of a lane's state, and the distance to the next lane's."""
        return 4 * self.n_values

    @property
    def n_snapshots(self) -> int:
        """How many snapshots are kept."""
        return len(self._snapshots)

    def address(self, part: State) -> int:
        """Return where a part of lane 0's state begins."""
        if part.first + part.n_values > self.n_values:
            raise ValueError(f"{part} lies past the {self.n_values} values of a lane's state.")
        return int(self._states.ctypes.data) + 4 * part.first

    def apply(self, op: StateOp) -> None:
        """Do one state op.

        Raises:
            ValueError: it names a lane or snapshot that does not exist, or a name in use.
        """
        if not self.n_values:
            return
        match op:
            case SaveState(lane=lane, snapshot=snapshot):
                self._check_lane(lane)
                if snapshot in self._snapshots:
                    raise ValueError(f"the snapshot {snapshot} is there already.")
                copy = _Snapshot(self._states[lane].copy(), self._n_tokens[lane])
                self._snapshots[snapshot] = copy
            case LoadState(snapshot=snapshot, lane=lane):
                self._check_lane(lane)
                kept = self._snapshot(snapshot)
                self._states[lane] = kept.values
                self._n_tokens[lane] = kept.n_tokens
            case DropState(snapshot=snapshot):
                self._snapshot(snapshot)
                del self._snapshots[snapshot]
            case SwapState(lane_a=a, lane_b=b):
                self._check_lane(a)
                self._check_lane(b)
                self._states[[a, b]] = self._states[[b, a]]
                self._n_tokens[a], self._n_tokens[b] = self._n_tokens[b], self._n_tokens[a]

    def begin(self, span: Span) -> None:
        """Make a lane ready for a span: an empty state at the start of a conversation.

        Raises:
            ValueError: the lane's state stands elsewhere than where the span starts.
        """
        if not self.n_values:
            return
        if span.start == 0:
            self._states[span.lane] = 0
            self._n_tokens[span.lane] = 0
        elif self._n_tokens[span.lane] != span.start:
            raise ValueError(
                f"the span of lane {span.lane} starts at {span.start}, but the lane's recurrent "
                f"state has taken in {self._n_tokens[span.lane]} tokens."
            )

    def end(self, span: Span) -> None:
        """Note that a span was computed."""
        self._n_tokens[span.lane] = span.stop

    def _check_lane(self, lane: LaneId) -> None:
        if not 0 <= lane < len(self._n_tokens):
            raise ValueError(f"there is no lane {lane}; there are {len(self._n_tokens)}.")

    def _snapshot(self, snapshot: SnapshotId) -> _Snapshot:
        try:
            return self._snapshots[snapshot]
        except KeyError:
            raise ValueError(f"there is no snapshot {snapshot}.") from None
