"""`strata serve`: the HTTP API without a window."""

from __future__ import annotations

import argparse
import faulthandler
import json
import math
import signal
import sys
import threading
from types import FrameType

from engine.commands.options import add_lengths, add_model, add_pool, pooled_config
from engine.config import DEFAULT_PORT, ApiConfig
from engine.errors import ConfigError

POLL_S = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    api = ApiConfig()
    add_model(parser)
    group = parser.add_argument_group("HTTP")
    group.add_argument(
        "--host",
        default=api.host,
        metavar="ADDRESS",
        help="address to listen on (default: %(default)s, this computer only)",
    )
    group.add_argument(
        "--port",
        type=int,
        metavar="N",
        help=f"port; fails if it is taken (default: {DEFAULT_PORT} or the next free one)",
    )
    group.add_argument("--api-key", metavar="KEY", help="requests must carry this key")
    group.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="answer requests whose Host header says NAME too; may be given several times",
    )
    group.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let web pages of ORIGIN in, for example https://chat.example; may be given several "
        "times",
    )
    group.add_argument(
        "--keep-alive",
        type=float,
        default=api.keep_alive_s,
        metavar="SECONDS",
        help="silence after which a stream sends a comment line, 0 = never (default: %(default)g)",
    )
    group.add_argument("--alias", metavar="NAME", help="model id shown by the API")
    group.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object a line on stdout: listening, then ready",
    )
    add_pool(parser)
    add_lengths(parser)


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl+C or SIGTERM.

    Raises:
        EngineError: the port is taken, or the model cannot be loaded.
    """
    config = pooled_config(options)
    if not 0 <= options.keep_alive < math.inf:
        raise ConfigError(f"--keep-alive must be 0 or more seconds, got {options.keep_alive:g}.")
    if sys.__stderr__ is not None:
        # A model file that is cut short while it is mapped ends the process; say so at least.
        faulthandler.enable(sys.__stderr__, all_threads=False)
    from engine.commands.answering import wait_until_loaded
    from engine.service import EngineService

    service = EngineService(
        ApiConfig(
            host=options.host,
            port=DEFAULT_PORT if options.port is None else options.port,
            is_port_fixed=options.port is not None,
            api_key=options.api_key,
            allowed_hosts=tuple(options.allow_host),
            allowed_origins=tuple(options.allow_origin),
            keep_alive_s=options.keep_alive,
        )
    )
    ended = threading.Event()

    def on_terminate(number: int, frame: FrameType | None) -> None:
        ended.set()

    previous = signal.signal(signal.SIGTERM, on_terminate)
    try:
        address = service.start()
        tell(options, event="listening", address=address)
        service.load(config)
        wait_until_loaded(service)
        loaded = service.loaded
        assert loaded is not None
        tell(options, event="ready", address=address, model=loaded.summary.id)
        # Windows wakes the main thread for Ctrl+C only between short waits.
        while not ended.wait(POLL_S):
            pass
    finally:
        service.stop()
        signal.signal(signal.SIGTERM, previous)
    return 0


def tell(options: argparse.Namespace, *, event: str, address: str, model: str = "") -> None:
    """Say what happened: JSON on stdout for scripts, a sentence on stderr for people."""
    if options.json:
        fields = {"event": event, "address": address}
        if model:
            fields["model"] = model
        print(json.dumps(fields), flush=True)
    elif event == "listening":
        print(f"Listening on {address} (the model is being loaded)", file=sys.stderr)
    else:
        print(f"Ready: {model} at {address}/v1 (Ctrl+C stops)", file=sys.stderr)
