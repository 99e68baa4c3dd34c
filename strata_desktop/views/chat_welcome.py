"""What an empty chat shows: how to get a model, or what to ask one."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from strata_desktop.viewmodels.engine_state import EnginePhase, EngineState
from strata_desktop.viewmodels.starters import PROMPTS, Prompt, is_bard, prompts_for
from strata_desktop.views.icons import svg_pixmap
from strata_desktop.views.starter_cards import StarterCards
from strata_desktop.views.theme import SPACE

WIDTH_PX = 560


class ChatWelcome(QScrollArea):
    """The empty state.

    Signals:
        prompt_chosen: an example (its text).
        model_wanted: load one of the models to begin with (its path).
        file_wanted: pick a model file.
        restart_wanted: start the engine again.
    """

    prompt_chosen = Signal(str)
    model_wanted = Signal(object)
    file_wanted = Signal()
    restart_wanted = Signal()

    def __init__(self, engine: EngineState, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWidgetResizable(True)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName("Welcome")
        self._engine = engine
        mark = QLabel()
        mark.setPixmap(svg_pixmap("app", "#000000", 52, max(self.devicePixelRatioF(), 2.0)))
        mark.setFixedSize(QSize(52, 52))
        mark.setAccessibleName("Strata")
        self._title = QLabel()
        self._title.setProperty("role", "display")
        self._title.setWordWrap(True)
        self._text = QLabel()
        self._text.setProperty("role", "muted")
        self._text.setWordWrap(True)
        self._bar = QProgressBar()
        self._bar.setAccessibleName("Model loaded")
        self._bar.setTextVisible(False)
        self.starters = StarterCards()
        self.starters.chosen.connect(self.model_wanted)
        self._file = self._button("Open a model file…", self.file_wanted)
        self._restart = self._button("Start the engine again", self.restart_wanted, kind="primary")
        row = QHBoxLayout()
        row.setSpacing(SPACE.s)
        for button in (self._restart, self._file):
            row.addWidget(button)
        row.addStretch()
        self._examples = QWidget()
        grid = QGridLayout(self._examples)
        grid.setContentsMargins(0, SPACE.s, 0, 0)
        grid.setSpacing(SPACE.s)
        self._prompts: tuple[Prompt, ...] = ()
        self._prompt_buttons = [QPushButton() for _ in PROMPTS]
        for number, button in enumerate(self._prompt_buttons):
            button.setProperty("kind", "prompt")
            button.clicked.connect(
                lambda _=False, n=number: self.prompt_chosen.emit(self._prompts[n][1])
            )
            grid.addWidget(button, number // 2, number % 2)
        held = QWidget()
        held.setMaximumWidth(WIDTH_PX)
        column = QVBoxLayout(held)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE.m)
        for part in (mark, self._title, self._text, self._bar):
            column.addWidget(part)
        column.addWidget(self.starters)
        column.addLayout(row)
        column.addWidget(self._examples)
        page = QWidget()
        page.setProperty("role", "page")
        across = QHBoxLayout()
        across.addStretch(0)
        across.addWidget(held, 1)
        across.addStretch(0)
        down = QVBoxLayout(page)
        down.setContentsMargins(SPACE.xl, SPACE.xl, SPACE.xl, SPACE.xl)
        down.addStretch(2)
        down.addLayout(across)
        down.addStretch(3)
        self.setWidget(page)
        engine.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show what fits the engine's phase."""
        engine, phase = self._engine, self._engine.phase
        can_load = phase in (EnginePhase.NO_MODEL, EnginePhase.FAILED)
        self._title.setText(_title(engine))
        self._text.setText(_text(engine))
        self._bar.setVisible(phase in (EnginePhase.LOADING, EnginePhase.STARTING))
        if engine.load_share is None:
            self._bar.setRange(0, 0)
        else:
            self._bar.setRange(0, 1000)
            self._bar.setValue(round(1000 * engine.load_share))
        if can_load:
            self.starters.show_starters(engine.starters)
        self.starters.setVisible(can_load)
        self._file.setVisible(can_load)
        self._show_prompts(prompts_for(engine.model_id))
        self._restart.setVisible(phase is EnginePhase.OFFLINE)
        self._examples.setVisible(phase is EnginePhase.READY)

    def _show_prompts(self, prompts: tuple[Prompt, ...]) -> None:
        if prompts == self._prompts:
            return
        self._prompts = prompts
        for button, (label, prompt) in zip(self._prompt_buttons, prompts, strict=True):
            button.setText(label)
            button.setAccessibleName(f"Example: {prompt.strip()}")
            button.setToolTip(prompt.strip())

    def _button(self, text: str, signal: object, *, kind: str = "") -> QPushButton:
        button = QPushButton(text)
        button.setProperty("kind", kind)
        button.setAccessibleName(text.rstrip("…"))
        button.clicked.connect(signal)
        return button


def _title(engine: EngineState) -> str:
    return {
        EnginePhase.STARTING: "Starting…",
        EnginePhase.OFFLINE: "The engine is not running",
        EnginePhase.NO_MODEL: "Choose a model to begin",
        EnginePhase.LOADING: f"Loading {engine.model_name}",
        EnginePhase.READY: "What would you like to hear?"
        if is_bard(engine.model_id)
        else "What would you like to know?",
        EnginePhase.FAILED: "The model could not be loaded",
    }[engine.phase]


def _text(engine: EngineState) -> str:
    if engine.phase is EnginePhase.NO_MODEL:
        return (
            "Here are two small ones to begin with. For better answers open a larger one: any GGUF "
            "file of a supported architecture. Everything stays on this computer."
        )
    if engine.phase is EnginePhase.READY:
        if is_bard(engine.model_id):
            return "Bard is loaded. It writes in the manner of Shakespeare and knows no facts."
        return f"{engine.model_name} is loaded. Everything stays on this computer."
    if engine.phase is EnginePhase.STARTING:
        return "The engine starts in the background."
    return engine.detail
