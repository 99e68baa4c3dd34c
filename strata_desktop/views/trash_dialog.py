"""What was deleted in the last 30 days, each with a way back."""

from __future__ import annotations

import datetime

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.viewmodels.chat import ChatModel
from strata_desktop.viewmodels.store import TRASH_DAYS, TrashedItem
from strata_desktop.views.theme import SPACE

TEXT_PX = 330
TITLE_PX = 110


class TrashDialog(QDialog):
    """Lists what can come back."""

    def __init__(self, model: ChatModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Recently deleted")
        self.setAccessibleName("Recently deleted")
        self.resize(560, 440)
        self._model = model
        title = QLabel("Recently deleted")
        title.setProperty("role", "title")
        text = QLabel(f"Deleted chats and messages are kept for {TRASH_DAYS} days.")
        text.setProperty("role", "muted")
        text.setWordWrap(True)
        self._area = QScrollArea()
        self._area.setWidgetResizable(True)
        self._area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        close = QPushButton("Close")
        close.setAccessibleName("Close")
        close.clicked.connect(self.accept)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(SPACE.xl, SPACE.l, SPACE.xl, SPACE.l)
        layout.setSpacing(SPACE.s)
        layout.addWidget(title)
        layout.addWidget(text)
        layout.addWidget(self._area, 1)
        layout.addWidget(close, 0, Qt.AlignmentFlag.AlignRight)
        self.refresh()

    def refresh(self) -> None:
        """Show the trash as it is now."""
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(0, SPACE.s, SPACE.s, SPACE.s)
        column.setSpacing(SPACE.s)
        items = self._model.trash()
        for item in items:
            column.addWidget(self._row(item))
        if not items:
            empty = QLabel("Nothing has been deleted.")
            empty.setProperty("role", "caption")
            column.addWidget(empty)
        column.addStretch()
        self._area.setWidget(page)

    def _row(self, item: TrashedItem) -> QWidget:
        card = QFrame()
        card.setProperty("role", "card")
        title = QLabel()
        title.setProperty("role", "strong")
        metrics = title.fontMetrics()
        n_messages = len(item.message_ids)
        shown = item.title if not n_messages else item.excerpt or "(empty message)"
        title.setText(metrics.elidedText(shown, Qt.TextElideMode.ElideRight, TEXT_PX))
        day = datetime.datetime.fromtimestamp(item.deleted_s).strftime("%d %B %Y, %H:%M")
        kind = "Chat"
        if n_messages:
            kind = "Message" if n_messages == 1 else f"{n_messages} messages"
            title_text = metrics.elidedText(item.title, Qt.TextElideMode.ElideRight, TITLE_PX)
            kind += f" of “{title_text}”"
        about = QLabel(f"{day} · {kind}")
        about.setProperty("role", "caption")
        button = QPushButton("Restore")
        button.setAccessibleName(f"Restore {shown}")
        button.clicked.connect(lambda: self._restore(item))
        for label in (title, about):
            # Cut off at the card's edge rather than push the button out.
            label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        texts = QVBoxLayout()
        texts.setSpacing(2)
        texts.addWidget(title)
        texts.addWidget(about)
        row = QHBoxLayout(card)
        row.setContentsMargins(SPACE.l, SPACE.s, SPACE.m, SPACE.s)
        row.addLayout(texts, 1)
        row.addWidget(button)
        return card

    def _restore(self, item: TrashedItem) -> None:
        self._model.restore(item)
        self.refresh()
