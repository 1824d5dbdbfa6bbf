"""A fleet whose heads fail and whose pool is small, fed by two queues, and what disturbs its order."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleet.sources.open import open_publisher, open_source
from fleet.state.keys import PoolKeys, QueueKeys
from tests.clocks import WallClock
from tests.member import Member
from tests.servers.proxy import Proxy
from tests.stage import POOL, QUEUE, Stage
from tests.waiting import let_pass, until

BESIDE = "beside"
"""Another queue of the same pool. Two owners of queues each ask for all the room there is, and one finds it taken."""

WIDE, ROOMY = 120, 400
"""Capacities: for what is to lapse, and for what is newer beside it."""
FILLS_S = 3.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What becomes of a group whose head failed."""

    on_failure: str
    is_mixed: bool = False
    """A quarter of the groups wait in place, whatever the pool's policy is."""
    fails_every: int = 8
    """One message in so many goes to an endpoint that refuses a third of its requests for a second."""


@dataclass
class OrderStage(Stage):
    policy: Policy = field(default_factory=lambda: Policy("hold"))
    line: Proxy | None = None
    """To a broker that shows again what it gave to a connection when that ends, and not before."""
    owners_clock: WallClock | None = None
    """Of coordinators."""
    tails_seen: int = 0
    """How often a look found groups whose tail was on its way back."""

    def addressed(self, number: int, groups: int, busy_every: int) -> tuple[str, str, dict[str, Any]]:
        group = f"{'beside' if busy_every < 0 else 'group'}-{number % groups}"
        waits = self.policy.is_mixed and number % groups % 4 == 0
        # A message of each group in its turn.
        fails = (number // groups + number % groups) % self.policy.fails_every == 0
        return group, "/busy" if fails else "/", {"dispatchMode": "BLOCK_ON_ERROR"} if waits else {}

    def send_beside(self, count: int, groups: int) -> None:
        publisher = open_publisher(self.beside_uri, around=self.around)
        self.send_messages(count, groups, busy_every=-1, publisher=publisher)

    @property
    def beside_uri(self) -> str:
        return f"sqlite:///{self.directory}/beside.db?queue={BESIDE}"

    def __post_init__(self) -> None:
        queue = {"queueName": BESIDE, "queueUri": self.beside_uri, "visibilityTimeout": self.visibility_s}
        self.more_queues.append(queue)

    def start(self, role: str, *arguments: str, failpoint: str = "", **more: str) -> Member:
        if self.owners_clock is not None and role == "coordinator":
            more |= self.owners_clock.environment
        return super().start(role, *arguments, failpoint=failpoint, **more)

    def is_drained(self) -> bool:
        self._look()
        keys = QueueKeys(BESIDE)
        with self.client() as client:
            if client.exists(keys.tracked, keys.settled):
                return False
        return super().is_drained() and self._is_empty_beside()

    def _is_empty_beside(self) -> bool:
        async def ask() -> bool:
            source = open_source(BESIDE, self.beside_uri, self.visibility_s * 1000, around=self.around)
            await source.open()
            try:
                depth = await source.depth()
            finally:
                await source.close()
            return depth.waiting + depth.invisible == 0

        return asyncio.run(ask())

    def has_owner(self) -> bool:
        """Somebody reads the queue, by Redis's clock."""
        with self.client() as client:
            seconds, micros = client.time()
            deadline = client.hget(QueueKeys(QUEUE).owner, "deadline")
        return deadline is not None and float(deadline) > seconds * 1000 + micros / 1000

    def times_full(self) -> int:
        return sum(member.text().count(" is full: ") for member in self.members if member.role == "coordinator")

    def go_on(self, requests: int) -> None:
        """Until so many more were answered, or all that there is."""
        enough = self._answered() + requests

        def is_enough() -> bool:
            self._look()
            answered = self._answered()
            return answered >= enough or answered >= self.sent

        until(is_enough, 120, self.describe, every_s=0.05)

    def _answered(self) -> int:
        path = self.endpoint_journal
        return path.read_bytes().count(b'"end"') if path.exists() else 0

    def _look(self) -> None:
        """For what only shows while it lasts."""
        with self.client() as client:
            self.tails_seen += client.exists(PoolKeys(POOL).away)

    # Disturbances ---------------------------------------------------------------------------------

    def lapse(self, send_newer: Callable[[], None], *, workers_too: bool) -> None:
        """All coordinators are away for longer than what they took stays invisible, while newer messages are sent.

        Workers go on, and what fails meanwhile is settled by nobody; or they stop too, and the pool stays as it is.
        Who comes back finds room for more than was there: newer messages come beside what lapsed.
        """
        coordinators = self.coordinators()
        workers = self.workers() if workers_too else []
        for member in workers:
            self.pause(member)
        if workers:
            self._fill()
        self._pause_all(coordinators)
        if self.line is not None:
            self.line.cut()
        lapsed = time.monotonic() + self.visibility_s + 1
        self.set_capacity(ROOMY)
        send_newer()
        let_pass(lapsed - time.monotonic())
        if self.line is not None:
            self.line.mend()
        for member in coordinators:
            self.resume(member)
        until(self.has_owner, 30, self.describe)
        let_pass(1)
        for member in workers:
            self.resume(member)
        self.set_capacity(self.pool_options["capacity"])

    def _pause_all(self, coordinators: list[Member]) -> None:
        """None of them in the middle of a transaction: who holds a file's lock stops its producers too."""

        def is_paused() -> bool:
            for member in coordinators:
                self.pause(member)
            if self.source_uri or not _is_locked(self.directory / "queue.db"):
                return True
            for member in coordinators:
                self.resume(member)
            return False

        until(is_paused, 30, self.describe)

    def _fill(self) -> None:
        """Have much stand in the pool, as far as the source has that."""
        self.set_capacity(WIDE)
        over = time.monotonic() + FILLS_S

        def is_filled() -> bool:
            with self.client() as client:
                return bool(client.hlen(PoolKeys(POOL).entries) > WIDE * 3 // 4)

        until(lambda: is_filled() or time.monotonic() > over, 30, self.describe, every_s=0.05)

    def set_capacity(self, capacity: int) -> None:
        self.write_config([{"code": POOL, "concurrency": self.concurrency, **self.pool_options, "capacity": capacity}])

    def replace(self, victim: Member) -> None:
        self.kill(victim)
        self.start(victim.role)


def _is_locked(file: Path) -> bool:
    with closing(sqlite3.connect(file, timeout=0.1, isolation_level=None)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        db.execute("ROLLBACK")
        return False
