"""Who may talk to the API: Host, Origin and key are checked here before anything else runs.

A web page must not reach a local server through a DNS name of its own (rebinding) or by a plain
cross-site request. So Host must name this machine, and an Origin must be local or allowed.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.api.errors import Fault
from engine.config import ApiConfig

OPEN_PATHS = frozenset({"/health"})
"""Addresses that need no key."""

PREFLIGHT_SECONDS = 600

ALLOWED_METHODS = "GET, POST, OPTIONS"
DEFAULT_HEADERS = "authorization, content-type, x-api-key"


def host_name(host: str) -> str | None:
    """Return the name in a Host header or an origin, in lower case, without port and brackets.

    Args:
        host: "name", "name:port", "1.2.3.4:port" or "[::1]:port".

    Returns:
        The name, or None if the header is malformed.
    """
    host = host.strip()
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        if not bracket or (port and not port.startswith(":")) or not _is_address(name):
            return None
        port = port[1:]
    else:
        name, _, port = host.partition(":")
    if port and not (port.isascii() and port.isdigit() and int(port) < 65536):
        return None
    name = name.rstrip(".").lower()
    return name if name and not any(c.isspace() or c in "/@\\" for c in name) else None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(name: str) -> bool:
    """Whether a name can only mean this machine: localhost, *.localhost, 127.x.x.x, ::1."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    if not _is_address(name):
        return False
    address = ipaddress.ip_address(name)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def machine_names(hostname: str) -> frozenset[str]:
    """Return the names others on the network may use for this machine."""
    full = hostname.lower().rstrip(".")
    names = {full, full.partition(".")[0]} - {""}
    return frozenset(names | {f"{name}.local" for name in names})


class HostCheck:
    """ASGI middleware: refuses foreign hosts and origins, adds CORS headers, checks the key.

    Attributes:
        is_local: whether the API listens on loopback only; then only loopback hosts pass.
        names: host names accepted besides.
    """

    def __init__(
        self, app: ASGIApp, *, config: ApiConfig, own_names: Iterable[str] | None = None
    ) -> None:
        """Wrap an application.

        Args:
            app: what runs after the checks.
            config: bind address, key, allowed hosts and origins.
            own_names: names of this machine; None = asked from the system.
        """
        self.is_local = is_loopback(config.host.strip("[]").lower())
        own = machine_names(socket.gethostname()) if own_names is None else frozenset(own_names)
        allowed = {name for host in config.allowed_hosts if (name := host_name(host)) is not None}
        self.names = frozenset(allowed if self.is_local else allowed | own)
        self._app = app
        self._any_host = "*" in config.allowed_hosts
        self._origins = frozenset(origin.rstrip("/").lower() for origin in config.allowed_origins)
        self._key = None if config.api_key is None else config.api_key.strip().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        if (fault := self._host_fault(headers) or self._origin_fault(headers)) is not None:
            await fault.response()(scope, receive, send)
            return
        if origin is not None:
            send = _with_cors(send, origin)
            if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                await _preflight(headers)(scope, receive, send)
                return
        if (fault := self._key_fault(headers, scope["path"])) is not None:
            reply = fault.response({"WWW-Authenticate": "Bearer"})
            await reply(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _host_fault(self, headers: Headers) -> Fault | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or (name := host_name(hosts[0])) is None:
            return Fault(
                status=HTTPStatus.BAD_REQUEST,
                message="The request needs exactly one Host header with the server's name, "
                f"got {hosts!r}.",
                code="invalid_host",
            )
        if self._key is not None or self._any_host or self._is_own(name):
            return None
        known = "127.0.0.1 or localhost" if self.is_local else "this machine's name or IP address"
        return Fault(
            status=HTTPStatus.FORBIDDEN,
            message=f"The Host header says {name!r}, which this server does not answer to, so "
            f"that no web page can reach it through a DNS name of its own. Use {known}, add the "
            "name to the setting allowed_hosts (--allow-host), or set an API key (--api-key).",
            code="host_not_allowed",
        )

    def _is_own(self, name: str) -> bool:
        if is_loopback(name) or name in self.names:
            return True
        return not self.is_local and _is_address(name)

    def _origin_fault(self, headers: Headers) -> Fault | None:
        origin = headers.get("origin")
        if origin is None or self._is_origin_allowed(origin, headers["host"]):
            return None
        return Fault(
            status=HTTPStatus.FORBIDDEN,
            message=f"The web page {origin!r} may not use this server. Add its origin to the "
            "setting allowed_origins (--allow-origin) if you trust it.",
            code="origin_not_allowed",
        )

    def _is_origin_allowed(self, origin: str, host: str) -> bool:
        if "*" in self._origins or origin.lower() in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        if parts.scheme not in ("http", "https"):
            return False
        if parts.netloc.lower() == host.strip().lower():
            return True
        name = host_name(parts.netloc)
        return name is not None and is_loopback(name)

    def _key_fault(self, headers: Headers, path: str) -> Fault | None:
        if self._key is None or path in OPEN_PATHS:
            return None
        given = sent_key(headers)
        # Header text is the bytes read as Latin-1; keys may hold any letters.
        if given is not None and hmac.compare_digest(given.encode("latin-1"), self._key):
            return None
        said = "no API key" if given is None else "a wrong API key"
        return Fault(
            status=HTTPStatus.UNAUTHORIZED,
            message=f"The request has {said}. Send it as `Authorization: Bearer KEY` or "
            "`x-api-key: KEY`.",
            code="invalid_api_key",
        )


def sent_key(headers: Headers) -> str | None:
    """Return the API key of a request, or None if it has none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("x-api-key") or None


def _with_cors(send: Send, origin: str) -> Send:
    """Tell the browser, on every reply, that the page may read it."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers.add_vary_header("Origin")
            headers["Access-Control-Expose-Headers"] = "Retry-After"
        await send(message)

    return send_with_headers


def _preflight(asked: Headers) -> Response:
    """Answer a browser that asks before it sends; the origin was checked already."""
    headers = {
        "Access-Control-Allow-Methods": ALLOWED_METHODS,
        "Access-Control-Allow-Headers": asked.get(
            "access-control-request-headers", DEFAULT_HEADERS
        ),
        "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
    }
    if asked.get("access-control-request-private-network") == "true":
        headers["Access-Control-Allow-Private-Network"] = "true"
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
