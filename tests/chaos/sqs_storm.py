"""Four doors and a Redis, and what befalls them."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from redis.exceptions import BusyLoadingError

from fleet.state.keys import FAMILIES, BrokerKeys
from tests.chaos.sqs_crowd import (
    CHURNED,
    DEAD_FIFO,
    DEAD_STANDARD,
    FIFO,
    QUEUES,
    SEVERAL,
    STANDARD,
    VISIBILITY_S,
    Crowd,
    url,
)
from tests.chaos.sqs_judge import Verdict, judge
from tests.chaos.sqs_wire import NoAnswer, Refused, Wire
from tests.servers.local import RedisServer, ServerProcess, running_redis
from tests.servers.ports import free_port
from tests.waiting import eventually

DOORS, RECEIVERS = 4, 64
DRAIN_S = 60.0
_MOST_RECEIVES = 5
_START_S = 30.0


@dataclass(frozen=True, slots=True)
class Form:
    faults: int
    pause_s: float
    """Between two faults."""
    send_pause_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Verdict
    sent: int
    dead_letters: int
    died: list[str]
    """What doors said last that ended by themselves, or not well when they were asked to."""
    leftover_before: list[str]
    """Keys of the drained queues that hold something."""
    leftover_after: list[str]
    """Keys that their deletion left for good."""
    faults: dict[str, int]


@dataclass
class Doors:
    directory: Path
    redis_url: str
    ports: list[int] = field(default_factory=lambda: [free_port() for _ in range(DOORS)])
    running: dict[int, ServerProcess] = field(default_factory=dict)
    died: list[str] = field(default_factory=list)

    def start(self, port: int) -> None:
        log = self.directory / f"door-{port}.log"
        with log.open("ab") as output:
            command = [sys.executable, "-m", "tests.chaos.sqs_door", self.redis_url, str(port)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self.running[port] = ServerProcess(process, log)

    def kill(self, port: int) -> None:
        door = self.running[port]
        if door.process.poll() is not None:
            self.died.append(door.log.read_text(errors="replace")[-2000:])
        door.kill()

    def stop(self) -> None:
        for port, door in self.running.items():
            has_died = door.process.poll() is not None
            door.stop()
            if has_died or door.process.returncode:
                self.died.append(f"door {port}: " + door.log.read_text(errors="replace")[-2000:])
        self.running.clear()

    def text(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted(self.directory.glob("door-*.log")))


@dataclass
class House:
    doors: Doors
    redis: RedisServer
    directory: Path
    stack: ExitStack
    dice: random.Random
    faults: dict[str, int] = field(default_factory=dict)

    async def befall(self) -> None:
        # A door more often than what all of them stand on.
        kind = self.dice.choice(("kill", "kill", "kill", "kill_leader", "stop", "stop_leader", "redis"))
        self.faults[kind] = self.faults.get(kind, 0) + 1
        if kind == "redis":
            await self._kill_redis()
            return
        port = self._leader() if kind.endswith("leader") else self.dice.choice(self.doors.ports)
        if kind.startswith("kill"):
            self.doors.kill(port)
            self.doors.start(port)
        else:
            # For less than what it holds stays hidden, and for longer.
            self.doors.running[port].pause()
            await asyncio.sleep(self.dice.uniform(0.2, 1.4) * VISIBILITY_S)
            self.doors.running[port].resume()

    def _leader(self) -> int:
        """Who has the lease of the upkeep, or anybody while nobody has it."""
        with self.redis.client() as client:
            owner = str(client.hgetall(BrokerKeys.sqs_sweeper)) if client.exists(BrokerKeys.sqs_sweeper) else ""
        named = [port for port, door in self.doors.running.items() if f"-{door.pid}-" in owner]
        return named[0] if named else self.dice.choice(self.doors.ports)

    async def _kill_redis(self) -> None:
        # A door that begins without a Redis says so and ends, which is its right.
        await eventually(self._all_answer, every_s=0.05)
        self.redis.server.kill()
        await asyncio.sleep(self.dice.uniform(0.0, 0.5))
        self.redis = self.stack.enter_context(a_redis(self.directory, self.redis.port))
        await eventually(self._has_loaded, every_s=0.05)

    def _has_loaded(self) -> bool:
        with self.redis.client() as client:
            try:
                return bool(client.ping())
            except BusyLoadingError:
                return False

    async def _all_answer(self) -> bool:
        for port in self.doors.ports:
            # One that listens may not have found its Redis yet.
            wire = Wire([port], self.dice)
            try:
                await wire.call("ListQueues", {}, within_s=1.0)
            except NoAnswer:
                return False
            finally:
                wire.close()
        return True


@contextmanager
def a_redis(directory: Path, port: int) -> Iterator[RedisServer]:
    """What it has answered it still knows when it comes again."""
    options = ("--appendonly", "yes", "--appendfsync", "always", "--dir", str(directory))
    with running_redis(*options, port=port) as server:
        yield server


async def outcome_of(directory: Path, form: Form, seed: int) -> Outcome:
    with ExitStack() as stack:
        redis = stack.enter_context(a_redis(directory, free_port()))
        doors = Doors(directory, redis.url)
        stack.callback(doors.stop)
        for port in doors.ports:
            doors.start(port)
        house = House(doors, redis, directory, stack, random.Random(seed))
        crowd = Crowd(doors.ports, seed, receivers=RECEIVERS, pause_s=form.send_pause_s)
        wire = crowd.wire()
        await _create(wire)
        crowd.start()
        for _ in range(form.faults):
            await asyncio.sleep(form.pause_s * house.dice.uniform(0.5, 1.5))
            _check(crowd)
            await house.befall()
        await crowd.stop_sending()
        await _drained(crowd, wire)
        leftover_before = _holding(house.redis)
        await crowd.stop()
        for queue in (*QUEUES, *CHURNED):
            with suppress(Refused):  # of those that came and went some are gone
                await _ask(wire, "DeleteQueue", {"QueueUrl": url(queue)})
        # What a door that died left half deleted, the next holder of the lease clears.
        await _patiently(lambda: not _for_good(house.redis))
        await crowd.aclose()
        doors.stop()
        journal = crowd.journal
        return Outcome(
            verdict=judge(journal),
            sent=len(journal.accepted),
            dead_letters=len({one.letter.body for one in journal.deleted if one.queue in (DEAD_FIFO, DEAD_STANDARD)}),
            died=doors.died,
            leftover_before=leftover_before,
            leftover_after=_for_good(house.redis),
            faults=house.faults,
        )


def _check(crowd: Crowd) -> None:
    failed = crowd.failed()
    if failed is not None:
        raise AssertionError("a client was told what cannot be") from failed


async def _create(wire: Wire) -> None:
    for queue, dead, more in ((FIFO, DEAD_FIFO, SEVERAL), (STANDARD, DEAD_STANDARD, {})):
        fifo = {"FifoQueue": "true"} if queue == FIFO else {}
        visible = {"VisibilityTimeout": str(VISIBILITY_S)}
        policy = {
            "deadLetterTargetArn": f"arn:aws:sqs:us-east-1:000000000000:{dead}",
            "maxReceiveCount": str(_MOST_RECEIVES),
        }
        await _ask(wire, "CreateQueue", {"QueueName": dead, "Attributes": visible | fifo})
        attributes = visible | fifo | more | {"RedrivePolicy": json.dumps(policy)}
        await _ask(wire, "CreateQueue", {"QueueName": queue, "Attributes": attributes})


async def _ask(wire: Wire, verb: str, params: dict[str, object]) -> dict[str, object]:
    async with asyncio.timeout(_START_S):
        while True:
            try:
                return await wire.call(verb, params)
            except NoAnswer:
                await asyncio.sleep(0.1)


async def _drained(crowd: Crowd, wire: Wire) -> None:
    """Until nothing is left to be shown, or it takes too long: what is missing then is lost."""
    over_s = time.monotonic() + DRAIN_S

    async def is_empty() -> bool:
        _check(crowd)
        if time.monotonic() > over_s:
            return True
        if crowd.journal.missing():
            return False
        return sum([await _depth(wire, queue) for queue in QUEUES]) == 0

    await eventually(is_empty, within_s=DRAIN_S + _START_S, every_s=0.2)


async def _patiently(fact: Callable[[], bool]) -> None:
    """Whether or not it comes true: the test says what is wrong then."""
    with suppress(TimeoutError):
        await eventually(fact, within_s=_START_S, every_s=0.2)


async def _depth(wire: Wire, queue: str) -> int:
    found = await _ask(wire, "GetQueueAttributes", {"QueueUrl": url(queue), "AttributeNames": ["All"]})
    attributes = found["Attributes"]
    assert isinstance(attributes, dict)
    return sum(int(value) for name, value in attributes.items() if name.startswith("ApproximateNumberOf"))


def _holding(redis: RedisServer) -> list[str]:
    with redis.client() as client:
        found = [key for key in client.scan_iter(count=1000) if not any(fnmatchcase(key, f) for f in FAMILIES)]
        return sorted(key for key in found if "churn" not in key)


def _for_good(redis: RedisServer) -> list[str]:
    """Of the queues, which are deleted: what has no end."""
    with redis.client() as client:
        return sorted(key for key in client.scan_iter("{b:*", count=1000) if client.ttl(key) < 0)
