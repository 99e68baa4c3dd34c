"""What every backend offers to the loop: it turns a StepPlan into a StepResult."""

from __future__ import annotations

from typing import Protocol

from engine.models.spec import ModelSpec
from engine.step import StepPlan, StepResult


class Backend(Protocol):
    """A model on a device, with its K/V cells.

    A row's logits depend only on the tokens its lane has read so far: not on the other lanes of the
    step, nor on how a prompt was cut into spans, nor on where chunks lie.

    Attributes:
        spec: dims of the model.
        kv_bytes_per_cell: K and V of all layers for one position.
        name: as in `--backend`.
        n_threads: worker threads, the caller's included.
    """

    spec: ModelSpec
    kv_bytes_per_cell: int
    name: str
    n_threads: int

    def run(self, plan: StepPlan) -> StepResult:
        """Do a step: copies, then tables, then spans.

        Raises:
            DeviceError: the plan cannot be run, or the device failed.
        """
        ...

    def close(self) -> None:
        """Stop the threads and let memory go. A second call does nothing."""
        ...
