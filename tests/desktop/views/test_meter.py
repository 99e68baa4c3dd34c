from __future__ import annotations

import dataclasses

from PySide6.QtGui import QColor

from strata_desktop.viewmodels.memory_figures import commit_gauge, ram_gauge
from strata_desktop.views.meter import BAR_PX, LINE_PX, Meter
from strata_desktop.views.theme import DARK, LIGHT, colors
from tests.desktop.snapshots import GIB, HOST


def bar_color(meter: Meter, part: float) -> QColor:
    image = meter.grab().toImage()
    ratio = image.devicePixelRatio()
    return QColor(
        image.pixel(int(meter.width() * part * ratio), int((LINE_PX + 3 + BAR_PX / 2) * ratio))
    )


def test_a_meter_is_filled_as_far_as_it_is_used(qtbot) -> None:
    meter = Meter()
    qtbot.addWidget(meter)
    meter.resize(200, meter.height())
    meter.set_gauge(commit_gauge(dataclasses.replace(HOST, commit_used_bytes=24 * GIB)))
    c = colors(meter)
    assert c in (LIGHT, DARK)
    assert bar_color(meter, 0.45) == QColor(c.accent)
    assert bar_color(meter, 0.55) == QColor(c.pressed)


def test_nearly_full_wears_the_warning_color(qtbot) -> None:
    meter = Meter()
    qtbot.addWidget(meter)
    meter.resize(200, meter.height())
    meter.set_gauge(commit_gauge(dataclasses.replace(HOST, commit_used_bytes=46 * GIB)))
    assert bar_color(meter, 0.5) == QColor(colors(meter).warning)


def test_a_meter_tells_itself(qtbot) -> None:
    meter = Meter()
    qtbot.addWidget(meter)
    meter.set_gauge(ram_gauge(HOST))
    assert meter.accessibleName() == "RAM: 11.0 of 32.0 GiB · 21.0 left. this engine 512 MiB"
    meter.set_gauge(commit_gauge(dataclasses.replace(HOST, has_commit_limit=False)))
    assert "no hard commit limit" in meter.accessibleName()
