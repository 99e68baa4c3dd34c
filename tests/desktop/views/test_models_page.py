from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QLabel, QWidget

from engine.stats import LoadProgress
from strata_desktop.client.engine_host import EngineHost
from strata_desktop.viewmodels.models import ModelsModel
from strata_desktop.views.models_page import ModelsPage, dropped_paths
from tests.desktop.snapshots import SUMMARY, make_pool, make_status

pytest_plugins = ("tests.desktop.panel_fixtures",)

# A window of its own has a least size, which the offscreen platform cannot tell a desktop.
pytestmark = pytest.mark.qt_log_ignore("does not support propagateSizeHints")


@pytest.fixture
def model(client, feed, engine, tmp_path: Path, qtbot) -> ModelsModel:
    summaries = [
        dataclasses.replace(SUMMARY, name="Alpha", path=str(tmp_path / "models" / "alpha.gguf")),
        dataclasses.replace(
            SUMMARY,
            name="Odd",
            path=str(tmp_path / "models" / "odd.gguf"),
            is_supported=False,
            reason="The architecture odd is not there yet.",
        ),
    ]
    engine.replies["/v1/inspect"] = {
        "models": [dataclasses.asdict(summary) for summary in summaries],
        "errors": [],
    }
    made = ModelsModel(client, EngineHost(client), feed=feed, home=tmp_path)
    qtbot.waitUntil(lambda: not made.is_scanning, timeout=5000)
    return made


@pytest.fixture
def page(qtbot, model) -> ModelsPage:
    made = ModelsPage(model)
    qtbot.addWidget(made)
    made.resize(900, 700)
    with qtbot.waitExposed(made):
        made.show()
    return made


def texts(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if label.isVisible())


def test_details_and_cost_before_loading(page, feed) -> None:
    feed.status.emit(make_status())
    told = texts(page)
    for word in ("Alpha", "93.4 MiB", "135 M · Q4_1", "11 KiB a token", "405 MiB", "Fits."):
        assert word in told
    assert page.loading.load.isEnabled()
    assert page.loading.pool.text() == "automatic (32,768)"


def test_what_cannot_be_loaded_says_why(page, model, tmp_path) -> None:
    model.select(tmp_path / "models" / "odd.gguf")
    assert "The architecture odd is not there yet." in texts(page)
    assert not page.loading.load.isEnabled()
    assert not page.loading.context.isVisible()


def test_options_show_their_cost_at_once(page, feed, model) -> None:
    feed.status.emit(make_status())
    page.loading.context.setValue(2048)
    page.loading.pool.setValue(500_000)
    told = texts(page)
    assert "K/V pool, 503,808 cells" in told
    assert "5.4 GiB" in told
    assert model.options.context_tokens == 2048


def test_a_pool_smaller_than_one_conversation_is_turned_down(page, feed) -> None:
    feed.status.emit(make_status())
    page.loading.pool.setValue(4096)
    assert "cannot hold one whole conversation" in texts(page)
    assert not page.loading.load.isEnabled()


def test_load_button_loads(page, feed, engine, qtbot) -> None:
    feed.status.emit(make_status())
    page.loading.load.click()
    assert not page.loading.load.isEnabled()
    assert page.loading.unload.text() == "Stop loading"
    qtbot.waitUntil(lambda: any(path == "/v1/load" for path, _ in engine.posts), timeout=5000)


def test_progress_shows_and_its_place_stays(page, feed, tmp_path, qtbot) -> None:
    feed.status.emit(make_status())
    qtbot.wait(10)
    before = page.loading.height()
    progress = LoadProgress(stage="Reading weights", done_bytes=34 << 20, total_bytes=100 << 20)
    feed.status.emit(make_status(state="loading", progress=progress))
    qtbot.wait(10)
    assert "Reading weights · 34.0 MiB of 100 MiB · 34 %" in texts(page)
    assert page.loading.height() == before


def test_a_failure_is_read_in_full(page, feed) -> None:
    why = "RAM is the limit: the model needs 40.0 GiB, but 21.0 GiB of 32.0 GiB are free."
    feed.status.emit(make_status(state="failed", error=why))
    assert why in texts(page)


def test_the_loaded_model_is_marked(page, feed, model, tmp_path) -> None:
    summary = dataclasses.replace(SUMMARY, path=str(tmp_path / "models" / "alpha.gguf"))
    feed.status.emit(make_status(make_pool(8), summary=summary))
    assert page.loading.load.text() == "Load again"
    assert page.loading.unload.isEnabled()


def test_list_and_keys(page, model, qtbot) -> None:
    view = page.models.list
    view.setFocus()
    qtbot.keyClick(view, Qt.Key.Key_Down)
    assert model.selected.name == "Odd"
    qtbot.keyClick(view, Qt.Key.Key_Up)
    assert model.selected.name == "Alpha"


def test_a_dropped_file_is_added(page, model, tmp_path, engine, qtbot) -> None:
    file = tmp_path / "dropped.gguf"
    file.touch()
    other = tmp_path / "notes.txt"
    other.touch()
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(str(path)) for path in (file, other)])
    assert dropped_paths(mime) == [file]
    entered = QDragEnterEvent(
        QPoint(5, 5),
        Qt.DropAction.CopyAction,
        mime,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    page.dragEnterEvent(entered)
    assert entered.isAccepted()
    assert "Let go to add it to the list." in texts(page)
    page.dropEvent(
        QDropEvent(
            QPointF(5, 5),
            Qt.DropAction.CopyAction,
            mime,
            Qt.MouseButton.LeftButton,
            Qt.KeyboardModifier.NoModifier,
        )
    )
    assert "Let go" not in texts(page)
    assert model.places.added == (file,)
    qtbot.waitUntil(lambda: not model.is_scanning, timeout=5000)
    assert ("/v1/inspect", {"path": str(file)}) in engine.posts


def test_other_things_are_not_taken(page, tmp_path) -> None:
    mime = QMimeData()
    mime.setText("hello")
    entered = QDragEnterEvent(
        QPoint(5, 5),
        Qt.DropAction.CopyAction,
        mime,
        Qt.MouseButton.LeftButton,
        Qt.KeyboardModifier.NoModifier,
    )
    entered.ignore()
    page.dragEnterEvent(entered)
    assert not entered.isAccepted()
