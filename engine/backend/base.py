"""What every backend offers to the loop: it turns a StepPlan into a StepResult."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.models.spec import ModelSpec
from engine.step import StepPlan, StepResult


class Backend(Protocol):
    """A model on a device, with its K/V cells and the recurrent state of its lanes.

    A row's logits depend only on the tokens its lane has read so far: not on the other lanes of the
    step, nor on how a prompt was cut into spans, nor on where chunks lie, nor on whether its state
    was kept and loaded in between.

    Attributes:
        spec: dims of the model; `spec.has_recurrent_state` says whether states must be planned.
        kv_bytes_per_cell: K, V and index keys of all layers for one position.
        state_bytes_per_lane: recurrent state of a lane, also of a snapshot; 0 if there is none.
        name: as in `--backend`.
        n_threads: worker threads, the caller's included.
    """

    spec: ModelSpec
    kv_bytes_per_cell: int
    state_bytes_per_lane: int
    name: str
    n_threads: int

    def run(self, plan: StepPlan) -> StepResult:
        """Do a step, in the order that `StepPlan` says.

        Raises:
            DeviceError: the plan cannot be run, or the device failed.
        """
        ...

    def expert_counts(self) -> npt.NDArray[np.int64] | None:
        """Return how often each expert was picked since the model was loaded, or None without any.

        Every token counts once for each expert its router picked, prompts included.

        Shapes:
            result: i64[n_layers, n_experts], a copy.
        """
        ...

    def close(self) -> None:
        """Stop the threads and let memory go. A second call does nothing."""
        ...
