"""A pool with a secret signs each request, so that its endpoint can tell ours from anybody's."""

from __future__ import annotations

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.stage import Stage, a_stage
from tests.waiting import until

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


class Checking(ThreadingHTTPServer):
    """An endpoint that verifies as standardwebhooks.com tells a receiver to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seen: list[tuple[str, bool]] = []


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name, at = self.headers.get("webhook-id", ""), self.headers.get("webhook-timestamp", "0")
        expected = base64.b64encode(hmac.new(KEY, f"{name}.{at}.".encode() + body, hashlib.sha256).digest()).decode()
        good = f"v1,{expected}" in self.headers.get("webhook-signature", "").split()
        assert isinstance(self.server, Checking)
        self.server.seen.append((name, good and abs(time.time() - int(at)) < 60))
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def checking_endpoint(stage: Stage) -> Iterator[Checking]:
    with Checking() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        stage.endpoint_url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_every_request_of_a_pool_with_a_secret_is_signed(tmp_path: Path) -> None:
    with a_stage(tmp_path, pool_options={"secret": SECRET}) as stage, checking_endpoint(stage) as endpoint:
        # The worker first: it has to learn of the pool and its secret while it runs.
        worker = stage.start("worker")
        stage.configure()
        stage.start("coordinator")
        stage.send_messages(200, 20)
        stage.wait_drained(30)
        assert sorted(endpoint.seen) == [(f"message-{i:07d}", True) for i in range(200)]
        assert SECRET not in worker.text()


def test_nothing_leaves_unsigned_while_the_secret_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "not-there"
    with a_stage(tmp_path, pool_options={"secretFile": str(missing)}) as stage, checking_endpoint(stage) as endpoint:
        stage.configure()
        stage.start("coordinator")
        worker = stage.start("worker")
        stage.send_messages(3, 3)
        until(lambda: worker.text().count(str(missing)) > 0, 30, stage.describe)
        until(lambda: stage.depth().invisible == 3 and stage.is_idle(), 30, stage.describe)
        assert endpoint.seen == []
        missing.write_text(SECRET)
        stage.send_messages(1, 1)
        until(lambda: ("message-0000003", True) in endpoint.seen, 60, stage.describe)
        assert all(good for _, good in endpoint.seen)
