"""Real servers for tests: Redis, a Redis Cluster, an nginx that accepts everything. Loopback, free ports, temp folders.

Each is a context manager, and a fixture in `tests/conftest.py`. A missing server is an error, never a skip:
`scripts/test` installs them.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.ports import free_port
from tests.waiting import until

START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
CLUSTER_MASTERS = 3
_BUS_OFFSET = 10_000  # Redis Cluster's second port


class ServerFailed(Exception):
    """A server that a test needs did not start."""


@dataclass
class ServerProcess:
    """One server of ours, known by its pid."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def pause(self) -> None:
        """Returns once it stands still: until then each of its threads may do a moment's work."""
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: all(stands_still(task) for task in Path(f"/proc/{self.process.pid}/task").iterdir()))

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGCONT)  # a paused one could not obey
        self.process.terminate()
        try:
            self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()


@dataclass
class RedisServer:
    server: ServerProcess
    port: int
    password: str = ""
    url: str = field(init=False)

    def __post_init__(self) -> None:
        user = f":{self.password}@" if self.password else ""
        self.url = f"redis://{user}127.0.0.1:{self.port}/0"

    def client(self) -> redis.Redis:
        # No retries: a test that asks a dead server wants to hear so at once.
        password = self.password or None
        return redis.Redis(port=self.port, password=password, decode_responses=True, retry=Retry(NoBackoff(), 0))

    def reset(self) -> None:
        """As new: no keys, no scripts, no memory limit."""
        with self.client() as client:
            client.flushall()
            client.script_flush()
            client.config_set("maxmemory", "0")


@dataclass
class RedisCluster:
    nodes: tuple[RedisServer, ...]
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"redis://127.0.0.1:{self.nodes[0].port}"

    def reset(self) -> None:
        for node in self.nodes:
            node.reset()


@dataclass
class Sink:
    server: ServerProcess
    port: int
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}/"


@contextmanager
def running_redis(
    *options: str,
    port: int | None = None,
    program: str = "",
    password: str = "",
    environment: Mapping[str, str] | None = None,
) -> Iterator[RedisServer]:
    """A redis-server of its own. `port`: to come back where an earlier one was. `program`: to run another version."""
    with tempfile.TemporaryDirectory(prefix="fleet-redis-", ignore_cleanup_errors=True) as directory:
        chosen = port or free_port()
        log = Path(directory, "redis.log")
        command = [
            program or _program("redis-server"),
            "--port",
            str(chosen),
            "--bind",
            "127.0.0.1",
            "--dir",
            directory,
        ]
        command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", *options]
        with _running(command, log, environment) as server:
            found = RedisServer(server, chosen, password)
            _wait_for(server, lambda: _answers_ping(found))
            yield found


@contextmanager
def running_redis_cluster() -> Iterator[RedisCluster]:
    """Three masters on loopback that own all slots between them."""
    with ExitStack() as stack:
        nodes = []
        for _ in range(CLUSTER_MASTERS):
            # Without full coverage a test may stop one master and still reach the others.
            options = [
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "2000",
                "--cluster-config-file",
                "nodes.conf",
            ]
            options += ["--cluster-require-full-coverage", "no"]
            nodes.append(stack.enter_context(running_redis(*options, port=free_port(also=_BUS_OFFSET))))
        addresses = [f"127.0.0.1:{node.port}" for node in nodes]
        create = [_program("redis-cli"), "--cluster", "create", *addresses, "--cluster-replicas", "0", "--cluster-yes"]
        created = subprocess.run(create, capture_output=True, text=True, timeout=START_TIMEOUT_S * 2)
        if created.returncode != 0:
            raise ServerFailed(f"redis-cli --cluster create: {created.stdout[-500:]} {created.stderr[-500:]}")
        for node in nodes:
            _wait_for(node.server, lambda node=node: _cluster_is_whole(node))  # type: ignore[misc]
        yield RedisCluster(tuple(nodes))


@contextmanager
def running_sink(*, workers: int = 1) -> Iterator[Sink]:
    """An nginx that answers every request with an ack, as fast as this machine can."""
    with tempfile.TemporaryDirectory(prefix="fleet-nginx-", ignore_cleanup_errors=True) as directory:
        port = free_port()
        conf = Path(directory, "nginx.conf")
        conf.write_text(_SINK_CONF.format(port=port, workers=workers, directory=directory))
        log = Path(directory, "nginx.log")
        with _running([_program("nginx"), "-p", directory, "-c", str(conf), "-e", "stderr"], log) as server:
            _wait_for(server, lambda: _accepts(port))
            yield Sink(server, port)


_SINK_CONF = """
daemon off;
user root;
worker_processes {workers};
pid "{directory}/nginx.pid";
error_log stderr error;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path "{directory}/body";
    proxy_temp_path "{directory}/proxy";
    fastcgi_temp_path "{directory}/fastcgi";
    uwsgi_temp_path "{directory}/uwsgi";
    scgi_temp_path "{directory}/scgi";
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    default_type application/json;
    server {{
        listen 127.0.0.1:{port} backlog=4096 reuseport;
        location / {{ return 200 '{{"ack":true}}'; }}
    }}
}}
"""


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ServerFailed(f"{name} is not installed; scripts/test installs what the tests need")
    return found


@contextmanager
def _running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[ServerProcess]:
    """`environment`: what the server gets in addition to ours."""
    # setpriv: a killed pytest must not leave its servers behind.
    guard = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    beside = [f"{name}={value}" for name, value in (environment or {}).items()]
    if beside:
        guard += ["env", *beside]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*guard, *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = ServerProcess(process, log)
    try:
        yield server
    finally:
        server.stop()


def stands_still(process: Path) -> bool:
    """A process, or one of its threads, by its folder in /proc."""
    return (process / "stat").read_text().rsplit(")", 1)[1].split()[0] == "T"


def _wait_for(server: ServerProcess, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not ready():
        if server.process.poll() is not None or time.monotonic() > deadline:
            tail = server.log.read_text(errors="replace")[-500:]
            raise ServerFailed(f"{server.process.args!r} is not ready: {tail}")
        time.sleep(0.005)  # servers have no event to wait for before they listen


def _answers_ping(server: RedisServer) -> bool:
    # Our own one: another process may have taken the port between the look and the start.
    with suppress(redis.RedisError), server.client() as client:
        return bool(client.info("server")["process_id"] == server.server.pid)
    return False


def _cluster_is_whole(node: RedisServer) -> bool:
    with suppress(redis.RedisError), node.client() as client:
        state = client.cluster("info")
        return state["cluster_state"] == "ok" and int(state["cluster_size"]) == CLUSTER_MASTERS
    return False


def _accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
