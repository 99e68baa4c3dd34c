"""Measures what the driver charges for moving memory, by size of extent; chooses the extent size.

    python -m tests.bench.vmm [--device 0] [--total-mib 2048] [--json FILE] [--rules]

Times are medians in microseconds a call. `--rules` then runs the device tests of the arena too, so
one command says all there is to say about a card.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from engine.errors import DeviceError
from engine.memory.virtual_range import Extent, Placement, VirtualRange, move
from tests.device_driver import DeviceDriver

MIB = 2**20
SIZES_MIB = (2, 4, 8, 16, 32, 64, 128)
GROWTH_BYTES = 8192 * 12_672
"""K/V that one step of growth adds: 8,192 cells of int8 K/V of a full-size model."""

RULES = (
    "-q",
    "-m",
    "gpu",
    "-p",
    "no:cacheprovider",
    # A machine lent for its card may lack the plugins that the project's own settings name.
    "-o",
    "addopts=--import-mode=importlib --strict-markers",
    "-o",
    "filterwarnings=default",
    "tests/engine/memory",
)


@dataclass(frozen=True)
class Row:
    """Costs of one extent size; times in microseconds a call but for growth."""

    extent_mib: int
    n_extents: int
    reserve: float
    create: float
    map: float
    set_access: float
    set_access_run: float
    unmap: float
    release: float
    move_one: float
    growth_extents: int
    growth_ms: float
    bytes_survive: bool


def timed(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return (time.perf_counter() - started) * 1e6


def measure(driver: DeviceDriver, extent_bytes: int, n_extents: int) -> Row:
    times: dict[str, list[float]] = {}

    def note(name: str, step: Callable[[], object]) -> None:
        times.setdefault(name, []).append(timed(step))

    n_growth = -(-GROWTH_BYTES // extent_bytes)
    n_extents = max(n_extents, n_growth)
    places = range(n_extents)
    ranges: list[VirtualRange] = []
    for _ in range(2):
        note(
            "reserve",
            lambda: ranges.append(
                VirtualRange(driver, n_places=n_extents, extent_bytes=extent_bytes)
            ),
        )
    here, there = ranges
    extents: list[Extent] = []
    for _ in places:
        note("create", lambda: extents.append(Extent(driver.create(extent_bytes), extent_bytes)))
    for place, extent in zip(places, extents, strict=True):
        address = here.place_address(place)
        note("map", lambda a=address, e=extent: driver.map(a, extent_bytes, e.handle))
        note("set_access", lambda a=address: driver.set_access(a, extent_bytes))
    for place in places:
        address = here.place_address(place)
        note("unmap", lambda a=address: driver.unmap(a, extent_bytes))
    undo = ExitStack()
    for place, extent in zip(places, extents, strict=True):
        driver.map(here.place_address(place), extent_bytes, extent.handle)
    note("set_access_run", lambda: driver.set_access(here.address, n_extents * extent_bytes))
    for place in places:
        driver.unmap(here.place_address(place), extent_bytes)

    here.map(places, extents, undo)
    for place in places:
        driver.fill(here.place_address(place), (place + 1) % 256, extent_bytes)
    driver.synchronize()

    def moving(source: VirtualRange, target: VirtualRange, chosen: range) -> Callable[[], None]:
        return lambda: move(
            driver,
            Placement(range=source, places=chosen),
            Placement(range=target, places=chosen),
            after=None,
            undo=undo,
        )

    for place in places:
        note("move_one", moving(here, there, range(place, place + 1)))
    survives = all(
        driver.read(there.place_address(place), extent_bytes)
        == bytes([(place + 1) % 256]) * extent_bytes
        for place in places
    )
    for _ in range(5):
        note("growth", moving(there, here, range(n_growth)))
        note("growth", moving(here, there, range(n_growth)))
    for place in places:
        survives &= driver.read(there.place_address(place), 64) == bytes([(place + 1) % 256]) * 64
    there.unmap(places, undo)
    for extent in extents:
        note("release", lambda e=extent: driver.release(e.handle))
    undo.pop_all()
    here.close()
    there.close()
    median = {name: statistics.median(values) for name, values in times.items()}
    growth_ms = median.pop("growth") / 1000
    return Row(
        extent_mib=extent_bytes // MIB,
        n_extents=n_extents,
        growth_extents=n_growth,
        growth_ms=growth_ms,
        bytes_survive=survives,
        **median,
    )


def print_table(rows: list[Row]) -> None:
    print(
        f"{'MiB':>4} {'count':>5} {'create':>8} {'map':>7} {'access':>7} {'access run':>10} "
        f"{'unmap':>7} {'release':>8} {'move':>7} {'growth of 8192 cells':>21}  bytes survive"
    )
    for row in rows:
        print(
            f"{row.extent_mib:>4} {row.n_extents:>5} {row.create:>8.1f} {row.map:>7.1f} "
            f"{row.set_access:>7.1f} {row.set_access_run:>10.1f} {row.unmap:>7.1f} "
            f"{row.release:>8.1f} {row.move_one:>7.1f} "
            f"{row.growth_extents:>7} in {row.growth_ms:>7.3f} ms  "
            f"{'yes' if row.bytes_survive else 'NO'}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description="What the driver charges for moving memory.")
    parser.add_argument("--device", type=int, default=0, help="number of the card")
    parser.add_argument("--total-mib", type=int, default=2048, help="memory used for each size")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--rules", action="store_true", help="run the device tests afterwards")
    args = parser.parse_args()
    try:
        driver = DeviceDriver(args.device)
    except DeviceError as fault:
        print(fault, file=sys.stderr)
        return 1
    memory = driver.card_memory()
    print(
        f"{driver.name}: {memory.total_bytes / MIB:.0f} MiB, {memory.free_bytes / MIB:.0f} free, "
        f"granularity {driver.granularity_bytes / MIB:g} MiB; microseconds a call"
    )
    rows = []
    for extent_mib in SIZES_MIB:
        if extent_mib * MIB % driver.granularity_bytes == 0:
            n_extents = max(2, min(64, args.total_mib // extent_mib))
            rows.append(measure(driver, extent_mib * MIB, n_extents))
    lost = memory.free_bytes - driver.card_memory().free_bytes
    driver.close()
    print_table(rows)
    print(f"not given back after all this: {lost / MIB:.0f} MiB")
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    is_good = all(row.bytes_survive for row in rows)
    if args.rules:
        import pytest

        is_good &= pytest.main(list(RULES)) == 0
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
