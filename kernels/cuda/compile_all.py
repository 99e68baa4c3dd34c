"""Compiles every kernel for every architecture; needs NVRTC but no GPU.

python -m kernels.cuda.compile_all --arch 75 80 86 89 90 120 [--cache DIR] [--resources]
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from kernels.cuda import dequantize, experts, matvec, quantize_activations
from kernels.cuda.compiler import ARCHITECTURES, Compiler, Cubin, Unit
from kernels.errors import KernelCompileError
from kernels.quants import QuantType

_RESOURCES = re.compile(
    r"Function properties for (\S+)\s+ptxas\s+\.\s+(\d+) bytes stack frame, (\d+) bytes spill"
    r" stores.*?Used (\d+) registers",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Compiled:
    """A unit and what came of it.

    Attributes:
        arch: compute capability times ten.
        unit: what was compiled.
        cubin: the result.
    """

    arch: int
    unit: Unit
    cubin: Cubin


def all_units() -> tuple[Unit, ...]:
    """Return every kernel there is."""
    found: list[Unit] = [*quantize_activations.units()]
    for quant in (*matvec.FLOATS, *matvec.CODED):
        found += [*matvec.units(quant), *dequantize.units(quant)]
    for quant in matvec.CODED:
        found += experts.units(quant, quant)
    return tuple(found)


def units_of(*quants: QuantType) -> tuple[Unit, ...]:
    """Return the kernels for some formats."""
    found: list[Unit] = [*quantize_activations.units()]
    for quant in quants:
        found += [*matvec.units(quant), *dequantize.units(quant)]
        if quant in matvec.CODED:
            found += experts.units(quant, quant)
    return tuple(found)


def compile_all(
    architectures: Sequence[int], units: Sequence[Unit], cache_dir: Path | None, *options: str
) -> Iterator[Compiled]:
    """Compile units for architectures on all cores, giving each as it is done.

    Raises:
        KernelCompileError: one does not compile.
    """
    compilers = [Compiler(arch, cache_dir, extra_options=options) for arch in architectures]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = {
            pool.submit(compiler.compile, unit): (compiler.arch, unit)
            for unit in units
            for compiler in compilers
        }
        try:
            for future in as_completed(futures):
                arch, unit = futures[future]
                yield Compiled(arch, unit, future.result())
        finally:
            pool.shutdown(cancel_futures=True)


def resources(compiled: Compiled) -> Iterator[str]:
    """Return a line a kernel: registers, stack and spilled bytes."""
    by_symbol = {symbol: name for name, symbol in compiled.cubin.symbols.items()}
    for symbol, stack, spilled, registers in _RESOURCES.findall(compiled.cubin.log):
        name = by_symbol.get(symbol, symbol)
        yield f"sm_{compiled.arch} {name}: {registers} registers, {stack} stack, {spilled} spilled"


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Compile every CUDA kernel without a GPU.")
    parser.add_argument("--arch", type=int, nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--cache", type=Path, help="folder of compiled kernels to use and fill")
    parser.add_argument("--quant", nargs="*", help="only these formats, as Q2_0")
    parser.add_argument("--resources", action="store_true", help="print registers and spills")
    arguments = parser.parse_args(argv)
    quants = [QuantType[name] for name in arguments.quant or ()]
    units = units_of(*quants) if quants else all_units()
    options = ("--ptxas-options=-v",) if arguments.resources else ()
    n_kernels = n_bytes = 0
    try:
        for compiled in compile_all(arguments.arch, units, arguments.cache, *options):
            n_kernels += len(compiled.unit.kernels)
            n_bytes += len(compiled.cubin.code)
            for line in resources(compiled):
                sys.stdout.write(line + "\n")
    except KernelCompileError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(
        f"compiled {n_kernels} kernels for {len(arguments.arch)} architectures: {n_bytes} bytes\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
