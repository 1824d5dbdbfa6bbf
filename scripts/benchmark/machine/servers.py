"""A Redis of our own for each attempt: empty, on a free loopback port and a unix socket, nothing on disk."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis

from benchmark.errors import BenchError
from benchmark.machine import child
from fleet.local.embedded_redis import find_executable
from tests.servers.ports import free_port

READY_S = 10.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisServer:
    port: int
    unix_socket: Path
    pid: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port, socket_timeout=READY_S, decode_responses=True)


def redis_binary() -> str:
    """The server that Fleet itself would start."""
    if found := find_executable():
        return found
    raise BenchError("no redis-server or valkey-server on PATH; install redis-server")


@contextmanager
def fresh_redis(scratch: Path) -> Iterator[RedisServer]:
    folder = Path(tempfile.mkdtemp(prefix="redis-", dir=scratch))
    # A unix socket's path has a limit of 107 bytes, which a deep checkout easily passes.
    with tempfile.TemporaryDirectory(prefix="bench-") as short_folder:
        port, unix_socket = free_port(), Path(short_folder) / "redis.sock"
        options = {
            "--port": str(port),
            "--bind": "127.0.0.1",
            "--unixsocket": str(unix_socket),
            "--dir": str(folder),
            "--save": "",
            "--appendonly": "no",
            "--maxmemory-policy": "noeviction",
        }
        command = [redis_binary(), *(word for option in options.items() for word in option)]
        with child.running(command, log=folder / "log") as process:
            server = RedisServer(port=port, unix_socket=unix_socket, pid=process.pid)
            await_ready(process, lambda: _answers(server), "redis-server", folder / "log")
            yield server


def _answers(server: RedisServer) -> bool:
    try:
        with server.client() as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def await_ready(process: subprocess.Popen[bytes], ready: Callable[[], bool], name: str, log: Path) -> None:
    """Wait until a server answers; say why when it ends or stays silent instead."""
    deadline = time.monotonic() + READY_S
    while not ready():
        if process.poll() is not None:
            raise BenchError(f"{name} did not start: {child.last_line(log)}")
        if time.monotonic() > deadline:
            raise BenchError(f"{name} did not answer within {READY_S:.0f} s")
        time.sleep(_POLL_S)
