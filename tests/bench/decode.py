"""Measures tokens a second of a model on this machine: prompt reading and generating.

    python tests/bench/decode.py [MODEL] [--threads 1 2] [--prompt 512] [--tokens 64] [--level avx2]

It runs steps as the engine does, without a tokenizer: ids are random, logits are fetched each step.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO))

from engine.backend.cpu import CpuBackend  # noqa: E402
from engine.config import BackendConfig  # noqa: E402
from engine.gguf.reader import open_model  # noqa: E402
from engine.step import LaneId, Span, StepPlan  # noqa: E402
from kernels.cpu.library import Level  # noqa: E402
from tests.demo_model import find_demo_model  # noqa: E402


def measure(path: Path, n_threads: int, *, args: argparse.Namespace) -> None:
    rng = np.random.default_rng(7)
    n_context = args.prompt + args.tokens
    with open_model(path) as model:
        backend = CpuBackend(
            model,
            BackendConfig(n_threads=n_threads, is_exact=args.exact),
            n_lanes=args.lanes,
            context_tokens=n_context,
            n_chunks=args.lanes,
            chunk_cells=-(-n_context // 4) * 4,
            is_pooled=False,
            level=None if args.level is None else Level[args.level.upper()],
        )
        ids = rng.integers(0, backend.spec.n_vocab, (args.lanes, n_context), dtype=np.int32)
        step_id = 0

        def step(start: int, stop: int, *, wants_logits: bool) -> None:
            nonlocal step_id
            spans = tuple(
                Span(
                    lane=LaneId(lane),
                    start=start,
                    ids=ids[lane, start:stop],
                    wants_logits=wants_logits,
                )
                for lane in range(args.lanes)
            )
            backend.run(StepPlan(step_id=step_id, spans=spans))
            step_id += 1

        started = time.perf_counter()
        for start in range(0, args.prompt, args.span):
            stop = min(start + args.span, args.prompt)
            step(start, stop, wants_logits=stop == args.prompt)
        prefill_s = time.perf_counter() - started
        step(args.prompt, args.prompt + 1, wants_logits=True)
        steps_s = []
        for at in range(args.prompt + 1, n_context):
            started = time.perf_counter()
            step(at, at + 1, wants_logits=True)
            steps_s.append(time.perf_counter() - started)
        backend.close()
    n_prompt, n_decoded = args.prompt * args.lanes, len(steps_s) * args.lanes
    print(
        f"{path.name} threads {n_threads} level {backend.level.name} lanes {args.lanes}: "
        f"prefill {n_prompt / prefill_s:.1f} tokens/s, decode {n_decoded / sum(steps_s):.1f} "
        f"tokens/s (best step {args.lanes / min(steps_s):.1f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", type=Path, default=find_demo_model())
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--span", type=int, default=256)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--level", choices=["generic", "avx2", "avx512"])
    parser.add_argument("--exact", action="store_true")
    args = parser.parse_args()
    if args.model is None:
        parser.error("no demo model is there; name a GGUF file")
    for n_threads in args.threads:
        measure(args.model, n_threads, args=args)


if __name__ == "__main__":
    main()
