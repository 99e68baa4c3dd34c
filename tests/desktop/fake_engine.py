"""A small local server that speaks the engine's HTTP, so that failures can be staged exactly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Reply:
    """What a staged answer writes with."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler

    def error(self, status: int, code: str, message: str, retry_after: int | None = None) -> None:
        self.json({"error": {"message": message, "code": code}}, status, retry_after)

    def json(self, body: Any, status: int = 200, retry_after: int | None = None) -> None:
        payload = json.dumps(body).encode()
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", "application/json")
        self._handler.send_header("Content-Length", str(len(payload)))
        if retry_after is not None:
            self._handler.send_header("Retry-After", str(retry_after))
        self._handler.end_headers()
        self._handler.wfile.write(payload)

    def begin(self) -> None:
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", "text/event-stream")
        self._handler.send_header("Connection", "close")
        self._handler.end_headers()
        self._handler.close_connection = True

    def raw(self, payload: bytes) -> None:
        self._handler.wfile.write(payload)
        self._handler.wfile.flush()

    def event(self, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        self.raw(f"data: {text}\n\n".encode())

    def text(self, text: str) -> None:
        self.event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})

    def thought(self, text: str) -> None:
        self.event({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]})

    def end(self, reason: str = "stop", *, n_completion: int = 3, truncated: bool = False) -> None:
        final: dict[str, Any] = {
            "choices": [{"index": 0, "delta": {}, "finish_reason": reason}],
            "usage": {"prompt_tokens": 11, "completion_tokens": n_completion},
            "timings": {"predicted_per_second": 20.0, "prompt_ms": 50.0, "cache_n": 4},
        }
        if truncated:
            final["truncated"] = True
        self.event(final)
        self.event("[DONE]")


ChatScript = Callable[[dict[str, Any], Reply], None]


def echo(body: dict[str, Any], reply: Reply) -> None:
    """Answer with the last message, word by word."""
    reply.begin()
    for word in body["messages"][-1]["content"].split():
        reply.text(word + " ")
    reply.end()


class FakeEngine:
    """Serves on a free loopback port until closed.

    Attributes:
        on_chat: how the next chat requests are answered.
        chats: bodies of the chat requests so far.
        posts: (path, body) of the other POSTs.
        replies: path -> JSON of GETs and POSTs other than chat.
        n_status_streams: status streams opened so far.
        statuses: payloads the status stream sends before it waits.
        released: scripts may wait for it; set by `close`.
        broken: set when writing to a client failed (it closed the connection).
    """

    def __init__(self) -> None:
        self.on_chat: ChatScript = echo
        self.chats: list[dict[str, Any]] = []
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.replies: dict[str, Any] = {}
        self.statuses: list[str] = []
        self.n_status_streams = 0
        self.released = threading.Event()
        self.broken = threading.Event()
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                """Keep the test's output clean."""

            def do_GET(self) -> None:
                if self.path == "/v1/status/events":
                    engine._stream_status(Reply(self))
                elif self.path in engine.replies:
                    Reply(self).json(engine.replies[self.path])
                else:
                    Reply(self).error(404, "not_found", f"No {self.path} here.")

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                if self.path != "/v1/chat/completions":
                    engine.posts.append((self.path, body))
                    Reply(self).json(engine.replies.get(self.path, {}))
                    return
                engine.chats.append(body)
                try:
                    engine.on_chat(body, Reply(self))
                except OSError:
                    self.close_connection = True
                    engine.broken.set()

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A client that went away is what some tests are about."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()

    def _stream_status(self, reply: Reply) -> None:
        self.n_status_streams += 1
        reply.begin()
        for payload in self.statuses:
            reply.event(payload)
        self.released.wait(10)

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
