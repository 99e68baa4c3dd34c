"""Damages small GGUF files in many seeded ways and opens each: a load or a clean error, no else.

`test_mutations.py` runs a few thousand in a process of its own. By hand, for hours of work in
minutes:

    python -m tests.engine.gguf.mutate --count 200000 --seed 7
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import ModelFileError
from engine.gguf.reader import open_model
from engine.gguf.summary import summarize
from tests.builders import (
    ARRAY,
    FLOAT64,
    INT8,
    INT16,
    INT64,
    STRING,
    UINT8,
    UINT16,
    UINT64,
    RawTensor,
    Typed,
    gguf_parts,
    make_gguf,
    tiny_llama,
)

MEMORY_BYTES = 256 << 20
"""What the process may take on top of what it has after its imports."""

HANG_S = 30
"""A file that takes longer ends the run, with a trace of where it hangs."""

NUMBERS = (0, 1, 2, 3, 7, 8, 9, 12, 13, 31, 32, 255, 1 << 16, 1 << 31, (1 << 32) - 1)
WIDE_NUMBERS = (*NUMBERS, 1 << 32, 1 << 48, 1 << 60, (1 << 61) + 1, 1 << 63, (1 << 64) - 1)


def base_files() -> list[tuple[bytes, bytes]]:
    """Return header and data of small right files, with every kind of value among them."""
    every_kind: dict[str, Any] = {
        "general.architecture": "llama",
        "general.alignment": 64,
        "u8": Typed(UINT8, 1),
        "i8": Typed(INT8, -1),
        "u16": Typed(UINT16, 1),
        "i16": Typed(INT16, -1),
        "f64": Typed(FLOAT64, 1.0),
        "u64": Typed(UINT64, 1),
        "i64": Typed(INT64, -1),
        "b": True,
        "llama.block_count": 2,
        "llama.embedding_length": 8,
        "llama.attention.head_count": [2, 2],
        "llama.attention.head_count_kv": [1, 0],
        "llama.attention.recurrent_layers": [False, True],
        "words": ["one", "", "three"],
        "floats": [1.0, 2.0],
        "nested": Typed(ARRAY, [Typed(ARRAY, [1, 2], UINT8), Typed(ARRAY, ["x"], STRING)], ARRAY),
    }
    tensors = {
        "a": np.ones((2, 3), np.float32),
        "b": RawTensor((32, 2), 2, bytes(36)),
        "c": RawTensor((256,), 12, bytes(144)),
    }
    split = {"split.no": Typed(UINT16, 0), "split.count": Typed(UINT16, 1), "k": [1, 2]}
    keys, weights = tiny_llama(n_layers=1, d_model=8, n_heads=2, n_kv_heads=1, d_ff=8)
    return [
        gguf_parts(every_kind, tensors, alignment=64),
        gguf_parts(split, {"a": np.ones(3, np.float16)}, version=2),
        gguf_parts(keys, weights),
    ]


def mutate(header: bytes, rng: np.random.Generator) -> bytearray:
    """Damage a header in one place, sometimes in up to four."""
    damaged = bytearray(header)
    for _ in range(1 if rng.random() < 0.6 else int(rng.integers(2, 5))):
        at = int(rng.integers(0, max(len(damaged), 1)))
        if rng.random() < 0.3:
            at = min(at, 64) if rng.random() < 0.5 else at & ~3
        match int(rng.integers(0, 8)):
            case 0:
                damaged[at : at + 1] = bytes([damaged[at] ^ 1 << int(rng.integers(0, 8))])
            case 1:
                damaged[at : at + 1] = rng.bytes(1)
            case 2:
                number = NUMBERS[int(rng.integers(0, len(NUMBERS)))]
                damaged[at : at + 4] = struct.pack("<I", number)
            case 3:
                number = WIDE_NUMBERS[int(rng.integers(0, len(WIDE_NUMBERS)))]
                damaged[at : at + 8] = struct.pack("<Q", number)
            case 4:
                del damaged[at : at + int(rng.integers(1, 24))]
            case 5:
                damaged[at:at] = rng.bytes(int(rng.integers(1, 24)))
            case 6:
                run = damaged[at : at + int(rng.integers(1, 80))]
                target = int(rng.integers(0, len(damaged)))
                damaged[target : target + (len(run) if rng.random() < 0.5 else 0)] = run
            case 7:
                del damaged[at:]
        if not damaged:
            break
    return damaged


def read_all(path: Path) -> str:
    """Open a file and read everything in it; return the class of a clean error, or "loaded"."""
    try:
        with open_model(path, allows_unknown_types=True) as model:
            for key in model.metadata:
                model.metadata.value(key)
            for name in model.tensors:
                model.tensor_bytes(name).sum()
            summarize(model, {"llama"})
    except ModelFileError as error:
        return type(error).__name__
    return "loaded"


def limit_memory() -> None:
    """Let the process grow by no more than `MEMORY_BYTES`, where the system can do that."""
    if sys.platform == "win32":
        return
    import resource

    if not Path("/proc/self/statm").exists():
        return
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def run(count: int, seed: int) -> dict[str, Any]:
    """Open `count` damaged files; return how they ended and the slowest time."""
    rng = np.random.default_rng(seed)
    files = base_files()
    outcomes: Counter[str] = Counter()
    slowest_s = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.gguf"
        make_gguf(path, {"general.architecture": "llama"})
        limit_memory()
        for index in range(count):
            header, data = files[int(rng.integers(0, len(files)))]
            damaged = mutate(header, rng)
            damaged += bytes(-len(damaged) % 64) + data
            if rng.random() < 0.1:
                del damaged[int(rng.integers(0, len(damaged))) :]
            path.write_bytes(damaged)
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            started = time.perf_counter()
            try:
                outcome = read_all(path)
            except BaseException:
                print(f"case {index} of seed {seed}: {damaged.hex()}", file=sys.stderr)
                raise
            elapsed_s = time.perf_counter() - started
            faulthandler.cancel_dump_traceback_later()
            slowest_s = max(slowest_s, elapsed_s)
            outcomes[outcome] += 1
    return {"outcomes": dict(outcomes), "slowest_s": slowest_s}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(run(options.count, options.seed)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
