"""A whole fleet of real processes for one test: Redis, embedded queue, endpoint, syncer, coordinators, workers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import redis

from fleet.operate.journal import End, Journal, read
from fleet.operate.verify import Judgement, verify
from fleet.sources.base import Depth, Outgoing, Publisher, Surroundings
from fleet.sources.open import open_publisher, open_source
from fleet.state.keys import FAMILIES, PoolKeys, QueueKeys
from tests.member import Member, begin
from tests.servers.local import RedisServer, running_redis
from tests.waiting import until

FLEET = str(Path(sys.executable).with_name("fleet"))
QUEUE, POOL = "storm", "POOL"
START_LIMIT_S, STOP_LIMIT_S = 60.0, 45.0
UP = {"coordinator": " coordinates", "server": "answers at", "syncer": " syncs", "worker": " delivers"}
"""What each says once it has what it needs of others. One that cannot get it ends."""


@dataclass
class Stage:
    directory: Path
    redis_server: RedisServer
    ttl_ms: int = 1500
    visibility_s: int = 20
    concurrency: int = 60
    rate: int | None = None
    pool_options: dict[str, Any] = field(default_factory=dict)
    body_options: dict[str, Any] = field(default_factory=dict)
    more_queues: list[dict[str, Any]] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    endpoint_url: str = ""
    source_uri: str = ""
    """Of another queue than the embedded one."""
    near_uri: str = ""
    """The same queue as we reach it, where the fleet's way there may be cut."""
    send_uri: str = ""
    """Where we send to, if that is not the queue itself."""
    far_redis_url: str = ""
    """Redis as the fleet's processes reach it, where that way may be cut."""
    path: str = "/"
    """Which sample of the endpoint takes the messages; `/busy` answers a third of them with 429."""
    sent: int = 0
    doubts: Counter[str] = field(default_factory=Counter)
    """How often a request for a message had started and its outcome was not settled, at a kill or a stop."""
    answered: Counter[str] = field(default_factory=Counter)
    """How many of them had an `end` in the endpoint's journal by then, at deaths and at hangs: the answer was under
    way, or the worker had no time to settle it."""

    @property
    def in_doubt(self) -> int:
        return self.doubts.total()

    @property
    def queue_uri(self) -> str:
        return self.source_uri or f"sqlite:///{self.directory}/queue.db?queue={QUEUE}"

    @property
    def around(self) -> Surroundings:
        return Surroundings(redis_url=self.redis_server.url)

    @property
    def sent_journal(self) -> Path:
        return self.directory / "sent.ndjson"

    @property
    def endpoint_journal(self) -> Path:
        return self.directory / "endpoint.ndjson"

    def client(self) -> redis.Redis:
        return self.redis_server.client()

    # Processes ------------------------------------------------------------------------------------

    def start(self, role: str, *arguments: str, failpoint: str = "", **more: str) -> Member:
        environment = {
            **os.environ,
            "FLEET_REDIS_URL": self.far_redis_url or self.redis_server.url,
            "FLEET_LEASE_TTL_MS": str(self.ttl_ms),
            "FLEET_DATA_DIR": str(self.directory / "data"),
            "FLEET_FAILPOINT": failpoint,
            **more,
        }
        log = self.directory / f"{role}-{len(self.members)}.log"
        member = begin(role, [FLEET, role, *arguments], environment, log)
        self.members.append(member)
        return member

    def start_endpoint(self, *, latency_ms: int = 20, port: int = 0) -> None:
        arguments = ["--port", str(port), "--latency-ms", str(latency_ms), "--fence"]
        arguments += ["--journal", str(self.endpoint_journal)]
        endpoint = self.start("endpoint", *arguments)
        until(lambda: "http://" in endpoint.text(), START_LIMIT_S, lambda: f"no endpoint: {endpoint.text()}")
        found = next(word for word in endpoint.text().split() if word.startswith("http://"))
        self.endpoint_url = found.rstrip("/.,")

    def configure(self) -> None:
        pool: dict[str, Any] = {"code": POOL, "concurrency": self.concurrency, **self.pool_options}
        if self.rate is not None:
            pool["rateLimitPerMinute"] = self.rate
        self.write_config([pool])
        syncer = self.start("syncer", "--config", str(self.config))
        settings = PoolKeys(POOL).settings
        with self.client() as client:
            until(lambda: bool(client.exists(settings)), START_LIMIT_S, lambda: f"no configuration: {syncer.text()}")

    def configure_without_pool(self) -> None:
        """Take the pool out of the configuration while everything runs."""
        self.write_config([])

    @property
    def config(self) -> Path:
        return self.directory / "router.json"

    def write_config(self, pools: list[dict[str, Any]]) -> None:
        queue = {"queueName": QUEUE, "queueUri": self.queue_uri, "visibilityTimeout": self.visibility_s}
        # At once and whole, as an editor or a deployment does it.
        draft = self.config.with_suffix(".draft")
        draft.write_text(json.dumps({"queues": [queue, *self.more_queues], "processingPools": pools}))
        draft.replace(self.config)

    def wait_up(self) -> None:
        """Until all that runs has begun."""
        begun = [member for member in self.members if member.role in UP]
        until(lambda: all(UP[m.role] in m.text() for m in begun), START_LIMIT_S, self.logs)

    def workers(self) -> list[Member]:
        return [m for m in self.members if m.role == "worker" and m.alive]

    def coordinators(self) -> list[Member]:
        return [m for m in self.members if m.role == "coordinator" and m.alive]

    # Messages -------------------------------------------------------------------------------------

    def send_messages(
        self, count: int, groups: int, *, busy_every: int = 0, batch: int = 500, publisher: Publisher | None = None
    ) -> None:
        """Into the queue, in batches, each group's in rising order; journalled as `fleet send` does.

        One in `busy_every` has a group of its own and an endpoint that refuses a third of its requests for a second.
        """
        publisher = publisher or self.publisher()
        asyncio.run(self._send(publisher, count, groups, busy_every, batch))

    def publisher(self) -> Publisher:
        return open_publisher(self.send_uri or self.near_uri or self.queue_uri, around=self.around)

    def addressed(self, number: int, groups: int, busy_every: int) -> tuple[str, str, dict[str, Any]]:
        """The group of a message, which sample of the endpoint takes it, and what else is in its body."""
        busy = busy_every and number % busy_every == 0
        return (f"busy-{number}", "/busy", {}) if busy else (f"group-{number % groups}", self.path, {})

    async def _send(self, publisher: Publisher, count: int, groups: int, busy_every: int, most: int) -> None:
        await publisher.open()
        journal = Journal(self.sent_journal)
        for start in range(self.sent, self.sent + count, most):
            batch = []
            for i in range(start, min(start + most, self.sent + count)):
                group, path, options = self.addressed(i, groups, busy_every)
                body = {
                    "id": f"message-{i:07d}", "poolCode": POOL, "messageGroupId": group,
                    "mediationTarget": f"{self.endpoint_url}{path}", **self.body_options, **options,
                }  # fmt: skip
                batch.append((i, Outgoing(f"message-{i:07d}", json.dumps(body).encode(), group)))
            refused = await publisher.publish([outgoing for _, outgoing in batch])
            assert not any(refused), refused
            for i, outgoing in batch:
                journal.sent(outgoing.id, outgoing.group or "", i)
        journal.close()
        await publisher.close()
        self.sent += count

    # Disturbances ---------------------------------------------------------------------------------

    def kill(self, member: Member) -> None:
        at_ms = time.time() * 1000
        member.kill()
        self.note_doubt(member, at_ms)

    def pause(self, member: Member) -> None:
        at_ms = time.time() * 1000
        member.send(signal.SIGSTOP)
        self.note_doubt(member, at_ms)

    def resume(self, member: Member) -> None:
        """Let one go on that was stopped, or that hangs at a failpoint."""
        member.send(signal.SIGCONT)

    def note_doubt(self, member: Member, at_ms: float | None = None) -> None:
        """Count what this process had begun and not settled: it alone may be delivered twice because of this."""
        if member.role == "worker":
            hung_at_ms = member.blocked_at_ms
            begun, ended = self._begun_by(member, at_ms or hung_at_ms or time.time() * 1000)
            self.doubts.update(begun)
            self.answered["hang" if hung_at_ms else "death"] += len(ended)

    def leases_of(self, worker: Member) -> dict[tuple[str, str], set[str]]:
        """(group, epoch) of what it holds, and the messages that wait in that group."""
        keys = PoolKeys(POOL)
        leases: dict[tuple[str, str], set[str]] = {}
        with self.client() as client:
            for group, holder in client.hgetall(keys.owners).items():
                epoch, _tier, name = holder.split("\x1f")
                if f"-{worker.process.pid}-" in name:
                    waiting = client.lrange(keys.regular_lane + group, 0, -1)
                    values = client.hmget(keys.entries, waiting) if waiting else []
                    leases[group, epoch] = {value.split("\x1f")[4] for value in values if value}
        return leases

    def holds(self, worker: Member) -> int:
        """How many leases of it have not lapsed."""
        groups = [group for group, _ in self.leases_of(worker)]
        with self.client() as client:
            seconds, micros = client.time()
            deadlines = client.zmscore(PoolKeys(POOL).leases, groups) if groups else []
        return sum(deadline is not None and deadline > seconds * 1000 + micros / 1000 for deadline in deadlines)

    def wait_lapsed(self, worker: Member) -> None:
        """Nobody renews what a process holds that does nothing; not even a thread of its own."""
        began = time.monotonic()
        until(
            lambda: not self.holds(worker),
            self.ttl_ms * 1.5 / 1000,
            lambda: (
                f"{time.monotonic() - began:.1f} s after it began to do nothing {worker.role} {worker.process.pid}"
                f" still holds {self.holds(worker)} leases"
            ),
        )

    def _begun_by(self, worker: Member, at_ms: float) -> tuple[set[str], set[str]]:
        """Messages whose request it had begun and not settled; those of them that had ended by then."""
        leases = self.leases_of(worker)
        begun, ended = set[str](), set[str]()
        if not leases:
            return begun, ended
        # What lies in the endpoint's sockets has begun too: once it answers us it has read that.
        with socket.create_connection(self._endpoint_address(), timeout=10) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: endpoint\r\n\r\n")
            connection.recv(1)
        for line in self.endpoint_journal.read_text().splitlines():
            if not line.endswith("}"):
                continue
            record = json.loads(line)
            if record["id"] not in leases.get((record["group"], str(record["epoch"])), ()):
                continue
            if record["kind"] == "start":
                begun.add(record["id"])
            elif record["t"] <= at_ms:
                ended.add(record["id"])
        return begun, begun & ended

    def _endpoint_address(self) -> tuple[str, int]:
        host, _, port = self.endpoint_url.removeprefix("http://").partition(":")
        return host, int(port)

    # Judgement --------------------------------------------------------------------------------------

    def started(self) -> int:
        """Requests that its endpoint has begun to answer."""
        return self._noted("start")

    def ended(self) -> int:
        return self._noted("end")

    def _noted(self, kind: str) -> int:
        return self.endpoint_journal.read_text().count(f'"{kind}"') if self.endpoint_journal.exists() else 0

    def depth(self) -> Depth:
        async def ask() -> Depth:
            source = open_source(QUEUE, self.near_uri or self.queue_uri, self.visibility_s * 1000, around=self.around)
            await source.open()
            try:
                return await source.depth()
            finally:
                await source.close()

        return asyncio.run(ask())

    def is_idle(self) -> bool:
        """Nobody delivers anything just now."""
        with self.client() as client:
            return not client.exists(PoolKeys(POOL).leases)

    def is_drained(self) -> bool:
        # The source first: what it shows again may go through all of the fleet while it is asked.
        depth = self.depth()
        if depth.waiting + depth.invisible:
            return False
        keys, queue = PoolKeys(POOL), QueueKeys(QUEUE)
        with self.client() as client:
            return not client.exists(keys.entries, keys.outboxes, keys.leases, queue.tracked, queue.settled)

    def wait_drained(self, timeout_s: float) -> None:
        until(self.is_drained, timeout_s, self.describe, every_s=0.1)

    def describe(self) -> str:
        """What stands still, for the message of a failed test."""
        keys, queue = PoolKeys(POOL), QueueKeys(QUEUE)
        with self.client() as client:
            state = {
                "entries": client.hlen(keys.entries),
                "ready": client.llen(keys.ready),
                "leases": client.zrange(keys.leases, 0, 5, withscores=True),
                "outboxes": client.smembers(keys.outboxes),
                "tracked": client.hlen(queue.tracked),
                "settled": client.llen(queue.settled),
                "owner": client.hgetall(queue.owner),
                "time": client.time(),
            }
        return f"not drained: {self.depth()} {state}\n{self.verdict().table()}\n{self.logs()}"

    def logs(self) -> str:
        return "\n".join(f"--- {m.role} {m.process.pid}\n{m.text()[-800:]}" for m in self.members)

    def leftover_keys(self) -> list[str]:
        """Keys of no family that may remain after a drain."""
        with self.client() as client:
            keys = [str(key) for key in client.scan_iter(count=1000)]
        return sorted(key for key in keys if not any(fnmatchcase(key, family) for family in FAMILIES))

    def verdict(self) -> Judgement:
        return verify([path for path in (self.sent_journal, self.endpoint_journal) if path.exists()])

    def duplicates_without_doubt(self) -> dict[str, list[str]]:
        """Messages accepted more often than a kill or a stop explains, and what the endpoint noted of each."""
        accepted: Counter[str] = Counter()
        for record in read(self.endpoint_journal):
            if isinstance(record, End) and record.status == 200:
                accepted[record.id] += 1
        found = {name for name, count in accepted.items() if count > 1 + self.doubts[name]}
        notes: dict[str, list[str]] = {name: [] for name in found}
        for record in read(self.endpoint_journal):
            if record.id in found:
                notes[record.id].append(str(record))
        return notes

    def stop(self) -> None:
        """End whatever still runs, in the order that lets each finish."""
        for role in ("server", "worker", "coordinator", "syncer", "endpoint"):
            running = [m for m in self.members if m.role == role and m.alive]
            for member in running:
                member.send(signal.SIGCONT)
                member.send(signal.SIGTERM)
            for member in running:
                try:
                    member.process.wait(STOP_LIMIT_S)
                except subprocess.TimeoutExpired:
                    member.kill()


@contextmanager
def a_stage(directory: Path, **options: Any) -> Iterator[Stage]:
    """On a Redis of its own, unless it is given one."""
    with ExitStack() as stack:
        server = options.pop("redis_server", None) or stack.enter_context(running_redis())
        stage = Stage(directory, server, **options)
        stack.callback(stage.stop)
        yield stage
