"""How numbers read on the panels: one function a kind of number, never NaN, width kept steady.

It leaves the choice of what to show to the view-models and fonts to the views.
"""

from __future__ import annotations

import math

KIB = 1024
MIB = 1024**2
GIB = 1024**3

UNKNOWN = "unknown"
"""What stands where a number cannot be told."""
NOTHING = "–"
"""What stands where there is nothing to count."""


def is_number(value: float | None) -> bool:
    """Whether `value` is there and finite."""
    return value is not None and math.isfinite(value)


def count_text(value: float | None) -> str:
    """Return a whole number with thousands separators, e.g. `12,288`."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{round(value):,}"


def plural(value: int, noun: str, plural_noun: str = "") -> str:
    """Return a counted noun, e.g. `1 chunk`, `3 chunks`."""
    word = noun if value == 1 else plural_noun or f"{noun}s"
    return f"{value:,} {word}"


def mib_text(n_bytes: float | None) -> str:
    """Return bytes as MiB without the unit; one decimal below 100, for columns."""
    if n_bytes is None or not math.isfinite(n_bytes):
        return UNKNOWN
    mib = n_bytes / MIB
    return f"{mib:,.1f}" if abs(mib) < 100 else f"{mib:,.0f}"


def bytes_text(n_bytes: float | None) -> str:
    """Return bytes with the unit that suits them: `18.0 MiB`, `7.3 GiB`."""
    if n_bytes is None or not math.isfinite(n_bytes):
        return UNKNOWN
    if abs(n_bytes) >= GIB:
        return f"{n_bytes / GIB:,.1f} GiB"
    if abs(n_bytes) >= MIB:
        return f"{mib_text(n_bytes)} MiB"
    if abs(n_bytes) >= KIB:
        return f"{n_bytes / KIB:,.0f} KiB"
    return f"{n_bytes:,.0f} B"


def fraction(part: float | None, whole: float | None) -> float | None:
    """Return part / whole between 0 and 1, None when the whole is unknown or 0."""
    if part is None or whole is None or whole <= 0:
        return None
    value = part / whole
    return min(1.0, max(0.0, value)) if math.isfinite(value) else None


def percent_text(part: float | None, whole: float | None) -> str:
    """Return a share, e.g. `19 %`; below 10 % with one decimal; unknown whole reads `–`."""
    value = fraction(part, whole)
    if value is None:
        return NOTHING
    percent = 100 * value
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %" if 0 < percent < 9.95 else f"{percent:.0f} %"


def rate_text(per_s: float | None) -> str:
    """Return a speed without its unit, e.g. `23.4`; nothing running reads `–`."""
    if per_s is None or not math.isfinite(per_s) or per_s <= 0:
        return NOTHING
    return f"{per_s:,.1f}" if per_s < 100 else f"{per_s:,.0f}"


def duration_text(seconds: float | None) -> str:
    """Return a span of time in the two units that matter: `8 s`, `4 min 05 s`, `2 h 03 min`."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return NOTHING
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def age_text(seconds: float | None) -> str:
    """Return a time ago in its largest unit, for narrow columns: `8 s`, `12 min`, `2 h`, `3 d`."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return NOTHING
    for unit_s, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit_s:
            return f"{int(seconds // unit_s)} {unit}"
    return f"{int(seconds)} s"


def params_text(n_params: int) -> str:
    """Return a number of weights as people say it: `135 M`, `7.2 B`; 0 reads `unknown`."""
    if n_params <= 0:
        return UNKNOWN
    if n_params >= 1_000_000_000:
        return f"{n_params / 1e9:.1f} B"
    if n_params >= 1_000_000:
        return f"{n_params / 1e6:.0f} M"
    return f"{n_params:,}"
