"""How near the matrix-vector kernels come to the card's copy bandwidth, at a large model's shapes.

    python -m tests.bench.roofline [--json FILE] [--scan] [--only Q2_0 ...]

Every product reads its matrix once. The launches of a graph take turns with copies of the matrix,
several times the second-level cache in all, so that bytes come from memory. Times are medians of
replays between events, launch gaps included. `--scan` tries other cuts of the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import numpy as np

from kernels.cuda.compile_all import units_of
from kernels.cuda.compiler import Unit
from kernels.cuda.device import Buffer, Device
from kernels.cuda.experts import (
    ExpertScratch,
    ExpertShape,
    Routing,
    experts_down,
    experts_gate_up,
)
from kernels.cuda.geometry import Cut, Geometry, lay_out
from kernels.cuda.matvec import FLOATS, ROWS_A_LANE, matvec, matvec_float
from kernels.cuda.module import KernelSet, read_limits
from kernels.cuda.quantize_activations import quantize_activations, rms_norm_quantize
from kernels.cuda.shapes import Activations, Matrix, Output, Rows
from kernels.errors import KernelLaunchError
from kernels.quants import QuantType as Q
from tests.kernels.cuda.random_blocks import random_matrix

CACHE_DIR = Path(__file__).resolve().parents[2] / ".cache" / "cuda"
L2_FACTOR = 4
"""Data of a graph, in second-level caches."""
MIN_LAUNCHES = 12
MAX_LAUNCHES = 200
N_REPLAYS = 7
COPY_BYTES = 2 << 30
MAX_SHARED_BYTES = 96 << 10
TARGET = 60
"""Percent of the copy bandwidth that products of the listed formats are to reach."""

MATRICES = [
    *((quant, 10240, 2560) for quant in (Q.Q2_0, Q.IQ2_XS, Q.IQ3_S, Q.IQ4_NL)),
    *((quant, 10240, 2560) for quant in (Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.Q8_0)),
    *((quant, 12288, 2560) for quant in (Q.Q2_0, Q.Q8_0)),
    *((quant, 2560, 6144) for quant in (Q.Q2_0, Q.IQ2_XS, Q.Q8_0)),
    *((quant, 640, 2560) for quant in (Q.Q2_0, Q.Q8_0)),
    *((quant, 248320, 2560) for quant in (Q.Q2_0, Q.IQ2_XS, Q.IQ3_S, Q.IQ4_NL)),
    *((quant, 248320, 2560) for quant in (Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.Q8_0)),
    (Q.BF16, 320, 10240),
    (Q.BF16, 10240, 320),
    (Q.BF16, 512, 2560),
    (Q.F32, 512, 2560),
]
"""Format, rows, columns; the last rows are hyper-connections and routers."""
MORE_ROWS = [(Q.Q2_0, 2), (Q.Q2_0, 4), (Q.Q2_0, 8), (Q.IQ2_XS, 4), (Q.Q5_K, 4), (Q.Q8_0, 8)]
"""Format and rows of activations, on [10240, 2560]."""
EXPERTS = [(Q.Q2_0, Q.Q2_0), (Q.IQ2_XS, Q.IQ4_NL), (Q.IQ3_S, Q.Q2_0), (Q.Q4_K, Q.Q5_1)]
D_MODEL, D_FF, N_USED = 2560, 640, 10


@dataclass(frozen=True)
class Line:
    """One measurement.

    Attributes:
        op: what ran.
        shape: of it, in words.
        microseconds: of one launch.
        n_bytes: of weights that a launch reads.
        percent: of the copy bandwidth.
    """

    op: str
    shape: str
    microseconds: float
    n_bytes: int
    percent: float


class Bench:
    """A card, its kernels, and its copy bandwidth in bytes a second (read and written)."""

    def __init__(self, device: Device, kernels: KernelSet) -> None:
        self.device = device
        self.kernels = kernels
        self.rng = np.random.default_rng(1)
        source, target = device.alloc(COPY_BYTES), device.alloc(COPY_BYTES)
        source.fill(0x3C)
        seconds = self.time(lambda: target.copy_from(source)) / 1e6
        self.copy_rate = 2 * COPY_BYTES / seconds
        device.free_buffers()

    def time(self, launch: Callable[[], None], n_launches: int = 1) -> float:
        """Return microseconds of one of the `n_launches` that `launch` puts on the stream."""
        graph = self.device.capture(launch)
        for _ in range(2):
            graph.launch()
        self.device.synchronize()
        times = [self.device.elapsed_ms(graph.launch) for _ in range(N_REPLAYS)]
        graph.close()
        return statistics.median(times) * 1000 / n_launches

    def line(self, op: str, shape: str, microseconds: float, n_bytes: int) -> Line:
        rate = n_bytes / microseconds * 1e6
        return Line(op, shape, microseconds, n_bytes, 100 * rate / self.copy_rate)

    def copies(self, blocks: np.ndarray, *, at_least: int = 2) -> list[Buffer]:
        """Return buffers with the same bytes, several caches of them in all."""
        wanted = L2_FACTOR * self.kernels.limits.l2_bytes // blocks.nbytes + 1
        first = self.device.upload(blocks)
        others = [self.device.alloc(blocks.nbytes) for _ in range(max(at_least, wanted) - 1)]
        for other in others:
            other.copy_from(first)
        return [first, *others]

    def activations(self, x: Rows) -> Activations:
        n_bytes = Activations(0, x.n_rows, x.n_cols).n_bytes
        codes = Activations(self.device.alloc(n_bytes).address, x.n_rows, x.n_cols)
        quantize_activations(self.kernels, self.device.stream, x=x, codes=codes)
        return codes

    def matvec(self, quant: Q, n_out: int, n_cols: int, *, n_rows: int = 1) -> Line:
        """Measure one product."""
        line, _ = next(self.products(quant, n_out, n_cols, [None], n_rows=n_rows))
        return line

    def products(
        self, quant: Q, n_out: int, n_cols: int, cuts: Sequence[Cut | None], *, n_rows: int = 1
    ) -> Iterator[tuple[Line, Cut | None]]:
        """Measure a product with other cuts of the rows; None is the usual one."""
        device, stream = self.device, self.device.stream
        blocks = random_matrix(quant, min(n_out, 4096), n_cols, self.rng)
        whole = np.resize(blocks, (n_out, blocks.shape[1]))
        matrices = [Matrix(b.address, quant, n_out, n_cols) for b in self.copies(whole)]
        launches = list(
            islice(cycle(matrices), max(MIN_LAUNCHES, min(MAX_LAUNCHES, len(matrices))))
        )
        y = Output(device.alloc(n_rows * n_out * 4).address, n_rows, n_out)
        values = device.upload(self.rng.standard_normal((n_rows, n_cols)).astype(np.float32))
        rows = Rows(values.address, n_rows, n_cols)
        codes = Activations(0, n_rows, n_cols) if quant in FLOATS else self.activations(rows)
        geometry: Geometry | None = None

        def launch() -> None:
            for weight in launches:
                if quant in FLOATS:
                    matvec_float(self.kernels, stream, weight=weight, x=rows, y=y)
                else:
                    matvec(self.kernels, stream, weight=weight, x=codes, y=y, geometry=geometry)

        for cut in cuts:
            if cut is not None:
                geometry = lay_out(quant, n_out, n_cols, cut, rows_a_lane=ROWS_A_LANE[n_rows])
            launch()
            microseconds = self.time(launch, len(launches))
            yield (
                self.line(
                    quant.name, f"[{n_out}, {n_cols}] x {n_rows}", microseconds, whole.nbytes
                ),
                cut,
            )
        device.free_buffers()

    def experts(self, gate_up: Q, down: Q, *, n_tokens: int = 1) -> Iterator[Line]:
        """Measure the two launches of a layer's experts, other experts in every launch."""
        device, stream = self.device, self.device.stream
        gate = random_matrix(gate_up, D_FF, D_MODEL, self.rng)
        blob = np.concatenate(
            [gate.ravel(), gate.ravel(), random_matrix(down, D_MODEL, D_FF, self.rng).ravel()]
        )
        shape = ExpertShape(
            gate_up=gate_up,
            down=down,
            d_model=D_MODEL,
            d_ff=D_FF,
            up_offset=gate.nbytes,
            down_offset=2 * gate.nbytes,
        )
        slots = self.copies(blob, at_least=2 * n_tokens * N_USED)
        addresses = device.upload(np.array([slot.address for slot in slots], np.uint64))
        slot_of = device.upload(np.arange(len(slots), dtype=np.int32))
        n_pairs = n_tokens * N_USED
        n_launches = 3 * max(1, len(slots) // n_pairs)
        order = np.concatenate(
            [
                self.rng.permutation(len(slots))
                for _ in range(n_launches * n_pairs // len(slots) + 1)
            ]
        ).astype(np.int32)
        routings = [
            Routing(
                n_tokens=n_tokens,
                n_used=N_USED,
                expert_ids=device.upload(order[i * n_pairs : (i + 1) * n_pairs]).address,
                weights=device.upload(np.full(n_pairs, 0.1, np.float32)).address,
                slot_of=slot_of.address,
                slot_addresses=addresses.address,
            )
            for i in range(n_launches)
        ]
        n_bytes = Activations(0, n_pairs, D_FF).n_bytes
        scratch = ExpertScratch(
            h=Rows(device.alloc(n_pairs * D_FF * 4).address, n_pairs, D_FF),
            hidden=Activations(device.alloc(n_bytes).address, n_pairs, D_FF),
            counters=device.upload(np.zeros(n_pairs * D_FF // 32, np.uint32)).address,
        )
        values = device.upload(self.rng.standard_normal((n_tokens, D_MODEL)).astype(np.float32))
        x = self.activations(Rows(values.address, n_tokens, D_MODEL))
        y = Output(device.alloc(n_tokens * D_MODEL * 4).address, n_tokens, D_MODEL)

        def launch_gate_up() -> None:
            for routing in routings:
                experts_gate_up(
                    self.kernels, stream, shape=shape, routing=routing, x=x, scratch=scratch
                )

        def launch_down() -> None:
            for routing in routings:
                experts_down(
                    self.kernels, stream, shape=shape, routing=routing, scratch=scratch, y=y
                )

        for launch, name, quant, n_matrix_bytes in (
            (launch_gate_up, "gate_up", gate_up, 2 * gate.nbytes),
            (launch_down, "down", down, blob.nbytes - 2 * gate.nbytes),
        ):
            launch()
            microseconds = self.time(launch, n_launches)
            said = f"{n_tokens} x {N_USED} experts {name}"
            yield self.line(quant.name, said, microseconds, n_pairs * n_matrix_bytes)
        device.free_buffers()

    def small(self) -> Iterator[Line]:
        """Measure the kernels around products; their bytes hardly count."""
        x = self.device.upload(self.rng.standard_normal((1, D_MODEL)).astype(np.float32))
        rows = Rows(x.address, 1, D_MODEL)
        codes = Activations(self.device.alloc(1 << 16).address, 1, D_MODEL)
        ops: tuple[tuple[str, Callable[[], None]], ...] = (
            (
                "quantize",
                lambda: quantize_activations(self.kernels, self.device.stream, x=rows, codes=codes),
            ),
            (
                "rms_norm_quantize",
                lambda: rms_norm_quantize(
                    self.kernels,
                    self.device.stream,
                    x=rows,
                    weight=rows,
                    epsilon=1e-6,
                    codes=codes,
                ),
            ),
        )
        for name, op in ops:
            op()
            microseconds = self.time(partial(repeat, op, 100), 100)
            yield self.line(name, f"[1, {D_MODEL}]", microseconds, D_MODEL * 4)
        self.device.free_buffers()


def repeat(launch: Callable[[], None], n_times: int) -> None:
    """Call a function several times."""
    for _ in range(n_times):
        launch()


def possible_cuts(quant: Q, n_out: int, n_cols: int) -> list[Cut]:
    """Return cuts worth trying."""
    n_pieces, block_pieces = n_cols // 32, quant.n_weights // 32
    cuts = []
    for n_lanes in (8, 16, 32):
        for n_repeats in (1, 2, 3, 5, 10):
            n_segments = -(-n_pieces // (n_lanes * n_repeats))
            if n_lanes * n_repeats % block_pieces or n_lanes * (n_repeats - 1) >= n_pieces:
                continue
            for n_team in (1, 2, 4):
                for n_stages in (2, 3, 4):
                    cut = Cut(
                        n_lanes=n_lanes, n_repeats=n_repeats, n_team=n_team, n_stages=n_stages
                    )
                    try:
                        shared = lay_out(quant, n_out, n_cols, cut, rows_a_lane=4).shared_bytes(1)
                    except KernelLaunchError:
                        continue
                    if n_team <= n_segments and shared <= MAX_SHARED_BYTES:
                        cuts.append(cut)
    return cuts


def run(bench: Bench, only: Sequence[Q]) -> list[Line]:
    """Measure everything, or what concerns some formats."""
    lines = []
    for quant, n_out, n_cols in MATRICES:
        if not only or quant in only:
            lines.append(bench.matvec(quant, n_out, n_cols))
    for quant, n_rows in MORE_ROWS:
        if not only or quant in only:
            lines.append(bench.matvec(quant, 10240, 2560, n_rows=n_rows))
    for gate_up, down in EXPERTS:
        if not only or gate_up in only or down in only:
            lines += bench.experts(gate_up, down)
    if not only:
        lines += bench.experts(Q.Q2_0, Q.Q2_0, n_tokens=4)
        lines += bench.small()
    return lines


def needed_units() -> list[Unit]:
    """Return the kernels of all measurements, to be compiled side by side."""
    quants = {quant for quant, *_ in MATRICES} | {q for pair in EXPERTS for q in pair}
    return list(dict.fromkeys(units_of(*sorted(quants))))


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Measure the matrix-vector kernels.")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--scan", action="store_true", help="try other cuts of rows")
    parser.add_argument("--only", nargs="*", default=[], help="formats, as Q2_0")
    arguments = parser.parse_args(argv)
    with Device() as device:
        kernels = KernelSet(read_limits(), CACHE_DIR)
        kernels.prepare(needed_units(), n_threads=os.cpu_count() or 1)
        bench = Bench(device, kernels)
        print(
            f"{device.name}, sm_{kernels.limits.arch}, L2 {kernels.limits.l2_bytes >> 20} MiB, "
            f"copy {bench.copy_rate / 1e9:.0f} GB/s (read + written)"
        )
        only = [Q[name] for name in arguments.only]
        lines = run(bench, only)
        print("format   shape                        us    GB/s   % of copy")
        for line in lines:
            mark = "" if line.percent >= TARGET or line.n_bytes < 1 << 20 else " <"
            print(
                f"{line.op:8} {line.shape:24} {line.microseconds:7.2f} "
                f"{line.n_bytes / line.microseconds / 1e3:7.0f} {line.percent:5.1f}{mark}"
            )
        scanned = []
        if arguments.scan:
            for quant, n_out, n_cols in (
                (Q.Q2_0, 10240, 2560),
                (Q.IQ2_XS, 10240, 2560),
                (Q.Q4_K, 10240, 2560),
                (Q.Q8_0, 10240, 2560),
                (Q.Q6_K, 10240, 2560),
            ):
                if only and quant not in only:
                    continue
                cuts = possible_cuts(quant, n_out, n_cols)
                found = sorted(
                    bench.products(quant, n_out, n_cols, cuts),
                    key=lambda pair: pair[0].microseconds,
                )
                scanned += [{**asdict(line), **asdict(cut)} for line, cut in found if cut]
                print(f"best cuts of {quant.name} [{n_out}, {n_cols}] (and the worst):")
                for line, cut in [*found[:3], *found[-1:]]:
                    print(f"  {line.microseconds:.2f} us {line.percent:.1f} %: {cut}")
        if arguments.json is not None:
            arguments.json.write_text(
                json.dumps(
                    {
                        "card": device.name,
                        "copy_bytes_per_second": bench.copy_rate,
                        "lines": [asdict(line) for line in lines],
                        "cuts": scanned,
                    },
                    indent=1,
                )
            )
        device.synchronize()
        kernels.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
