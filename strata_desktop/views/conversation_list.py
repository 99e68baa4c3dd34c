"""The list of conversations beside the chat: new, search, by day, context menu, trash."""

from __future__ import annotations

from PySide6.QtCore import (
    QEvent,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QColor, QContextMenuEvent, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPushButton,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.viewmodels.chat import ChatModel
from strata_desktop.viewmodels.conversations import ListRole
from strata_desktop.views.icons import IconButton, icon
from strata_desktop.views.theme import RADIUS, SPACE, TYPE, colors

SIDEBAR_PX = 250
ROW_PX = 34
HEADING_PX = 36

AnyIndex = QModelIndex | QPersistentModelIndex


class ConversationRow(QStyledItemDelegate):
    """Draws a heading or a conversation with its mark."""

    def sizeHint(self, option: QStyleOptionViewItem, index: AnyIndex) -> QSize:
        """Return the height of a row."""
        return QSize(80, ROW_PX if index.data(ListRole.ID) else HEADING_PX)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: AnyIndex) -> None:
        """Draw a row."""
        shades = colors(option.widget)
        text = str(index.data(Qt.ItemDataRole.DisplayRole))
        rect = option.rect.adjusted(SPACE.s, 1, -SPACE.s, -1)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        font = option.font
        if not index.data(ListRole.ID):
            font.setPixelSize(TYPE.caption)
            painter.setFont(font)
            painter.setPen(QColor(shades.text_faint))
            place = rect.adjusted(SPACE.s + 2, 10, 0, 0)
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, text)
            painter.restore()
            return
        is_selected = bool(option.state & QStyle.StateFlag.State_Selected)
        is_over = bool(option.state & QStyle.StateFlag.State_MouseOver)
        if is_selected or is_over:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(QColor(shades.accent_soft if is_selected else shades.hover))
            painter.drawRoundedRect(QRectF(rect), RADIUS.m, RADIUS.m)
        if option.state & QStyle.StateFlag.State_HasFocus and is_selected:
            painter.setPen(QColor(shades.accent))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            frame = QRectF(rect).adjusted(0.5, 0.5, -0.5, -0.5)
            painter.drawRoundedRect(frame, RADIUS.m, RADIUS.m)
        is_marked = index.data(ListRole.IS_WRITING) or index.data(ListRole.HAS_NEWS)
        place = rect.adjusted(SPACE.s + 2, 0, -(22 if is_marked else SPACE.s), 0)
        if is_marked:
            center = QRectF(rect.right() - 15, rect.center().y() - 3, 7, 7)
            painter.setPen(QColor(shades.accent))
            is_full = index.data(ListRole.HAS_NEWS)
            painter.setBrush(QColor(shades.accent) if is_full else Qt.BrushStyle.NoBrush)
            painter.drawEllipse(center)
        painter.setPen(QColor(shades.text))
        painter.setFont(font)
        elided = painter.fontMetrics().elidedText(text, Qt.TextElideMode.ElideRight, place.width())
        painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, elided)
        painter.restore()


class ConversationListView(QListView):
    """The rows.

    Signals:
        delete_wanted, rename_wanted: of a conversation (its id).
        menu_wanted: the context menu of a conversation (its id, where).
    """

    delete_wanted = Signal(str)
    rename_wanted = Signal(str)
    menu_wanted = Signal(str, QPoint)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAccessibleName("Conversations")
        self.setItemDelegate(ConversationRow(self))
        self.setMouseTracking(True)
        self.setUniformItemSizes(False)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setTabKeyNavigation(False)

    def current_id(self) -> str:
        """Return the id of the row with the focus, "" if none."""
        return str(self.currentIndex().data(ListRole.ID) or "")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Delete deletes (with undo); Backspace does nothing here."""
        if event.key() == Qt.Key.Key_Delete and self.current_id():
            self.delete_wanted.emit(self.current_id())
        elif event.key() == Qt.Key.Key_F2 and self.current_id():
            self.rename_wanted.emit(self.current_id())
        elif event.key() != Qt.Key.Key_Backspace:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Open the menu of the row under the pointer, or of the current one by key."""
        is_key = event.reason() == QContextMenuEvent.Reason.Keyboard
        index = self.currentIndex() if is_key else self.indexAt(event.pos())
        if conversation_id := str(index.data(ListRole.ID) or ""):
            place = self.visualRect(index).center() if is_key else event.pos()
            self.menu_wanted.emit(conversation_id, self.viewport().mapToGlobal(place))


class Sidebar(QWidget):
    """New chat, search, the list, the trash.

    Signals:
        rename_wanted: a conversation is to be renamed (its id).
        trash_wanted: show what was deleted.
        chosen: a conversation was picked, the prompt may take the focus.
    """

    rename_wanted = Signal(str)
    trash_wanted = Signal()
    chosen = Signal()

    def __init__(self, model: ChatModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setFixedWidth(SIDEBAR_PX)
        self._model = model
        self._new = QPushButton("New chat")
        self._new.setAccessibleName("New chat")
        self._new.setToolTip("New chat (Ctrl+N)")
        self._new.clicked.connect(model.new_chat)
        self._search = QLineEdit()
        self._search.setPlaceholderText("Search chats")
        self._search.setAccessibleName("Search chats")
        self._search.setToolTip("Search titles and messages (Ctrl+K)")
        self._search.setClearButtonEnabled(True)
        self._search.textChanged.connect(self._on_search)
        self.list = ConversationListView()
        self.list.setModel(model.conversations)
        self.list.clicked.connect(self._on_clicked)
        self.list.activated.connect(self._on_clicked)
        self.list.selectionModel().currentChanged.connect(self._on_current)
        self.list.delete_wanted.connect(model.delete)
        self.list.rename_wanted.connect(self.rename_wanted)
        self.list.menu_wanted.connect(self._open_menu)
        self._empty = QLabel()
        self._empty.setProperty("role", "caption")
        self._empty.setWordWrap(True)
        self._empty.setContentsMargins(SPACE.l, SPACE.s, SPACE.l, 0)
        self._trash = IconButton("trash", "Recently deleted", side_px=18)
        self._trash.clicked.connect(self.trash_wanted)
        head = QVBoxLayout()
        head.setContentsMargins(SPACE.m, SPACE.m, SPACE.m, SPACE.s)
        head.setSpacing(SPACE.s)
        head.addWidget(self._new)
        head.addWidget(self._search)
        foot = QHBoxLayout()
        foot.setContentsMargins(SPACE.m, SPACE.xs, SPACE.m, SPACE.s)
        foot.addWidget(self._trash)
        foot.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 1, 0)
        layout.setSpacing(0)
        layout.addLayout(head)
        layout.addWidget(self._empty)
        layout.addWidget(self.list, 1)
        layout.addLayout(foot)
        model.conversations.modelReset.connect(self._select_current)
        model.current_changed.connect(self._select_current)
        self._tint()
        self._select_current()

    def focus_search(self) -> None:
        """Begin to search."""
        self._search.setFocus()
        self._search.selectAll()

    def changeEvent(self, event: QEvent) -> None:
        """Follow the theme."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange and hasattr(self, "_new"):
            self._tint()

    def _tint(self) -> None:
        self._new.setIcon(icon("plus", colors(self).text))

    def _on_search(self, text: str) -> None:
        self._model.conversations.set_search(text)
        self._select_current()

    def _on_clicked(self, index: QModelIndex) -> None:
        if conversation_id := str(index.data(ListRole.ID) or ""):
            self._model.select(conversation_id)
            self.chosen.emit()

    def _on_current(self, index: QModelIndex) -> None:
        # By keys; while the list itself is being rebuilt it must not choose for the person.
        if self.list.hasFocus() and (conversation_id := str(index.data(ListRole.ID) or "")):
            self._model.select(conversation_id)

    def _select_current(self) -> None:
        listed = self._model.conversations
        row = listed.row_of(self._model.current.id)
        selection = self.list.selectionModel()
        if row < 0:
            selection.clear()
        elif self.list.currentIndex().row() != row or not selection.hasSelection():
            self.list.setCurrentIndex(listed.index(row))
        self._empty.setVisible(listed.n_conversations == 0)
        self._empty.setText(
            "No chat contains this." if listed.search else "Your chats will appear here."
        )

    def _open_menu(self, conversation_id: str, place: QPoint) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction("Rename…", lambda: self.rename_wanted.emit(conversation_id))
        menu.addAction("Delete", lambda: self._model.delete(conversation_id))
        menu.popup(place)
