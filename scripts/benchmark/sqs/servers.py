"""What answers SQS here: Fleet's door on a Redis of its own, moto's server and ministack, each on one core."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmark.ground import Ground
from benchmark.machine import child
from benchmark.machine.servers import RedisServer, await_ready, fresh_redis
from benchmark.machine.timing import one_core
from tests.servers.ports import free_port

PROGRAMS = Path(__file__).parents[1] / "peers" / "programs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    url: str
    pids: Mapping[str, int] = field(default_factory=dict)
    """Whose CPU time counts; `server` is the one that stays on its core."""
    redis: RedisServer | None = None


@contextmanager
def door(ground: Ground) -> Iterator[Answering]:
    with fresh_redis(ground.scratch) as server:
        port = free_port()
        environment = {"FLEET_REDIS_URL": server.url, "FLEET_SQS_PORT": str(port)}
        command = [str(Path(sys.executable).with_name("fleet")), "sqs"]
        with _running(ground, "fleet-sqs", command, port, environment) as process:
            yield Answering(url=_url(port), pids={"server": process.pid, "redis": server.pid}, redis=server)


@contextmanager
def moto(ground: Ground) -> Iterator[Answering]:
    port = free_port()
    command = [str(folder(ground, "moto") / "bin" / "moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with _running(ground, "moto", command, port, {}) as process:
        yield Answering(url=_url(port), pids={"server": process.pid})


@contextmanager
def ministack(ground: Ground) -> Iterator[Answering]:
    port = free_port()
    environment = {"GATEWAY_PORT": str(port), "SERVICES": "sqs", "LOG_LEVEL": "ERROR"}
    command = [str(folder(ground, "ministack") / "bin" / "ministack")]
    with _running(ground, "ministack", command, port, environment) as process:
        yield Answering(url=_url(port), pids={"server": process.pid})


def folder(ground: Ground, name: str) -> Path:
    return ground.out / "peers" / name


@contextmanager
def _running(
    ground: Ground, name: str, command: list[str], port: int, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    log = ground.scratch / f"{name}.log"
    process = child.start(command, log=log, cwd=ground.scratch, environment=environment)
    try:
        os.sched_setaffinity(process.pid, one_core())
        await_ready(process, lambda: _accepts(port), name, log)
        yield process
    finally:
        child.stop([process])


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"
