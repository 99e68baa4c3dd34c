from __future__ import annotations

import math

import pytest

from strata_desktop.viewmodels import memory_text as text

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [
        (0, "0 B"),
        (900, "900 B"),
        (11_520, "11 KiB"),
        (47_185_920, "45.0 MiB"),
        (315 * 1024**2, "315 MiB"),
        (1024**3, "1.0 GiB"),
        (1536 * 1024**3, "1,536.0 GiB"),
        (None, "unknown"),
        (NAN, "unknown"),
        (INF, "unknown"),
    ],
)
def test_bytes(n_bytes: float | None, shown: str) -> None:
    assert text.bytes_text(n_bytes) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 100, "0 %"),
        (1, 10_000, "< 0.1 %"),
        (5.14, 100, "5.1 %"),
        (9.96, 100, "10 %"),
        (55, 100, "55 %"),
        (300, 100, "100 %"),
        (5, 0, "–"),
        (5, None, "–"),
        (NAN, 100, "–"),
    ],
)
def test_percent(part: float, whole: float | None, shown: str) -> None:
    assert text.percent_text(part, whole) == shown


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(0, "–"), (23.44, "23.4"), (812.3, "812"), (4_000, "4,000"), (NAN, "–"), (None, "–")],
)
def test_rate(rate: float | None, shown: str) -> None:
    assert text.rate_text(rate) == shown


@pytest.mark.parametrize(
    ("seconds", "long", "short"),
    [
        (8.9, "8 s", "8 s"),
        (754, "12 min 34 s", "12 min"),
        (7540, "2 h 05 min", "2 h"),
        (200_000, "2 d 07 h", "2 d"),
        (-1, "–", "–"),
        (NAN, "–", "–"),
    ],
)
def test_time(seconds: float, long: str, short: str) -> None:
    assert text.duration_text(seconds) == long
    assert text.age_text(seconds) == short


def test_weights() -> None:
    assert text.params_text(134_515_008) == "135 M"
    assert text.params_text(30_532_122_624) == "30.5 B"
    assert text.params_text(0) == "unknown"


def test_count_and_plural() -> None:
    assert text.count_text(2_183_168) == "2,183,168"
    assert text.count_text(NAN) == "unknown"
    assert text.plural(1, "chunk") == "1 chunk"
    assert text.plural(1200, "chunk") == "1,200 chunks"
