"""A target of webhooks that answers when a test lets it, and keeps what it received."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_PATIENCE_S = 30.0


@dataclass
class Received:
    headers: dict[str, str]
    body: bytes


@dataclass
class Target:
    url: str
    received: list[Received] = field(default_factory=list)
    status: int = 200
    answers: threading.Event = field(default_factory=threading.Event)


@contextmanager
def a_target() -> Iterator[Target]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            target.received.append(Received({name.lower(): value for name, value in self.headers.items()}, body))
            target.answers.wait(_PATIENCE_S)
            try:
                self.send_response(target.status)
                self.send_header("Content-Length", "0")
                self.end_headers()
            except OSError:
                self.close_connection = True  # whoever asked was killed meanwhile

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        target = Target(f"http://127.0.0.1:{server.server_port}/hook")
        target.answers.set()
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield target
        finally:
            target.answers.set()
            server.shutdown()
            thread.join()
