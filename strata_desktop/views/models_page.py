"""The models page: files on the left, what they hold and how to load them on the right."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QMimeData, Qt
from PySide6.QtGui import QDragEnterEvent, QDragLeaveEvent, QDropEvent, QResizeEvent
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.viewmodels.models import SUFFIX, ModelsModel
from strata_desktop.views.memory_card import Card, Columns, LineLabel, Stack, make_label
from strata_desktop.views.models_details import Banner, DetailsCard
from strata_desktop.views.models_list import ModelsView
from strata_desktop.views.models_options import LoadCard
from strata_desktop.views.theme import SPACE

NARROW_PX = 760
LIST_WIDTH_PX = 264
LIST_HEIGHT_PX = 270
MAX_PX = 16_777_215
"""Qt's own way of saying: no limit."""


class ModelsCard(Card):
    """The list with its buttons, or why it is empty."""

    def __init__(self, model: ModelsModel, parent: QWidget | None = None) -> None:
        super().__init__("Models on this computer", parent)
        self._model = model
        self.list = ModelsView(model)
        self.add_file = self._button("Add file", "Choose a GGUF file; of a split model any part")
        self.add_folder = self._button("Add folder", "Choose a folder of GGUF files")
        self.again = self._button("Look again", "Look through all folders once more")
        self.remove = self._button(
            "Take off the list", "Forget the folder or file this model came from; files stay"
        )
        self.add_file.clicked.connect(self._choose_file)
        self.add_folder.clicked.connect(self._choose_folder)
        self.again.clicked.connect(model.rescan)
        self.remove.clicked.connect(model.remove_selected)
        self._faults = LineLabel(role="warning")
        place = QWidget(self)
        self._stack = Stack(place, self.list)
        first, second = QHBoxLayout(), QHBoxLayout()
        for row, buttons in (
            (first, (self.add_file, self.add_folder)),
            (second, (self.again, self.remove)),
        ):
            row.setSpacing(SPACE.s)
            for button in buttons:
                row.addWidget(button, 1)
        self.box.addWidget(make_label("Models", role="heading"))
        self.box.addWidget(place, 1)
        self.box.addWidget(self._faults)
        self.box.addLayout(first)
        self.box.addLayout(second)
        model.scanned.connect(self._refresh)
        model.selection_changed.connect(self._refresh)
        self._refresh()

    def _button(self, text: str, about: str) -> QPushButton:
        button = QPushButton(text)
        button.setAccessibleName(text)
        button.setToolTip(about)
        button.setAccessibleDescription(about)
        # Two of them share the narrow column.
        button.setStyleSheet("padding-left: 6px; padding-right: 6px;")
        return button

    def _refresh(self) -> None:
        gap = self._model.list_gap
        self._stack.say(gap)
        self.again.setEnabled(not self._model.is_scanning)
        self.remove.setEnabled(self._model.removable_place is not None)
        self._faults.setText("" if gap else " ".join(self._model.faults))

    def _choose_file(self) -> None:
        path, _ = QFileDialog.getOpenFileName(
            self, "Add a model file", str(self._model.places.own), f"GGUF models (*{SUFFIX})"
        )
        if path:
            self._model.add(Path(path))

    def _choose_folder(self) -> None:
        path = QFileDialog.getExistingDirectory(
            self, "Add a folder of models", str(self._model.places.own)
        )
        if path:
            self._model.add(Path(path))


class ModelsPage(QWidget):
    """Everything about models on one page; a .gguf dropped on it is added and selected."""

    def __init__(self, model: ModelsModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._model = model
        self.setProperty("role", "page")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName("Models")
        self.setAcceptDrops(True)
        self.models = ModelsCard(model)
        self.details = DetailsCard(model)
        self.loading = LoadCard(model)
        self._notice = Banner("info", "Notice")
        self._drop = Banner("info", "Drop here")
        right = QWidget()
        right.setProperty("role", "page")
        column = QVBoxLayout(right)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE.m)
        for part in (self._drop, self._notice, self.details, self.loading):
            column.addWidget(part)
        column.addStretch(1)
        scroll = QScrollArea()
        scroll.setAccessibleName("The selected model and how to load it")
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(right)
        self._columns = Columns()
        self._columns.addWidget(self.models)
        self._columns.addWidget(scroll, 1)
        page = QVBoxLayout(self)
        page.setContentsMargins(SPACE.l, SPACE.l, SPACE.l, SPACE.l)
        page.addLayout(self._columns)
        model.notice.connect(self._notice.say)
        model.selection_changed.connect(lambda: self._notice.say(""))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the list above the details in a narrow window."""
        is_narrow = event.size().width() < NARROW_PX
        self._columns.stack(is_stacked=is_narrow)
        self.models.setMinimumWidth(0 if is_narrow else LIST_WIDTH_PX)
        self.models.setMaximumWidth(MAX_PX if is_narrow else LIST_WIDTH_PX)
        self.models.setMaximumHeight(LIST_HEIGHT_PX if is_narrow else MAX_PX)
        super().resizeEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Accept GGUF files and folders."""
        if dropped_paths(event.mimeData()):
            event.acceptProposedAction()
            self._drop.say("Let go to add it to the list.")

    def dragLeaveEvent(self, event: QDragLeaveEvent) -> None:
        """Forget the promise."""
        self._drop.say("")

    def dropEvent(self, event: QDropEvent) -> None:
        """Add what was dropped."""
        self._drop.say("")
        for path in dropped_paths(event.mimeData()):
            self._model.add(path)
        event.acceptProposedAction()


def dropped_paths(mime: QMimeData) -> list[Path]:
    """Return the GGUF files and folders among what is dragged."""
    paths = [Path(url.toLocalFile()) for url in mime.urls() if url.isLocalFile()]
    return [path for path in paths if path.is_dir() or path.suffix.lower() == SUFFIX]
