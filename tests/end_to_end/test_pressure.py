"""The pressure test with the demo model on the CPU: full pool, same texts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from engine.backend.cpu import CpuBackend
from engine.config import BackendConfig
from engine.gguf.reader import open_model
from engine.memory.chunks import PoolShape
from engine.scheduler.text import TokenizerText
from engine.tokenizer.tokenizer import Tokenizer
from tests.pressure import N_PROMPT, run_pressure

STORIES = (
    "The harbour master counted the boats twice before the storm came over the hill. ",
    "A recipe for bread begins with flour, water, salt and a good deal of patience. ",
    "In the year the comet returned, three astronomers shared one small telescope. ",
    "def area(width, height): return width * height  # the simplest of functions. ",
)


@pytest.mark.model
def test_four_conversations_on_a_pool_for_three(smollm2_path: Path) -> None:
    model = open_model(smollm2_path)
    with closing(model):
        tokenizer = Tokenizer.from_metadata(model.metadata)
        prompts = [tokenizer.encode(8 * story)[:N_PROMPT] for story in STORIES]
        backends: list[CpuBackend] = []

        def make_backend(shape: PoolShape) -> CpuBackend:
            backend = CpuBackend(
                model,
                BackendConfig(),
                n_lanes=shape.n_lanes,
                context_tokens=shape.context_tokens,
                n_chunks=shape.n_chunks,
                chunk_cells=shape.chunk_cells,
                is_pooled=shape.is_pooled,
            )
            backends.append(backend)
            return backend

        try:
            run_pressure(make_backend, prompts, text=TokenizerText(tokenizer))
        finally:
            for backend in backends:
                backend.close()
