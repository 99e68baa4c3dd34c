"""Kernels compile for every architecture without a card; the cache knows text and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.cuda import source
from kernels.cuda.compile_all import all_units, compile_all, units_of
from kernels.cuda.compiler import ARCHITECTURES, Compiler, Unit
from kernels.cuda.matvec import CODED, FLOATS
from kernels.errors import KernelCompileError
from kernels.quants import QuantType

pytest.importorskip("cuda.bindings.nvrtc", reason="the cuda extra (NVRTC) is not installed")

EVERYWHERE = (QuantType.Q2_0, QuantType.IQ2_XS, QuantType.IQ3_S, QuantType.Q3_K, QuantType.Q4_K)
"""Formats that together use everything decoders are made of; compiled for each architecture."""
QUICK = Unit("quantize_activations", ("quantize_activations<1>",))
KEPT = Path(__file__).resolve().parents[3] / ".cache" / "cuda"
"""Where earlier runs kept their kernels; a clean checkout has none."""


@pytest.mark.timeout(900)
def test_kernels_compile_for_every_architecture() -> None:
    """Every template for each architecture, and every format for one: all of both is minutes.

    `python -m kernels.cuda.compile_all` compiles each kernel for each architecture.
    """
    wanted = {arch: list(units_of(*FLOATS, *EVERYWHERE)) for arch in ARCHITECTURES}
    rest = [quant for quant in CODED if quant not in EVERYWHERE]
    for i, quant in enumerate(rest):
        arch = ARCHITECTURES[i % len(ARCHITECTURES)]
        wanted[arch] += units_of(quant)
    n_compiled = 0
    for arch, units in wanted.items():
        for compiled in compile_all([arch], list(dict.fromkeys(units)), KEPT):
            assert compiled.cubin.code.startswith(b"\x7fELF")
            assert set(compiled.cubin.symbols) == set(compiled.unit.kernels)
            n_compiled += len(compiled.unit.kernels)
    assert n_compiled > len(all_units())


def test_a_second_compile_comes_from_the_cache(tmp_path: Path) -> None:
    first = Compiler(90, tmp_path).compile(QUICK)
    second = Compiler(90, tmp_path).compile(QUICK)
    assert (first.is_cached, second.is_cached) == (False, True)
    assert second.code == first.code
    assert second.symbols == first.symbols


def test_other_architectures_options_and_kernels_are_kept_apart(tmp_path: Path) -> None:
    Compiler(90, tmp_path).compile(QUICK)
    others = (
        (Compiler(80, tmp_path), QUICK),
        (Compiler(90, tmp_path, extra_options=("-DSOMETHING",)), QUICK),
        (Compiler(90, tmp_path), Unit(QUICK.stem, ("quantize_activations<2>",))),
    )
    for compiler, unit in others:
        assert not compiler.compile(unit).is_cached


def test_a_changed_header_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Compiler(90, tmp_path).compile(QUICK)
    changed = tmp_path / "words.cuh"
    original = (source.HERE / "words.cuh").read_text(encoding="utf-8")
    changed.write_text(original + "\nconstexpr int ADDED = 1;\n", encoding="utf-8")
    monkeypatch.setattr(source, "FOLDERS", (tmp_path, *source.FOLDERS))
    assert not Compiler(90, tmp_path).compile(QUICK).is_cached


def test_a_damaged_file_of_the_cache_is_replaced(tmp_path: Path) -> None:
    Compiler(90, tmp_path).compile(QUICK)
    (path,) = tmp_path.glob("*.cubin")
    path.write_bytes(path.read_bytes()[:-1])
    assert not Compiler(90, tmp_path).compile(QUICK).is_cached
    assert Compiler(90, tmp_path).compile(QUICK).is_cached


def test_a_failure_carries_the_compilers_log() -> None:
    unit = Unit("quantize_activations", ("quantize_activations<no_such_name>",))
    with pytest.raises(KernelCompileError, match=r"sm_90 with NVRTC(.|\n)*no_such_name"):
        Compiler(90, None).compile(unit)


def test_a_missing_source_is_named() -> None:
    with pytest.raises(KernelCompileError, match=r"no_such_kernel\.cu is missing"):
        source.read_source("no_such_kernel")


def test_our_kernels_need_no_toolkit_headers() -> None:
    for unit in all_units():
        assert not source.needs_cuda_headers(source.read_source(unit.stem))
