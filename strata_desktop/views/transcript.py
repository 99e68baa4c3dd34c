"""The messages of a conversation, scrolled; stays at the end only if the person is there."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QScrollArea, QVBoxLayout, QWidget

from strata_desktop.viewmodels.conversation import Conversation
from strata_desktop.views.icons import IconButton
from strata_desktop.views.message_view import MessageView
from strata_desktop.views.theme import SPACE

COLUMN_PX = 780
N_AT_ONCE = 40
"""Messages shown at first, and more each time the top is reached: a long chat opens quickly."""
NEAR_END_PX = 24
NEAR_TOP_PX = 120


class Transcript(QScrollArea):
    """All messages of one conversation.

    Signals:
        action_wanted: something is to be done with a message (its id, a MessageAction).
        edited: a message was changed and is to be sent (its id, the text).
    """

    action_wanted = Signal(int, object)
    edited = Signal(int, str)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Messages")
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # Always there, so that the text does not change its width when the bar would come.
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._conversation: Conversation | None = None
        self._views: dict[int, MessageView] = {}
        self._n_hidden = 0
        self._is_following = True
        self._old_height = 0
        self._keeps_place = False
        self._page = QWidget()
        self._page.setProperty("role", "page")
        self._column = QVBoxLayout(self._page)
        self._column.setSpacing(SPACE.l)
        self._column.addStretch(1)
        self.setWidget(self._page)
        self._page.installEventFilter(self)
        self._jump = IconButton("arrow-down", "Jump to the latest message", self, tint="text")
        self._jump.setProperty("kind", "round")
        self._jump.setFixedSize(QSize(34, 34))
        self._jump.clicked.connect(self.follow)
        self._jump.hide()
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._on_scrolled)
        bar.rangeChanged.connect(self._on_range)
        bar.setEnabled(False)

    @property
    def is_following(self) -> bool:
        """Whether new text scrolls into view."""
        return self._is_following

    @property
    def views(self) -> list[MessageView]:
        """The messages shown, in order."""
        return list(self._views.values())

    def show_conversation(self, conversation: Conversation) -> None:
        """Show another conversation, from its end."""
        if self._conversation is not None:
            self._conversation.reset.disconnect(self._rebuild)
            self._conversation.added.disconnect(self._on_added)
            self._conversation.changed.disconnect(self._on_changed)
            self._conversation.progress_changed.disconnect(self._on_progress)
        self._conversation = conversation
        conversation.reset.connect(self._rebuild)
        conversation.added.connect(self._on_added)
        conversation.changed.connect(self._on_changed)
        conversation.progress_changed.connect(self._on_progress)
        self._rebuild()
        self.follow()

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._is_following = True
        self._jump.hide()
        bar = self.verticalScrollBar()
        bar.setValue(bar.maximum())

    def scroll_by(self, n_pages: float) -> None:
        """Scroll by parts of the visible height."""
        bar = self.verticalScrollBar()
        bar.setValue(bar.value() + int(n_pages * bar.pageStep()))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the column in the middle and the button at its place."""
        super().resizeEvent(event)
        self._center()
        self._jump.move(
            (self.viewport().width() - self._jump.width()) // 2,
            self.viewport().height() - self._jump.height() - SPACE.m,
        )

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Catch up with text whose height was only now laid out."""
        if event.type() == QEvent.Type.LayoutRequest and self._is_following:
            self._column.activate()
        return super().eventFilter(watched, event)

    def _center(self) -> None:
        side = max(SPACE.xl, (self.viewport().width() - COLUMN_PX) // 2)
        self._column.setContentsMargins(side, SPACE.xl, side, SPACE.xl)

    def _rebuild(self) -> None:
        if self._conversation is None:
            return
        messages = self._conversation.messages
        shown = {m.id for m in messages[-max(N_AT_ONCE, len(self._views)) :]}
        for message_id in [i for i in self._views if i not in shown]:
            self._drop(message_id)
        kept, self._views = self._views, {}
        place = 0
        for message in messages:
            if message.id not in shown:
                continue
            view = kept.get(message.id)
            if view is None:
                view = self._make(message.id)
                self._column.insertWidget(place, view)
            else:
                view.show_message(message)
            self._views[message.id] = view
            place += 1
        self._n_hidden = len(messages) - len(shown)
        self._on_progress()

    def _on_added(self, message_id: int) -> None:
        view = self._make(message_id)
        self._views[message_id] = view
        self._column.insertWidget(self._column.count() - 1, view)
        self.follow()

    def _on_changed(self, message_id: int) -> None:
        view = self._views.get(message_id)
        message = self._conversation.message(message_id) if self._conversation else None
        if view is not None and message is not None:
            view.show_message(message)

    def _on_progress(self) -> None:
        if self._conversation is None or not self._conversation.messages:
            return
        view = self._views.get(self._conversation.messages[-1].id)
        if view is not None:
            view.show_progress(self._conversation.progress)

    def _make(self, message_id: int) -> MessageView:
        message = self._conversation.message(message_id) if self._conversation else None
        if message is None:
            raise KeyError(f"There is no message {message_id} in this conversation.")
        view = MessageView(message)
        view.action_wanted.connect(self.action_wanted)
        view.edited.connect(self.edited)
        return view

    def _drop(self, message_id: int) -> None:
        view = self._views.pop(message_id)
        self._column.removeWidget(view)
        view.hide()
        view.deleteLater()

    def _show_earlier(self) -> None:
        """Put the messages before the first one shown above it, and keep the place."""
        if self._conversation is None or not self._n_hidden:
            return
        first = max(0, self._n_hidden - N_AT_ONCE)
        earlier = self._conversation.messages[first : self._n_hidden]
        self._n_hidden = first
        self._keeps_place = True
        self._old_height = self.verticalScrollBar().maximum()
        made = {message.id: self._make(message.id) for message in earlier}
        for place, view in enumerate(made.values()):
            self._column.insertWidget(place, view)
        self._views = {**made, **self._views}

    def _on_scrolled(self, value: int) -> None:
        bar = self.verticalScrollBar()
        self._is_following = value >= bar.maximum() - NEAR_END_PX
        self._jump.setVisible(not self._is_following)
        if value < NEAR_TOP_PX and self._n_hidden and not self._keeps_place:
            self._show_earlier()

    def _on_range(self, _minimum: int, maximum: int) -> None:
        bar = self.verticalScrollBar()
        # A disabled bar shows no handle: there is nothing to scroll.
        bar.setEnabled(maximum > 0)
        if self._is_following:
            bar.setValue(maximum)
        elif self._keeps_place:
            self._keeps_place = False
            bar.setValue(bar.value() + maximum - self._old_height)
        self._jump.setVisible(not self._is_following)
