"""Runs all tests that need a card and then the roofline, with a short report.

    python -m tests.kernels.cuda.run_all [--json FILE] [--scan] [--no-tests] [--no-bench]

It needs Python, numpy, pytest, cuda-bindings and NVRTC, and no installed Strata.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.bench import roofline

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
MAX_FAILURES_SHOWN = 12
MAX_REASON = 300


class Report:
    """Counts outcomes and keeps the reasons of failures."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.reasons: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            self.counts[report.outcome] = self.counts.get(report.outcome, 0) + 1
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message if crash is not None else str(report.longrepr)
            name = report.nodeid.rsplit("/", 1)[-1]
            self.reasons.append(f"{name}: {' '.join(said.split())[:MAX_REASON]}")
        elif report.skipped and not self.reasons:
            self.reasons.append(f"skipped: {str(report.longrepr)[:MAX_REASON]}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.reasons.append(f"{report.nodeid}: {str(report.longrepr)[-MAX_REASON:]}")


def run_tests() -> bool:
    """Run the tests of this folder; return whether all that ran passed."""
    report = Report()
    started = time.perf_counter()
    options = ["-c", str(HERE / "card.ini"), "--rootdir", str(ROOT), "-q", "-m", "gpu"]
    status = pytest.main([*options, "--no-header", "--tb=short", str(HERE)], plugins=[report])
    print(f"tests: {report.counts} in {time.perf_counter() - started:.1f} s, status {int(status)}")
    for reason in report.reasons[:MAX_FAILURES_SHOWN]:
        print(f"  {reason}")
    return status == pytest.ExitCode.OK


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Test and measure the CUDA kernels on a card.")
    parser.add_argument("--json", help="write the roofline's numbers to this file")
    parser.add_argument("--scan", action="store_true", help="try other cuts of rows")
    parser.add_argument("--no-tests", action="store_true")
    parser.add_argument("--no-bench", action="store_true")
    arguments = parser.parse_args(argv)
    is_good = arguments.no_tests or run_tests()
    if not arguments.no_bench:
        options = ["--json", arguments.json] if arguments.json else []
        try:
            roofline.main(options + ["--scan"] * arguments.scan)
        except Exception:  # noqa: BLE001 - the report of the tests must not be lost
            traceback.print_exc(limit=-4)
            is_good = False
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
