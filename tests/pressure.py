"""Four long conversations on a pool that holds three: the same test for every backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.config import SchedulerConfig
from engine.errors import KvPoolFullError
from engine.loop import EngineLoop, StepRunner
from engine.memory.chunks import PoolShape
from engine.sampling import SamplingParams
from engine.scheduler.request import GenerateRequest, TextFactory
from engine.scheduler.scheduler import Scheduler
from engine.step import FinishReason, TokenEvent

PRESSED = PoolShape(
    n_lanes=4, n_parked=4, context_tokens=384, chunk_cells=64, n_chunks=6, is_pooled=True
)
N_PROMPT = 96
"""One and a half chunks each, so that three prompts take the whole pool."""
MAX_TOKENS = 90
"""The answer needs a third chunk."""
LIMIT_S = 120.0


def run_pressure(
    make_backend: Callable[[PoolShape], StepRunner],
    prompts: Sequence[Sequence[int]],
    *,
    text: TextFactory,
) -> None:
    """Put four prompts on the pool at once and compare with each of them alone.

    Args:
        make_backend: a backend for a pool.
        prompts: four of `N_PROMPT` ids, without a common start.
        text: the tokenizer's.
    """
    assert [len(prompt) for prompt in prompts] == 4 * [N_PROMPT]
    backend = make_backend(PRESSED)
    alone = [_texts(_run(backend, [prompt], text=text))[0] for prompt in prompts]
    assert len(set(alone)) == 4
    ends = _run(backend, prompts, text=text)
    finishes = [events[-1].finish for events in ends]
    assert finishes[3] is FinishReason.ERROR
    assert isinstance(ends[3][-1].error, KvPoolFullError)
    assert finishes[:3].count(FinishReason.POOL) == 1
    assert finishes[:3].count(FinishReason.LENGTH) == 2
    for finish, pressed, expected in zip(finishes[:3], _texts(ends), alone, strict=False):
        if finish is FinishReason.POOL:
            assert 0 < len(pressed) < len(expected)
            assert expected.startswith(pressed)
        else:
            assert pressed == expected


def _texts(ends: Sequence[Sequence[TokenEvent]]) -> list[str]:
    return ["".join(event.text for event in events) for events in ends]


def _run(
    backend: StepRunner, prompts: Sequence[Sequence[int]], *, text: TextFactory
) -> list[list[TokenEvent]]:
    """All events of each prompt, asked at once; afterwards every cell must be free again."""
    scheduler = Scheduler(PRESSED, SchedulerConfig(span_tokens=64), text=text, bytes_per_cell=1)
    loop = EngineLoop(scheduler, backend, is_checking=True)
    streams = [
        loop.submit(
            GenerateRequest(
                request_id=f"r{n}",
                prompt_ids=np.array(prompt, np.int32),
                sampling=SamplingParams(),
                max_tokens=MAX_TOKENS,
                ignores_end=True,
            )
        )
        for n, prompt in enumerate(prompts)
    ]
    loop.start()
    try:
        ends = [list(stream.events(timeout_s=LIMIT_S)) for stream in streams]
        held = loop.snapshot().kv_pool
        assert held.free + held.held == held.cells
        loop.forget().result(LIMIT_S)
        pool = loop.snapshot().kv_pool
        assert (pool.free, pool.sessions) == (PRESSED.cells, ())
    finally:
        loop.stop()
    return ends
