"""The peers: five task queues that do Fleet's job, each as its own users would set it up for this.

Every job is one POST of `{"messageId": id}` with a token to the sink over a kept-alive connection, by two
worker processes; every one is at-least-once (acknowledged after the POST). What each still holds is
read from Redis here, not asked of the peer.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import redis

from benchmark.drain import Workers, drain
from benchmark.ground import Ground
from benchmark.machine import child
from benchmark.machine.servers import RedisServer, fresh_redis
from benchmark.machine.sink import TOKEN
from benchmark.peers.environments import node_environment, python_environment
from benchmark.scenario import Kind, Measurement, Scenario

PROGRAMS = Path(__file__).parent / "programs"
WORKER_PROCESSES = 2
FILL_S = 120.0


@dataclass(slots=True, kw_only=True)
class _Running:
    processes: list[subprocess.Popen[bytes]]
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer(Scenario):
    """One queue from elsewhere, as a scenario."""

    name: str
    title: str
    count: int
    """Messages of a full run: three to six seconds of this peer."""
    settings: tuple[str, ...]
    left: Callable[[redis.Redis], int]
    worker_commands: Callable[[str, str], list[list[str]]]
    """(setting, Redis URL) → the arguments, after the interpreter, of each process to start."""
    pins: str
    program: str
    environment: Mapping[str, str] = field(default_factory=dict)
    kind: Kind = "peer"

    def prepare(self, ground: Ground) -> None:
        folder, pins = self._folder(ground), PROGRAMS / self.pins
        if not self._is_node:
            python_environment(folder, pins, ground.say)
            return
        node_environment(folder, pins, ground.say)
        # Node resolves packages from where a program lies, so its programs are copied beside its packages.
        for program in PROGRAMS.glob("*.mjs"):
            (folder / program.name).write_bytes(program.read_bytes())

    def attempt(self, ground: Ground, setting: str) -> Measurement:
        count = ground.scaled(self.count)
        with fresh_redis(ground.scratch) as server, server.client() as client:
            self._fill(ground, server, count)
            return drain(
                count=count,
                sink=ground.sink,
                start_workers=lambda: self._workers(ground, server, setting),
                left=lambda: self.left(client),
                say=ground.say,
            )

    def _fill(self, ground: Ground, server: RedisServer, count: int) -> None:
        ground.say(f"filling with {count:,} messages")
        arguments = [server.url, ground.sink.url, TOKEN, str(count), str(ground.groups)]
        child.call(
            [self._interpreter(ground), str(self._program(ground)), "fill", *arguments],
            log=ground.scratch / f"{self.name}.fill.log",
            timeout_s=FILL_S,
            cwd=self._folder(ground),
            environment=self._environment(server),
        )

    @contextmanager
    def _workers(self, ground: Ground, server: RedisServer, setting: str) -> Iterator[Workers]:
        running = _Running(processes=[], log=ground.scratch / f"{self.name}.work.log")
        try:
            for arguments in self.worker_commands(setting, server.url):
                command = [self._interpreter(ground), *arguments]
                process = child.start(
                    command, log=running.log, cwd=self._folder(ground), environment=self._environment(server)
                )
                running.processes.append(process)
            yield running
        finally:
            child.stop(running.processes)

    def _environment(self, server: RedisServer) -> dict[str, str]:
        return {"PYTHONPATH": str(PROGRAMS), "BENCH_REDIS_URL": server.url, **self.environment}

    def _folder(self, ground: Ground) -> Path:
        return ground.out / "peers" / self.name

    @property
    def _is_node(self) -> bool:
        return self.program.endswith(".mjs")

    def _program(self, ground: Ground) -> Path:
        return (self._folder(ground) if self._is_node else PROGRAMS) / self.program

    def _interpreter(self, ground: Ground) -> str:
        return "node" if self._is_node else str(self._folder(ground) / "bin" / "python")


def _held(
    client: redis.Redis, *, lists: Sequence[str] = (), sorted_sets: Sequence[str] = (), hashes: Sequence[str] = ()
) -> int:
    """How many entries these keys hold together, at one moment."""
    with client.pipeline(transaction=True) as pipe:
        for key in lists:
            pipe.llen(key)
        for key in sorted_sets:
            pipe.zcard(key)
        for key in hashes:
            pipe.hlen(key)
        return sum(int(size) for size in pipe.execute())


def _rq_left(client: redis.Redis) -> int:
    # Failed jobs count as left: rq puts a job that raised there instead of trying it again.
    registries = [f"rq:{kind}:bench" for kind in ("wip", "failed", "deferred", "scheduled")]
    return _held(client, lists=("rq:queue:bench", "rq:queue:bench:intermediate"), sorted_sets=registries)


def _dramatiq_left(client: redis.Redis) -> int:
    # A message stays in its hash from send to ack, so the hashes hold waiting, running, delayed and dead ones.
    return _held(client, hashes=[f"dramatiq:default{kind}.msgs" for kind in ("", ".DQ", ".XQ")])


def _celery_left(client: redis.Redis) -> int:
    return _held(client, lists=("bench",), hashes=("unacked",))


def _bullmq_left(client: redis.Redis) -> int:
    states = [f"bull:bench:{state}" for state in ("delayed", "failed", "completed", "prioritized")]
    return _held(client, lists=("bull:bench:wait", "bull:bench:active"), sorted_sets=states)


def _groupmq_left(client: redis.Redis) -> int:
    # Waiting messages stand in their groups' sets; there are as many sets as groups, so they are found by scan.
    groups = list(client.scan_iter("groupmq:bench:g:*", count=5000, _type="zset"))
    states = [f"groupmq:bench:{state}" for state in ("processing", "delayed", "failed", "completed")]
    return _held(client, sorted_sets=[*groups, *states])


def _same_twice(arguments: list[str]) -> list[list[str]]:
    return [arguments] * WORKER_PROCESSES


def _rq_workers(_setting: str, redis_url: str) -> list[list[str]]:
    return _same_twice([str(PROGRAMS / "rq_peer.py"), "work", redis_url])


def _dramatiq_workers(setting: str, _redis_url: str) -> list[list[str]]:
    threads = setting.split()[0]
    return [["-m", "dramatiq", "dramatiq_peer", "--processes", str(WORKER_PROCESSES), "--threads", threads]]


def _celery_workers(setting: str, _redis_url: str) -> list[list[str]]:
    command = ["-m", "celery", "--app", "celery_peer", "worker", "--loglevel", "WARNING", "--queues", "bench"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    if setting.startswith("prefork"):
        return [[*command, "--pool", "prefork", "--concurrency", str(WORKER_PROCESSES)]]
    return [[*command, "--pool", "solo", "--hostname", f"w{number}@bench"] for number in range(WORKER_PROCESSES)]


def _node_workers(program: str) -> Callable[[str, str], list[list[str]]]:
    def commands(setting: str, redis_url: str) -> list[list[str]]:
        return _same_twice([program, "work", redis_url, setting.split()[0]])

    return commands


SCENARIOS = (
    Peer(
        name="rq",
        title="RQ (SimpleWorker, pycurl)",
        count=2_000,
        settings=("no fork",),
        left=_rq_left,
        worker_commands=_rq_workers,
        pins="rq.requirements.txt",
        program="rq_peer.py",
    ),
    Peer(
        name="dramatiq",
        title="Dramatiq (pycurl)",
        count=8_000,
        settings=("8 threads", "32 threads"),
        left=_dramatiq_left,
        worker_commands=_dramatiq_workers,
        pins="dramatiq.requirements.txt",
        program="dramatiq_peer.py",
    ),
    Peer(
        name="celery",
        title="Celery (acks late, pycurl)",
        count=8_000,
        settings=("solo", "prefork"),
        left=_celery_left,
        worker_commands=_celery_workers,
        pins="celery.requirements.txt",
        program="celery_peer.py",
    ),
    Peer(
        name="bullmq",
        title="BullMQ (no order, undici)",
        count=40_000,
        settings=("16 at once", "64 at once", "128 at once"),
        left=_bullmq_left,
        worker_commands=_node_workers("bullmq_peer.mjs"),
        pins="bullmq.package.json",
        program="bullmq_peer.mjs",
    ),
    Peer(
        name="groupmq",
        title="GroupMQ (FIFO groups, undici)",
        count=40_000,
        settings=("16 at once", "64 at once", "128 at once"),
        left=_groupmq_left,
        worker_commands=_node_workers("groupmq_peer.mjs"),
        pins="groupmq.package.json",
        program="groupmq_peer.mjs",
    ),
)
