"""Measures this engine against llama.cpp on the same file, threads and token ids, side by side.

    pip install -e '.[bench]'
    python tests/bench/cpu.py [MODEL ...] [--threads 1 2] [--prompt 512] [--tokens 64] [--runs 5]

Each engine works in a process of its own, loaded once; runs alternate, so that what else the
machine does falls on both. Shown is the median of the runs and, in brackets, the best. A run reads
the prompt (prefill) and then generates token by token (decode), fetching logits at every step.
A load above the number of threads says that other programs ran too: then measure again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

REPO = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO))

PAUSE_S = 0.3
"""Between runs: threads of the other engine may go on spinning for a while."""


@dataclass(frozen=True)
class Speed:
    """Tokens a second of one run."""

    prefill: float
    decode: float


@dataclass(frozen=True)
class Work:
    """What a process is to run."""

    model: str
    n_threads: int
    n_prompt: int
    n_tokens: int


def token_ids(work: Work, n_vocab: int) -> list[int]:
    rng = np.random.default_rng(7)
    return [int(i) for i in rng.integers(0, n_vocab, work.n_prompt + work.n_tokens)]


def timed(work: Work, step: Callable[[int, int], None]) -> Speed:
    """Run the prompt and the tokens; `step` takes the first and the stop position."""
    started = time.perf_counter()
    step(0, work.n_prompt)
    read = time.perf_counter()
    for at in range(work.n_prompt, work.n_prompt + work.n_tokens):
        step(at, at + 1)
    return Speed(
        prefill=work.n_prompt / (read - started),
        decode=work.n_tokens / (time.perf_counter() - read),
    )


def our_runner(work: Work) -> Callable[[], Speed]:
    from engine.backend.cpu import CpuBackend
    from engine.config import BackendConfig
    from engine.gguf.reader import open_model
    from engine.step import LaneId, Span, StepPlan

    n_context = work.n_prompt + work.n_tokens
    backend = CpuBackend(
        open_model(Path(work.model)),
        BackendConfig(n_threads=work.n_threads),
        n_lanes=1,
        context_tokens=n_context,
        n_chunks=1,
        chunk_cells=-(-n_context // 4) * 4,
        is_pooled=False,
    )
    ids = np.array(token_ids(work, backend.spec.n_vocab), np.int32)
    span_tokens = 256  # as the scheduler cuts prompts

    def step(first: int, stop: int) -> None:
        for start in range(first, stop, span_tokens):
            end = min(start + span_tokens, stop)
            span = Span(lane=LaneId(0), start=start, ids=ids[start:end], wants_logits=end == stop)
            backend.run(StepPlan(step_id=start, spans=(span,)))

    return lambda: timed(work, step)


def their_runner(work: Work) -> Callable[[], Speed]:
    import llama_cpp

    llama_cpp.llama_backend_init()
    quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(quiet, None)
    model = llama_cpp.llama_model_load_from_file(
        work.model.encode(), llama_cpp.llama_model_default_params()
    )
    if not model:
        raise SystemExit(f"llama.cpp cannot load {work.model}")
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = work.n_prompt + work.n_tokens
    params.n_batch = work.n_prompt
    params.n_threads = params.n_threads_batch = work.n_threads
    context = llama_cpp.llama_init_from_model(model, params)
    ids = token_ids(work, llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model)))
    tokens = (llama_cpp.llama_token * len(ids))(*ids)

    def step(first: int, stop: int) -> None:
        part = (llama_cpp.llama_token * (stop - first))(*tokens[first:stop])
        status = llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(part, stop - first))
        if status != 0 or not llama_cpp.llama_get_logits_ith(context, -1):
            raise SystemExit(f"llama.cpp failed at token {first} with status {status}")

    def run() -> Speed:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        return timed(work, step)

    run.kept_alive = quiet  # type: ignore[attr-defined]
    return run


RUNNERS = {"ours": our_runner, "llama.cpp": their_runner}


def serve(engine: str, work: Work) -> None:
    """Run once for each line that comes in, and answer with a line."""
    run = RUNNERS[engine](work)
    for _ in sys.stdin:
        print(json.dumps(asdict(run())), flush=True)


class Worker:
    """An engine in a process of its own."""

    def __init__(self, engine: str, work: Work) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", engine, json.dumps(asdict(work))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self) -> Speed:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"an engine stopped with status {self._process.wait()}")
        return Speed(**json.loads(answer))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def compare(work: Work, n_runs: int) -> None:
    workers = {engine: Worker(engine, work) for engine in RUNNERS}
    speeds: dict[str, list[Speed]] = {engine: [] for engine in RUNNERS}
    try:
        for worker in workers.values():
            worker.run()  # warms caches and lazy memory up; not counted
        for _ in range(n_runs):
            for engine, worker in workers.items():
                time.sleep(PAUSE_S)
                speeds[engine].append(worker.run())
    finally:
        for worker in workers.values():
            worker.close()
    busy = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(
        f"{Path(work.model).name}, {work.n_threads} threads, median of {n_runs} (best), "
        f"tokens/s{busy}"
    )
    for phase in ("prefill", "decode"):
        runs = {engine: [getattr(speed, phase) for speed in speeds[engine]] for engine in RUNNERS}
        ours, theirs = (statistics.median(runs[engine]) for engine in RUNNERS)
        best = {engine: max(values) for engine, values in runs.items()}
        print(
            f"  {phase:8} ours {ours:8.1f} ({best['ours']:8.1f})   "
            f"llama.cpp {theirs:8.1f} ({best['llama.cpp']:8.1f})   "
            f"ratio {ours / theirs:5.2f} ({best['ours'] / best['llama.cpp']:5.2f})"
        )


def main() -> None:
    from tests.demo_model import find_demo_model

    demo = find_demo_model()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, default=[demo] if demo else [])
    parser.add_argument("--threads", nargs="+", type=int, default=[2])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    if not args.models:
        parser.error("no demo model is there; name a GGUF file")
    for model in args.models:
        for n_threads in args.threads:
            compare(
                Work(
                    model=str(model),
                    n_threads=n_threads,
                    n_prompt=args.prompt,
                    n_tokens=args.tokens,
                ),
                args.runs,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], Work(**json.loads(sys.argv[3])))
    else:
        main()
