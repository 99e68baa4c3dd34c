"""The window program: reads the arguments, joins the parts, runs until the window is closed."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QLockFile, QObject, Qt, Signal
from PySide6.QtWidgets import QApplication, QMessageBox

from engine.config import DEFAULT_PORT, ApiConfig
from engine.errors import ConfigError
from engine.paths import data_home, find_model, named_models
from strata_desktop.client.api_client import ApiClient
from strata_desktop.client.engine_host import EngineHost, LoadOptions
from strata_desktop.client.garbage import GarbageTimer
from strata_desktop.client.status_feed import StatusFeed
from strata_desktop.viewmodels.chat import ChatModel
from strata_desktop.viewmodels.engine_state import EngineState
from strata_desktop.viewmodels.settings import WindowSettings
from strata_desktop.viewmodels.store import ConversationStore, StoreError
from strata_desktop.views.icons import app_icon
from strata_desktop.views.main_window import MainWindow, WindowParts
from strata_desktop.views.theme import Theme, ThemeMode

logger = logging.getLogger(__name__)

STORE_FILE = "chats.sqlite3"
LOCK_FILE = "desktop.lock"


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line (without the program's name)."""
    parser = argparse.ArgumentParser(
        prog="strata-desktop", description="Chat with a model on this computer, in a window."
    )
    names = " or ".join(named_models())
    what = f"model to load at the start: a GGUF file, or {names} (default: choose in the window)"
    parser.add_argument("model", metavar="MODEL", nargs="?", type=find_model, help=what)
    parser.add_argument(
        "--model", metavar="MODEL", dest="model_flag", type=find_model, help="the same as a flag"
    )
    parser.add_argument("--attach", metavar="URL", help="use an engine that runs already")
    parser.add_argument("--port", type=int, help=f"port of the API (default {DEFAULT_PORT})")
    parser.add_argument("--kv-pool-tokens", type=int, help="cells of the shared K/V pool")
    parser.add_argument("--batch", type=int, default=4, help="conversations computed at once")
    parser.add_argument("--max-context", type=int, help="longest conversation, in tokens")
    parser.add_argument("--theme", choices=[mode.value for mode in ThemeMode], help="light or dark")
    arguments = parser.parse_args(argv)
    if arguments.model is None:
        arguments.model = arguments.model_flag
    return arguments


def build_app(
    argv: Sequence[str], home: Path | None = None
) -> tuple[QApplication, MainWindow, EngineHost]:
    """Make the whole program; the engine starts once the host is told to.

    Args:
        argv: the command line without the program's name.
        home: folder for chats and settings; None = the usual one.

    Returns:
        The application, its window (not shown yet) and the engine's host (not started yet).

    Raises:
        StoreError: the chats cannot be opened.
        ConfigError: an argument cannot be used.
    """
    arguments = parse_arguments(argv)
    home = home or data_home()
    running = QApplication.instance()
    app = running if isinstance(running, QApplication) else QApplication(["strata-desktop"])
    app.setApplicationName("Strata")
    app.setDesktopFileName("strata-desktop")
    app.setWindowIcon(app_icon())
    settings = WindowSettings(home)
    mode = arguments.theme or settings.text("theme", ThemeMode.SYSTEM.value)
    is_known = mode in {one.value for one in ThemeMode}
    theme = Theme(app, ThemeMode(mode) if is_known else ThemeMode.SYSTEM)
    store = ConversationStore(home / STORE_FILE)
    client = ApiClient()
    api = ApiConfig(
        port=DEFAULT_PORT if arguments.port is None else arguments.port,
        is_port_fixed=arguments.port not in (None, 0),
    )
    options = LoadOptions(
        context_tokens=arguments.max_context,
        pool_tokens=arguments.kv_pool_tokens,
        n_lanes=arguments.batch,
    )
    host = EngineHost(client, api=api, attach_url=arguments.attach, options=options)
    feed = StatusFeed(client)
    engine = EngineState(feed, host, models_dir=home / "models")
    chat = ChatModel(store, client, model_id=lambda: engine.model_id)
    window = MainWindow(
        WindowParts(
            host=host,
            client=client,
            feed=feed,
            store=store,
            chat=chat,
            engine=engine,
            settings=settings,
            theme=theme,
        )
    )
    if store.notice:
        window.say_error(store.notice)
    host.started.connect(lambda _address: feed.restart())
    if arguments.model is not None:
        model = arguments.model.absolute()
        host.started.connect(lambda _address: engine.load(model))
    return app, window, host


class ErrorReport(QObject):
    """Shows exceptions nobody caught, from any thread, and lets the program go on.

    Signals:
        raised: what to say.
    """

    raised = Signal(str)

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self.raised.connect(self._show, Qt.ConnectionType.QueuedConnection)

    def install(self) -> None:
        """Take the place of the interpreter's hooks."""
        sys.excepthook = self.report
        threading.excepthook = lambda args: self.report(
            args.exc_type, args.exc_value, args.exc_traceback
        )

    def report(
        self,
        kind: type[BaseException],
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Log an exception and say it in the window."""
        if error is None or issubclass(kind, KeyboardInterrupt):
            QApplication.quit()
            return
        logger.error("Something went wrong.", exc_info=(kind, error, traceback))
        text = str(error) or kind.__name__
        self.raised.emit(f"Something went wrong: {text}. Your chats are safe; you can go on.")

    def _show(self, text: str) -> None:
        self._say(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the window.

    Returns:
        Exit status: 0, or 1 when it could not start.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    arguments = list(sys.argv[1:] if argv is None else argv)
    parse_arguments(arguments)
    home = data_home()
    home.mkdir(parents=True, exist_ok=True)
    app = QApplication(["strata-desktop"])
    lock = QLockFile(str(home / LOCK_FILE))
    if not lock.tryLock(200):
        return _refuse(f"Strata is open already with the data folder {home}.")
    try:
        app, window, host = build_app(arguments, home)
    except (StoreError, ConfigError, OSError) as error:
        return _refuse(str(error))
    garbage = GarbageTimer(window.is_quiet)
    report = ErrorReport(window.say_error)
    report.install()
    window.show()
    host.start()
    app.aboutToQuit.connect(window.end)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: app.quit())
    status = app.exec()
    window.end()
    garbage.stop()
    lock.unlock()
    return status


def _refuse(text: str) -> int:
    logger.error("%s", text)
    QMessageBox.critical(None, "Strata", text)
    return 1


if __name__ == "__main__":
    sys.exit(main())
