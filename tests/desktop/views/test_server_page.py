from __future__ import annotations

import pytest
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QWidget

from engine.stats import RequestCounts
from strata_desktop.client.engine_host import EngineHost
from strata_desktop.viewmodels.memory_throttle import Throttle
from strata_desktop.viewmodels.server import ServerModel
from strata_desktop.views.server_page import ServerPage
from tests.desktop.snapshots import make_pool, make_status

pytest_plugins = ("tests.desktop.panel_fixtures",)


@pytest.fixture
def page(qtbot, client, feed, clock) -> ServerPage:
    throttle = Throttle(interval_s=0.1, clock=clock, schedule=clock.schedule)
    made = ServerPage(ServerModel(client, EngineHost(client), feed, throttle=throttle))
    qtbot.addWidget(made)
    made.resize(900, 700)
    with qtbot.waitExposed(made):
        made.show()
    return made


def texts(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisible())


def test_address_and_copy(page, client, qtbot) -> None:
    assert page.address.address.field.text() == client.base_url
    page.address.address.button.click()
    assert QGuiApplication.clipboard().text() == client.base_url
    assert page.address.address.button.text() == "Copied"
    qtbot.waitUntil(lambda: page.address.address.button.text() == "Copy", timeout=5000)


def test_every_line_can_be_copied(page, feed) -> None:
    feed.status.emit(make_status(make_pool(4)))
    copied = []
    for _, line, _ in page.use.lines:
        line.button.click()
        copied.append(QGuiApplication.clipboard().text())
    assert copied[0].endswith("/v1")
    assert copied[1] == "smollm2-135m"
    assert copied[2].startswith("curl ")


def test_state_counts_and_gaps(page, feed, clock) -> None:
    feed.status.emit(make_status(make_pool(4), requests=RequestCounts(finished=1234)))
    clock.advance(1)
    told = texts(page)
    for word in ("Ready for requests.", "1,234", "12 min 34 s", "Not there yet", "Graphics card"):
        assert word in told
    feed.offline.emit("The engine does not answer.")
    clock.advance(1)
    assert "The engine does not answer." in texts(page)
    assert "1,234" not in texts(page)
