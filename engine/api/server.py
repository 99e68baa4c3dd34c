"""The HTTP server in a thread of its own, on a socket that is bound before it starts.

What it serves is `engine.api.app`; who starts and stops it is `engine.service`.
"""

from __future__ import annotations

import errno
import logging
import socket
import sys
import threading
import time

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.api.errors import Fault
from engine.config import ApiConfig
from engine.errors import ConfigError, EngineStoppedError

logger = logging.getLogger(__name__)

N_PORTS = 64
"""Ports tried, the first one included, before giving up."""

BACKLOG = 128
START_LIMIT_S = 20.0
STOP_LIMIT_S = 5.0

TAKEN = frozenset(
    {errno.EADDRINUSE, errno.EACCES} if sys.platform == "win32" else {errno.EADDRINUSE}
)
"""Windows says "access denied" for ports it has set aside; the next one may do."""


def bind(config: ApiConfig) -> socket.socket:
    """Bind the first free port.

    Args:
        config: address, first port, and whether another one will do.

    Returns:
        A bound socket, not listening yet.

    Raises:
        ConfigError: the address is not one of this machine, or no port is free.
    """
    host = config.host.strip("[]")
    try:
        choices = socket.getaddrinfo(host, config.port, type=socket.SOCK_STREAM)
    except OSError as fault:
        raise ConfigError(
            f"--host {config.host!r} cannot be resolved: {fault.strerror}. "
            "Use 127.0.0.1 for this machine only, 0.0.0.0 for the whole network."
        ) from fault
    # Where a name has both, most programs try 127.0.0.1.
    choices.sort(key=lambda choice: choice[0] is not socket.AF_INET)
    family, _, _, _, found = choices[0]
    n_ports = 1 if config.is_port_fixed or config.port == 0 else N_PORTS
    last = min(config.port + n_ports - 1, 65535)
    for port in range(config.port, last + 1):
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            if sys.platform == "win32":
                # There SO_REUSEADDR would let two servers share the port.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            else:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((found[0], port, *found[2:]))
            sock.listen(BACKLOG)
        except OSError as fault:
            sock.close()
            if fault.errno not in TAKEN:
                raise ConfigError(
                    f"The API cannot listen on {config.host}:{port}: {fault.strerror}."
                ) from fault
            continue
        return sock
    if config.is_port_fixed:
        raise ConfigError(
            f"Port {config.port} is in use by another program. Stop that one, or choose another "
            "--port."
        )
    raise ConfigError(f"Ports {config.port} to {last} are all in use. Choose another --port.")


def base_url(sock: socket.socket) -> str:
    """Return the address programs on this machine reach a bound socket at."""
    host, port = sock.getsockname()[:2]
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class JsonProtocol(H11Protocol):
    """HTTP/1.1 whose answer to what is no HTTP has the envelope of every other error."""

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be read, and close the connection.

        Args:
            msg: the server's own words.
        """
        fault = Fault(
            status=400,
            message=f"{msg} The first line, a header or the length of the body is wrong, or the "
            "Host header is missing.",
            code="invalid_http",
        )
        body = fault.envelope().model_dump_json().encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class ApiServer:
    """Runs an ASGI application in a thread.

    Attributes:
        address: base URL for this machine.
        note: what a person should know about the address, "" if nothing.
    """

    def __init__(self, app: ASGIApp, config: ApiConfig) -> None:
        """Bind the socket; nothing is answered before `start`.

        Raises:
            ConfigError: there is no port to bind.
        """
        self._socket = bind(config)
        self.address = base_url(self._socket)
        port = self._socket.getsockname()[1]
        self.note = ""
        if config.port not in (0, port):
            self.note = f"Port {config.port} is in use; the API listens on {port} instead."
            logger.warning("%s", self.note)
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                lifespan="off",
                ws="none",
                http=JsonProtocol,
                loop="asyncio",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        self._thread = threading.Thread(target=self._serve, name="strata-api", daemon=True)

    def start(self) -> None:
        """Start the thread and wait until it answers.

        Raises:
            EngineStoppedError: the server ended at once; the log says why.
        """
        self._thread.start()
        limit_s = time.monotonic() + START_LIMIT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > limit_s:
                raise EngineStoppedError(f"The HTTP server at {self.address} did not start.")
            time.sleep(0.005)
        logger.info("The API listens on %s", self.address)

    def stop(self) -> None:
        """Take no more connections, let open replies end for a second, end the thread."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_LIMIT_S)
            if self._thread.is_alive():
                logger.error("The HTTP server did not end within %g seconds", STOP_LIMIT_S)
        self._socket.close()

    def _serve(self) -> None:
        self._server.run(sockets=[self._socket])
