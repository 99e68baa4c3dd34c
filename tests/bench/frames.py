"""Measures how smooth the window stays while four conversations are being written.

    python tests/bench/frames.py [--seconds 20] [--page memory] [--attach URL] [--size 1280x800]

It starts the real window with an engine of its own (or attaches to one), shows the memory page,
lets four clients in a process of their own write at once, and takes the time between the ticks of
a 60 Hz timer on the window's thread, each of which repaints a small part of the page. A second
run of the same length without any work is the comparison. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FRAME_MS = 16
SMOOTH_MS = 33.0
N_CLIENTS = 4
LIMIT_S = 300.0

PROMPTS = (
    "Write a long story about a lighthouse keeper.",
    "Explain at length how bread is made.",
    "Describe a walk through a large city, street by street.",
    "Tell the history of the bicycle in great detail.",
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each measurement")
    parser.add_argument("--page", default="memory", help="page to show")
    parser.add_argument("--attach", metavar="URL", help="use an engine that runs already")
    parser.add_argument("--size", default="1280x800", metavar="WxH")
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    parser.add_argument("--model", type=Path, help="GGUF file (default: the demo model)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write-to", metavar="URL", help=argparse.SUPPRESS)
    return parser.parse_args()


def write_for_ever(address: str) -> None:
    """Be the four clients: each has answers written until the process is ended."""

    # Loopback only: proxies of the environment have no say.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def write(number: int) -> None:
        while True:
            body = {
                "messages": [{"role": "user", "content": PROMPTS[number]}],
                "prompt_cache_key": f"frames-{number}",
                "max_tokens": 400,
                "temperature": 0.8,
                "stream": True,
            }
            request = urllib.request.Request(
                f"{address}/v1/chat/completions",
                data=json.dumps(body).encode(),
                headers={"Content-Type": "application/json"},
            )
            with opener.open(request, timeout=LIMIT_S) as reply:
                while reply.readline():
                    pass

    threads = [threading.Thread(target=write, args=(n,), daemon=True) for n in range(N_CLIENTS)]
    for thread in threads:
        thread.start()
    # Ends with the window: its end of the pipe closes.
    sys.stdin.read()


class Frames:
    """Ticks 60 times a second and keeps the time between ticks."""

    def __init__(self, canvas) -> None:
        from PySide6.QtCore import Qt, QTimer

        self._canvas = canvas
        self._last_s: float | None = None
        self.intervals_ms: list[float] = []
        self._timer = QTimer()
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(FRAME_MS)
        self._timer.timeout.connect(self._tick)

    def start(self) -> None:
        self._last_s = None
        self.intervals_ms = []
        self._timer.start()

    def stop(self) -> None:
        self._timer.stop()

    def _tick(self) -> None:
        now_s = time.perf_counter()
        if self._last_s is not None:
            self.intervals_ms.append(1000 * (now_s - self._last_s))
        self._last_s = now_s
        self._canvas.repaint()


def figures(intervals_ms: list[float]) -> dict[str, float]:
    """Return percentiles and the share of frames that were on time."""
    ordered = sorted(intervals_ms)

    def at(part: float) -> float:
        return ordered[min(len(ordered) - 1, int(part * len(ordered)))]

    n_smooth = sum(1 for interval in ordered if interval < SMOOTH_MS)
    return {
        "frames": len(ordered),
        "p50_ms": round(at(0.50), 1),
        "p95_ms": round(at(0.95), 1),
        "p99_ms": round(at(0.99), 1),
        "max_ms": round(ordered[-1], 1),
        "under_33_ms_percent": round(100 * n_smooth / len(ordered), 2),
    }


def main() -> None:
    arguments = parse_arguments()
    if arguments.write_to:
        write_for_ever(arguments.write_to)
        return
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    sys.path.insert(0, str(REPO))
    from tests.demo_model import require_model

    if not arguments.attach:
        arguments.model = require_model(arguments.model)
    with tempfile.TemporaryDirectory() as home:
        os.environ["STRATA_HOME"] = home
        results = measure(arguments, Path(home))
    if arguments.json:
        print(json.dumps(results))
        return
    for name, result in results.items():
        print(f"{name}: " + "  ".join(f"{key} {value}" for key, value in result.items()))


def measure(arguments: argparse.Namespace, home: Path) -> dict[str, dict[str, float]]:
    """Run the window, at rest and at work."""
    from PySide6.QtCore import QEvent, QEventLoop, QObject, QTimer

    from strata_desktop.app import build_app
    from strata_desktop.viewmodels.engine_state import EnginePhase

    argv = ["--theme", arguments.theme]
    if arguments.attach:
        argv += ["--attach", arguments.attach]
    else:
        argv += [str(arguments.model), "--port", "0", "--max-context", "4096"]
    app, window, host = build_app(argv, home)
    # The same as what the window's own start does; see strata_desktop.app.main.
    width, height = (int(number) for number in arguments.size.split("x"))
    window.resize(width, height)
    window.show_page(arguments.page)
    window.show()
    state = window._parts.engine

    def wait(until: Callable[[], bool], limit_s: float) -> None:
        end_s = time.monotonic() + limit_s
        while not until() and time.monotonic() < end_s:
            app.processEvents()
            time.sleep(0.005)

    class PaintCount(QObject):
        """Counts the paints of the page's parts."""

        n = 0

        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() is QEvent.Type.Paint:
                self.n += 1
            return False

    host.start()
    wait(lambda: state.phase in (EnginePhase.READY, EnginePhase.FAILED), LIMIT_S)
    if state.phase is not EnginePhase.READY:
        sys.exit(f"No model is ready: {state.detail}")
    page = window._pages[arguments.page]
    counter = PaintCount()
    watched = page.pool.map if arguments.page == "memory" else page
    watched.installEventFilter(counter)
    # A part of the page that changes with every frame, as an animation would.
    frames = Frames(window.navigation)
    results: dict[str, dict[str, float]] = {}

    def take(name: str) -> None:
        counter.n = 0
        frames.start()
        # A loop of its own: ending the application's would close the window.
        loop = QEventLoop()
        QTimer.singleShot(round(1000 * arguments.seconds), loop.quit)
        loop.exec()
        frames.stop()
        results[name] = figures(frames.intervals_ms)
        results[name]["repaints_per_s"] = round(counter.n / arguments.seconds, 1)

    wait(lambda: False, 1.0)
    take("at rest")
    clients = subprocess.Popen(
        [sys.executable, __file__, "--write-to", window._parts.client.base_url],
        stdin=subprocess.PIPE,
    )
    try:
        feed = window._parts.feed

        def n_writing() -> int:
            engine = feed.latest.engine if feed.latest is not None else None
            sessions = () if engine is None else engine.kv_pool.sessions
            return sum(1 for session in sessions if session.state == "writing")

        wait(lambda: n_writing() == N_CLIENTS, 60.0)
        take(f"{n_writing()} writing")
        engine = feed.latest.engine if feed.latest is not None else None
        if engine is not None:
            last = results[next(reversed(results))]
            last["decode_tok_s"] = round(engine.work.decode_tokens_per_s, 1)
    finally:
        if clients.stdin is not None:
            clients.stdin.close()
        clients.wait(10)
        window.close()
        window.end()
    return results


if __name__ == "__main__":
    main()
