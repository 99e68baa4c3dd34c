"""Logits of a sequence of ids, and what follows greedily: for comparing with other programs.

It runs the same backend and the same steps as a request does; the command line is left to
`engine.cli`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.backend.cpu import CpuBackend
from engine.config import CHUNK_CELLS, BackendConfig
from engine.errors import ContextLengthError, InvalidRequestError
from engine.gguf.reader import open_model
from engine.step import LaneId, Span


def compute_logits(
    model_path: Path | str,
    ids: npt.NDArray[np.integer],
    *,
    is_exact: bool = False,
    n_greedy: int = 0,
    span_tokens: int = 256,
    backend: str = "cpu",
) -> dict[str, npt.NDArray[np.float32] | npt.NDArray[np.int32]]:
    """Read a sequence and return what the model predicts.

    Args:
        model_path: a GGUF file.
        ids: the sequence.
        is_exact: float32 products on dequantised weights, float32 K/V.
        n_greedy: tokens to generate after it, always the most likely one.
        span_tokens: positions read in one step; any number gives the same bits.
        backend: as in `--backend`.

    Returns:
        `last_logits`: of the last position. `argmax`: the most likely next id at every position.
        `greedy`: the generated ids.

    Raises:
        ConfigError: no such backend.
        InvalidRequestError: no ids, one outside the vocabulary, or numbers that cannot be.
        ContextLengthError: more ids than the model's context.
        ModelFileError: the file cannot be read or run.

    Shapes:
        ids: int[n_tokens]; last_logits: f32[n_vocab]; argmax: i32[n_tokens]; greedy: i32[n_greedy].
    """
    config = BackendConfig(backend=backend, is_exact=is_exact)
    if ids.ndim != 1 or len(ids) == 0 or ids.dtype.kind not in "iu":
        raise InvalidRequestError(
            f"--ids must be a one-dimensional array of whole numbers with at least one id, got "
            f"{ids.dtype}{list(ids.shape)}."
        )
    if span_tokens < 1 or n_greedy < 0:
        raise InvalidRequestError(
            f"--span must be 1 or more and --greedy 0 or more, got {span_tokens} and {n_greedy}."
        )
    with open_model(model_path) as model:
        n_context = len(ids) + n_greedy
        n_chunks = -(-n_context // CHUNK_CELLS)
        device = CpuBackend(
            model,
            config,
            n_lanes=1,
            context_tokens=n_context,
            n_chunks=n_chunks,
            chunk_cells=CHUNK_CELLS,
            is_pooled=False,
        )
        try:
            if n_context > device.spec.context_tokens:
                raise ContextLengthError(
                    n_prompt_tokens=n_context, context_tokens=device.spec.context_tokens
                )
            if int(ids.min()) < 0 or int(ids.max()) >= device.spec.n_vocab:
                raise InvalidRequestError(
                    f"--ids holds {int(ids.min())} .. {int(ids.max())}, but the model knows ids "
                    f"0 .. {device.spec.n_vocab - 1}."
                )
            return _read(device, ids.astype(np.int32), n_greedy=n_greedy, span_tokens=span_tokens)
        finally:
            device.close()


def _read(
    device: CpuBackend, ids: npt.NDArray[np.int32], *, n_greedy: int, span_tokens: int
) -> dict[str, npt.NDArray[np.float32] | npt.NDArray[np.int32]]:
    lane = LaneId(0)
    argmax: list[npt.NDArray[np.int32]] = []
    for start in range(0, len(ids), span_tokens):
        part = ids[start : start + span_tokens]
        logits, best = device.read_span(Span(lane=lane, start=start, ids=part, wants_logits=True))
        argmax.append(best)
    greedy: list[int] = []
    last_logits, following = logits, int(argmax[-1][-1])
    while len(greedy) < n_greedy:
        greedy.append(following)
        if len(greedy) < n_greedy:
            token = np.array([following], np.int32)
            start = len(ids) + len(greedy) - 1
            _, best = device.read_span(Span(lane=lane, start=start, ids=token, wants_logits=True))
            following = int(best[0])
    return {
        "last_logits": last_logits,
        "argmax": np.concatenate(argmax),
        "greedy": np.array(greedy, np.int32),
    }
