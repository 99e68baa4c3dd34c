"""The contract between deciding (scheduler) and computing (backend), as frozen values.

A step is planned, run and committed. This module holds what crosses those borders and the events
that come out of a commit; it leaves rules to `engine.scheduler` and arithmetic to `engine.backend`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

import numpy as np
import numpy.typing as npt

LaneId = NewType("LaneId", int)
"""Row of the running batch, 0 .. n_lanes-1."""
ChunkId = NewType("ChunkId", int)
"""Index of a K/V chunk in the pool; the trash chunk is the id one past the last real chunk."""
TokenId = NewType("TokenId", int)
SnapshotId = NewType("SnapshotId", int)
"""Name of a kept recurrent state; whoever plans picks it, and may use it again once dropped."""

Logits = npt.NDArray[np.float32]
"""f32[n_vocab] of one position."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Consecutive positions one lane computes in a step.

    Attributes:
        lane: the lane that computes.
        start: position of the first id, which is also its cell index in the lane's table.
        ids: i32[n_tokens], token ids.
        wants_logits: whether logits of the last position are needed.
    """

    lane: LaneId
    start: int
    ids: npt.NDArray[np.int32]
    wants_logits: bool

    @property
    def stop(self) -> int:
        """Position one past the last."""
        return self.start + len(self.ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class CellCopy:
    """Copy `n_cells` cells from the start of one chunk to the start of another, all layers."""

    source: ChunkId
    target: ChunkId
    n_cells: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SaveState:
    """Keep a copy of a lane's recurrent state under a name that is free; the lane goes on.

    The copy is bit for bit and knows after how many tokens it was taken. It costs
    `Backend.state_bytes_per_lane` bytes of RAM until it is dropped.
    """

    lane: LaneId
    snapshot: SnapshotId


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadState:
    """Put a kept state into a lane; the snapshot stays and may be loaded again."""

    snapshot: SnapshotId
    lane: LaneId


@dataclass(frozen=True, kw_only=True, slots=True)
class DropState:
    """Forget a kept state; its name is free again."""

    snapshot: SnapshotId


@dataclass(frozen=True, kw_only=True, slots=True)
class SwapState:
    """Exchange the states of two lanes, as their chunk tables are exchanged."""

    lane_a: LaneId
    lane_b: LaneId


StateOp = SaveState | LoadState | DropState | SwapState


@dataclass(frozen=True, kw_only=True, slots=True)
class StepPlan:
    """What the next step does, in this order: copies, table updates, state ops, spans, saves.

    K/V cells can be read from any position on; the recurrent state of a hybrid model
    (`spec.has_recurrent_state`) stands after exactly so many tokens and cannot go back. So:

    - A span that starts at 0 begins with an empty state, whatever the lane held.
    - Any other span must start where the lane's state stands: after the last span, after a
      `LoadState` where its snapshot was taken, after a `SwapState` where the other lane stood.
      Anything else is refused with a DeviceError, never computed.
    - To keep the state at some position of a prompt, a span ends there and the plan has a save.

    State ops and saves have no effect, and nothing is checked, where there is no recurrent state.

    Attributes:
        step_id: counts up by one.
        copies: cells to copy before anything is computed.
        tables: lanes whose chunk table changed since the last plan, with the whole new table
            (i32[n_table], unreserved entries name the trash chunk). Empty without a pool.
        spans: at most one a lane; decode lanes have spans of one token.
        state_ops: done one after the other before the spans.
        saves: done after the spans: states as the spans leave them.
    """

    step_id: int
    copies: tuple[CellCopy, ...] = ()
    tables: Mapping[LaneId, npt.NDArray[np.int32]] = field(default_factory=dict)
    spans: tuple[Span, ...] = ()
    state_ops: tuple[StateOp, ...] = ()
    saves: tuple[SaveState, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class StepResult:
    """What a step computed.

    Attributes:
        step_id: of the plan.
        logits: for each span that wanted them, f32[n_vocab] of its last position.
        elapsed_s: wall time of the step.
        copied_bytes: K/V bytes moved by `StepPlan.copies`.
    """

    step_id: int
    logits: Mapping[LaneId, Logits]
    elapsed_s: float
    copied_bytes: int = 0


class FinishReason(enum.Enum):
    """Why a request ended; every request ends with exactly one."""

    STOP = "stop"
    """End-of-turn token or a stop string."""
    LENGTH = "length"
    """max_tokens or the context is used up."""
    POOL = "pool"
    """The lane could not grow: reported as length with `truncated: true`."""
    CANCELLED = "cancelled"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Token counts of one request.

    Attributes:
        n_prompt_tokens: tokens of the prompt.
        n_cached_tokens: of those, how many were known already and not read again.
        n_completion_tokens: tokens generated.
        prefill_s: seconds from the first span to the first token.
        decode_s: seconds from the first to the last token.
        queued_s: seconds from submission to the first span.
    """

    n_prompt_tokens: int = 0
    n_cached_tokens: int = 0
    n_completion_tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    queued_s: float = 0.0


class EventKind(enum.Enum):
    """Kind of a `TokenEvent`."""

    PROGRESS = "progress"
    """A span of the prompt was read."""
    TOKEN = "token"
    """A token was generated; `text` may be empty while half a character is held back."""
    FINISH = "finish"
    """The request ended; the last event of every request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenEvent:
    """One thing that happened to a request.

    Attributes:
        kind: what happened.
        request_id: to whom.
        token_id: the token generated (TOKEN), else None.
        text: text that became certain with this event; a FINISH may carry held-back text.
        n_read: prompt tokens known so far, cached ones included (PROGRESS).
        finish: why it ended (FINISH), else None.
        error: the failure (FINISH with ERROR), else None. A RequestError is the request's own
            fault or a refusal; anything else is ours.
        usage: counts so far; final in FINISH.
    """

    kind: EventKind
    request_id: str
    usage: Usage
    token_id: int | None = None
    text: str = ""
    n_read: int = 0
    finish: FinishReason | None = None
    error: Exception | None = None
