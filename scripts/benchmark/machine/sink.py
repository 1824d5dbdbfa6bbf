"""The endpoint of every scenario: one nginx process that answers `{"ack":true}` and counts in shared memory.

The count is nginx's own `requests` counter (stub_status), so counting costs a delivery nothing: no log,
no file. Reading it is a request too, and is taken off again. A request that is not a POST with a token
and JSON is refused, so nobody can look fast by sending less.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmark.errors import BenchError
from benchmark.machine import child
from benchmark.machine.servers import await_ready
from tests.servers.ports import free_port

ANSWER = b'{"ack":true}'
TOKEN = "bench-token"  # noqa: S105 (what the sink asks of every delivery; a secret to nobody)
_TIMEOUT_S = 5.0
_REQUESTS = re.compile(rb"\s(\d+)\s+(\d+)\s+(\d+)\s+Reading")

# One process: a single core of this sink takes ten times what is asked of it, and the peers need the
# other core. Buffering and temporary folders only matter for starting without root.
_CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log warn;
worker_rlimit_nofile 8192;
events {{ worker_connections 4096; multi_accept on; }}
http {{
    access_log off; default_type application/json;
    client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    keepalive_requests 1000000000; keepalive_timeout 3600s; tcp_nodelay on;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        if ($request_method != POST) {{ return 405; }}
        if ($http_authorization != "Bearer {token}") {{ return 401; }}
        if ($content_type !~ ^application/json) {{ return 415; }}
        location / {{ return 200 '{answer}'; }}
    }}
    server {{ listen 127.0.0.1:{status_port}; location / {{ stub_status; }} }}
}}
"""


class Sink:
    """A running sink, and how many requests it got."""

    def __init__(self, *, port: int, status_port: int, pid: int) -> None:
        self.port = port
        self.pid = pid
        self._status_port = status_port
        self._probes = 0
        self._connection: socket.socket | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/deliver"

    def deliveries(self) -> int:
        """Requests since the sink started, without our own questions."""
        try:
            if self._connection is None:
                self._connection = socket.create_connection(("127.0.0.1", self._status_port), _TIMEOUT_S)
                self._connection.settimeout(_TIMEOUT_S)
            self._connection.sendall(b"GET / HTTP/1.1\r\nHost: sink\r\n\r\n")
            self._probes += 1
            answer = b""
            while b"Reading:" not in answer or not answer.endswith(b"\n"):
                part = self._connection.recv(4096)
                if not part:
                    raise OSError("connection closed")
                answer += part
        except OSError as error:
            self.close()
            raise BenchError(f"the sink does not answer: {error}") from error
        found = _REQUESTS.search(answer)
        if found is None:
            raise BenchError("the sink does not count: this nginx has no stub_status")
        return int(found[3]) - self._probes

    def answers(self) -> bool:
        with suppress(BenchError):
            return self.deliveries() >= 0
        return False

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def nginx_binary() -> str:
    # Debian keeps daemons where only root's PATH looks.
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    if found := shutil.which("nginx", path=path):
        return found
    raise BenchError("nginx is not installed; install nginx-light")


@contextmanager
def running_sink(scratch: Path) -> Iterator[Sink]:
    folder = Path(tempfile.mkdtemp(prefix="sink-", dir=scratch))
    port, status_port = free_port(), free_port()
    configuration = folder / "nginx.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            folder=folder, port=port, status_port=status_port, token=TOKEN, answer=ANSWER.decode("ascii")
        )
    )
    log = folder / "error.log"
    command = [nginx_binary(), "-p", str(folder), "-c", str(configuration), "-e", str(log)]
    with child.running(command, log=log) as process:
        sink = Sink(port=port, status_port=status_port, pid=process.pid)
        await_ready(process, sink.answers, "nginx", log)
        try:
            _prove_that_it_counts_and_refuses(sink)
            yield sink
        finally:
            sink.close()


def _prove_that_it_counts_and_refuses(sink: Sink) -> None:
    """A sink that counted wrongly would make every figure wrong, so ask it before anything else."""
    good = f"POST /deliver HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
    bare = "POST /deliver HTTP/1.1\r\nHost: s\r\nContent-Type: application/json\r\n"
    rest = 'Content-Length: 17\r\nConnection: close\r\n\r\n{"messageId":"x"}'
    before = sink.deliveries()
    statuses = [_status_of(sink.port, (head + rest).encode()) for head in (good, good, bare)]
    counted = sink.deliveries() - before
    if statuses != [200, 200, 401] or counted != 3:
        raise BenchError(f"the sink answered {statuses} and counted {counted} of 3 requests")


def _status_of(port: int, request: bytes) -> int:
    deadline = time.monotonic() + _TIMEOUT_S
    with socket.create_connection(("127.0.0.1", port), _TIMEOUT_S) as connection:
        connection.sendall(request)
        answer = b""
        while (part := connection.recv(4096)) and time.monotonic() < deadline:
            answer += part
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/") else 0
