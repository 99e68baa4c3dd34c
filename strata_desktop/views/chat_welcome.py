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
from strata_desktop.views.icons import svg_pixmap
from strata_desktop.views.theme import SPACE

WIDTH_PX = 560

EXAMPLES = (
    ("Explain an idea", "Explain how a hash table works, with a small example."),
    ("Write some code", "Write a Python function that finds all primes below n, with comments."),
    ("Improve a text", "Make this sentence clearer: "),
    ("Plan something", "Help me plan a quiet weekend with two friends."),
)


class ChatWelcome(QScrollArea):
    """The empty state.

    Signals:
        prompt_chosen: an example (its text).
        demo_wanted: load the demo model.
        file_wanted: pick a model file.
        restart_wanted: start the engine again.
    """

    prompt_chosen = Signal(str)
    demo_wanted = Signal()
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
        self._demo = self._button("Load the demo model", self.demo_wanted, kind="primary")
        self._file = self._button("Open a model file…", self.file_wanted)
        self._restart = self._button("Start the engine again", self.restart_wanted, kind="primary")
        row = QHBoxLayout()
        row.setSpacing(SPACE.s)
        for button in (self._demo, self._restart, self._file):
            row.addWidget(button)
        row.addStretch()
        self._examples = QWidget()
        grid = QGridLayout(self._examples)
        grid.setContentsMargins(0, SPACE.s, 0, 0)
        grid.setSpacing(SPACE.s)
        for number, (label, prompt) in enumerate(EXAMPLES):
            button = QPushButton(label)
            button.setProperty("kind", "prompt")
            button.setAccessibleName(f"Example: {prompt.strip()}")
            button.setToolTip(prompt.strip())
            button.clicked.connect(lambda _=False, p=prompt: self.prompt_chosen.emit(p))
            grid.addWidget(button, number // 2, number % 2)
        held = QWidget()
        held.setMaximumWidth(WIDTH_PX)
        column = QVBoxLayout(held)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(SPACE.m)
        for part in (mark, self._title, self._text, self._bar):
            column.addWidget(part)
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
        has_demo = engine.demo_path is not None
        self._title.setText(_title(engine))
        self._text.setText(_text(engine, has_demo=has_demo))
        self._bar.setVisible(phase in (EnginePhase.LOADING, EnginePhase.STARTING))
        if engine.load_share is None:
            self._bar.setRange(0, 0)
        else:
            self._bar.setRange(0, 1000)
            self._bar.setValue(round(1000 * engine.load_share))
        self._demo.setVisible(can_load and has_demo)
        self._file.setVisible(can_load)
        self._file.setProperty("kind", "" if has_demo else "primary")
        self._restart.setVisible(phase is EnginePhase.OFFLINE)
        self._examples.setVisible(phase is EnginePhase.READY)

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
        EnginePhase.READY: "What would you like to know?",
        EnginePhase.FAILED: "The model could not be loaded",
    }[engine.phase]


def _text(engine: EngineState, *, has_demo: bool) -> str:
    if engine.phase is EnginePhase.NO_MODEL:
        if has_demo:
            return (
                "The small demo model is on this computer already and ready in a second. "
                "For better answers open a larger one: any GGUF file of a supported architecture."
            )
        return "Open a GGUF file of a supported architecture. It stays on this computer."
    if engine.phase is EnginePhase.READY:
        return f"{engine.model_name} is loaded. Everything stays on this computer."
    if engine.phase is EnginePhase.STARTING:
        return "The engine starts in the background."
    return engine.detail
