"""A backend without a model, for tests of everything above the arithmetic.

It keeps the token id of every cell in chunk storage and makes the logits of a position from a hash
of ALL cells 0..p of the lane, read back through the chunk tables. So a wrong table, a missing copy
or an overwritten cell changes the text, as it would with a model. The recurrent variant also rolls
a hash over the tokens its lane has taken in, as a state that cannot go back.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import DeviceError
from engine.memory.chunks import PoolShape
from engine.step import (
    DropState,
    LaneId,
    LoadState,
    Logits,
    SaveState,
    SnapshotId,
    Span,
    StateOp,
    StepPlan,
    StepResult,
    SwapState,
)

EMPTY = -1
"""Id in cells never written."""


@dataclass(frozen=True)
class ScriptedSpec:
    """The part of a model's spec that others look at."""

    n_vocab: int = 64
    n_layers: int = 1
    context_tokens: int = 256
    architecture: str = "scripted"
    has_recurrent_state: bool = False


@dataclass(frozen=True)
class RollingState:
    """A recurrent state: what it has taken in as a hash, and how many tokens that were."""

    digest: bytes = b""
    n_tokens: int = 0

    def after(self, ids: npt.NDArray[np.int32]) -> RollingState:
        """The state after some more tokens, the same however they are cut into spans."""
        digest = self.digest
        for one in ids.tolist():
            digest = hashlib.blake2b(digest + one.to_bytes(4, "little"), digest_size=16).digest()
        return RollingState(digest, self.n_tokens + len(ids))


class ScriptedBackend:
    """Runs step plans over ids instead of K/V.

    Args:
        spec: anything with `n_vocab`.
        shape: sizes of the storage.
        delay_s: time each step takes at least.
        next_id: what a lane says after the ids it has read back; None = drawn from their hash.
        before_step: called with every plan before it is run (a gate, or a fault to raise).

    Attributes:
        snapshots: recurrent states kept now, by name.
        most_snapshots: kept at any time.
    """

    name = "scripted"
    n_threads = 1

    def __init__(
        self,
        spec: Any,
        *,
        shape: PoolShape,
        delay_s: float = 0.0,
        next_id: Callable[[npt.NDArray[np.int32]], int] | None = None,
        before_step: Callable[[StepPlan], None] | None = None,
        kv_bytes_per_cell: int = 4,
        state_bytes_per_lane: int = 100,
    ) -> None:
        self.spec = spec
        self.shape = shape
        self.kv_bytes_per_cell = kv_bytes_per_cell
        self.has_state = getattr(spec, "has_recurrent_state", False)
        self.state_bytes_per_lane = state_bytes_per_lane if self.has_state else 0
        self.states = [RollingState()] * shape.n_lanes
        self.snapshots: dict[SnapshotId, RollingState] = {}
        self.most_snapshots = 0
        self.plans: list[StepPlan] = []
        self.is_closed = False
        self._delay_s = delay_s
        self._next_id = next_id
        self._before_step = before_step
        self._cells = np.full((shape.n_chunks + 1, shape.chunk_cells), EMPTY, np.int32)
        if shape.is_pooled:
            self._tables = np.full((shape.n_lanes, shape.n_table), shape.trash, np.int32)
        else:
            self._tables = np.arange(shape.n_chunks, dtype=np.int32).reshape(shape.n_lanes, -1)

    def run(self, plan: StepPlan) -> StepResult:
        """Copy, update tables, write every span, then read back and answer."""
        if self.is_closed:
            raise RuntimeError("the scripted backend is closed")
        begin = time.perf_counter()
        if self._before_step is not None:
            self._before_step(plan)
        self.plans.append(plan)
        for copy in plan.copies:
            self._cells[copy.target, : copy.n_cells] = self._cells[copy.source, : copy.n_cells]
        if plan.tables and not self.shape.is_pooled:
            raise ValueError(f"step {plan.step_id} has tables, but there is no pool")
        for lane, table in plan.tables.items():
            self._tables[lane] = table
        if self.has_state:
            for op in plan.state_ops:
                self._apply(op)
        logits: dict[LaneId, Logits] = {}
        for span in plan.spans:
            self._write(span.lane, span.start, span.ids)
            if self.has_state:
                self._take_in(span)
        for span in plan.spans:
            if span.wants_logits:
                digest = self.states[span.lane].digest if self.has_state else b""
                logits[span.lane] = self._logits(self.read(span.lane, span.stop), digest)
        if self.has_state:
            for save in plan.saves:
                self._apply(save)
        if self._delay_s:
            time.sleep(self._delay_s)
        return StepResult(
            step_id=plan.step_id,
            logits=logits,
            elapsed_s=time.perf_counter() - begin,
            copied_bytes=sum(copy.n_cells for copy in plan.copies) * self.kv_bytes_per_cell,
        )

    def expert_counts(self) -> None:
        """It has no experts."""

    def close(self) -> None:
        """Take no more plans."""
        self.is_closed = True

    def read(self, lane: int, n_cells: int) -> npt.NDArray[np.int32]:
        """The ids of the lane's first cells, read through its table."""
        return self._cells[self._tables[lane]].reshape(-1)[:n_cells]

    def _write(self, lane: int, start: int, ids: npt.NDArray[np.int32]) -> None:
        positions = np.arange(start, start + len(ids))
        chunks = self._tables[lane][positions // self.shape.chunk_cells]
        self._cells[chunks, positions % self.shape.chunk_cells] = ids

    def _apply(self, op: StateOp) -> None:
        match op:
            case SaveState(lane=lane, snapshot=name):
                if name in self.snapshots:
                    raise DeviceError(f"snapshot {name} is there already")
                self.snapshots[name] = self.states[lane]
            case LoadState(snapshot=name, lane=lane):
                self.states[lane] = self.snapshots[name]
            case DropState(snapshot=name):
                del self.snapshots[name]
            case SwapState(lane_a=a, lane_b=b):
                self.states[a], self.states[b] = self.states[b], self.states[a]
        self.most_snapshots = max(self.most_snapshots, len(self.snapshots))

    def _take_in(self, span: Span) -> None:
        state = RollingState() if span.start == 0 else self.states[span.lane]
        if state.n_tokens != span.start:
            raise DeviceError(f"lane {span.lane} stands at {state.n_tokens}, not at {span.start}")
        self.states[span.lane] = state.after(span.ids)

    def _logits(self, ids: npt.NDArray[np.int32], state: bytes) -> Logits:
        n_vocab = int(self.spec.n_vocab)
        if self._next_id is not None:
            logits = np.zeros(n_vocab, np.float32)
            logits[self._next_id(ids)] = 20.0
            return logits
        digest = hashlib.blake2b(ids.tobytes() + state, digest_size=8).digest()
        draw = np.random.default_rng(int.from_bytes(digest, "little"))
        return draw.standard_normal(n_vocab, np.float32)


END_ID = 0
"""The token that ends an answer of `LetterTokenizer`."""

LETTERS = "".join(chr(code) for code in range(0x41, 0x41 + 64))
"""Text of the ids 0..63, one character each."""


class LetterTokenizer:
    """One character a token: enough of a tokenizer for the real `TextAssembler`."""

    end_ids = frozenset({END_ID})
    adds_space_prefix = False

    def token_bytes(self, token_id: int, *, keep_special: bool = False) -> bytes:
        return LETTERS[token_id % len(LETTERS)].encode()
