"""Every control of the panels has a name, can be reached by keys, and explains itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSpinBox,
    QApplication,
    QLineEdit,
    QProgressBar,
    QWidget,
)

from strata_desktop.client.engine_host import EngineHost
from strata_desktop.viewmodels.models import ModelsModel
from strata_desktop.viewmodels.server import ServerModel
from strata_desktop.views.memory_page import MemoryPage
from strata_desktop.views.meter import Meter
from strata_desktop.views.models_page import ModelsPage
from strata_desktop.views.pool_bar import HoldingsBar
from strata_desktop.views.pool_map import PoolMap
from strata_desktop.views.server_page import ServerPage
from strata_desktop.views.theme import Theme, ThemeMode
from tests.desktop.snapshots import Held, make_pool, make_status

pytest_plugins = ("tests.desktop.panel_fixtures",)

# A window of its own has a least size, which the offscreen platform cannot tell a desktop.
pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")

CONTROLS = (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSpinBox,
    QLineEdit,
    QProgressBar,
    Meter,
    PoolMap,
    HoldingsBar,
)


@pytest.fixture(params=["memory", "models", "server"])
def page(request, qtbot, memory, client, feed, show, tmp_path: Path) -> QWidget:
    host = EngineHost(client)
    made: QWidget
    if request.param == "memory":
        made = MemoryPage(memory)
    elif request.param == "models":
        made = ModelsPage(ModelsModel(client, host, feed=feed, home=tmp_path))
    else:
        made = ServerPage(ServerModel(client, host, feed))
    qtbot.addWidget(made)
    show(Held(id="s1", n_tokens=9000, state="writing", lane=0), Held(id="s2", n_tokens=10))
    made.resize(900, 600)
    with qtbot.waitExposed(made):
        made.show()
    return made


def own_controls(page: QWidget) -> list[QWidget]:
    """Controls of ours; parts that Qt puts inside them are theirs to name."""
    found = []
    for child in page.findChildren(QWidget):
        parent = child.parentWidget()
        is_inner = isinstance(parent, QAbstractSpinBox | QAbstractItemView) or (
            child.objectName().startswith("qt_")
        )
        if isinstance(child, CONTROLS) and not is_inner:
            found.append(child)
    return found


def test_every_control_has_a_name(page) -> None:
    controls = own_controls(page)
    assert len(controls) >= 4
    nameless = [child for child in controls if not child.accessibleName()]
    assert nameless == []


def test_every_button_explains_itself(page) -> None:
    for button in page.findChildren(QAbstractButton):
        if button in own_controls(page):
            assert button.toolTip() or button.text() in ("Load", "Unload"), button.text()


def test_every_control_can_be_reached_by_keys(page) -> None:
    for control in own_controls(page):
        if isinstance(control, QAbstractButton | QAbstractItemView | QAbstractSpinBox | PoolMap):
            assert control.focusPolicy() & Qt.FocusPolicy.TabFocus, control.accessibleName()


@pytest.mark.parametrize("mode", [ThemeMode.LIGHT, ThemeMode.DARK])
def test_it_can_be_drawn_light_and_dark(page, mode, qtbot) -> None:
    app = QApplication.instance()
    font, palette, style = app.font(), app.palette(), app.styleSheet()
    try:
        theme = Theme(app, mode)
        qtbot.wait(10)
        image = page.grab().toImage()
        ground = image.pixelColor(4, image.height() // 2).lightness()
        assert (ground < 128) is (mode is ThemeMode.DARK)
        theme.deleteLater()
    finally:
        app.setStyleSheet(style)
        app.setPalette(palette)
        app.setFont(font)


@pytest.mark.parametrize("n_chunks", [6, 64, 4096])
def test_pools_of_any_length_can_be_drawn(n_chunks, qtbot, memory, feed, clock) -> None:
    made = MemoryPage(memory)
    qtbot.addWidget(made)
    feed.status.emit(make_status(make_pool(n_chunks, [Held(id="s1", n_tokens=9000)])))
    clock.advance(1)
    made.resize(900, 600)
    with qtbot.waitExposed(made):
        made.show()
    made.pool.map.grab()
    assert made.pool.map.n_tiles_painted >= n_chunks
