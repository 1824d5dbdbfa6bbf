"""The store and the queue that a driver works between, and a driver: here, or as a process of its own."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import requests
from sqlalchemy import select, update

from fleet.config.settings import DatabaseSettings, FeedSettings, LeaseSettings, RedisSettings, Settings
from fleet.jobs.records import NewJob
from fleet.jobs.schema import dispatch_jobs
from fleet.jobs.store import JobStore, open_store
from fleet.local.supervise import child_environment
from fleet.state.connect import connected
from fleet.state.own_queue import Conclusion, OwnQueue, Shown
from spark.feed import Feed, destination
from spark.lead import Lead
from spark.session import Spark
from spark.steps.setup import Setup
from tests.servers.local import RedisServer

FEED = ("feed-frozen", "feed-publishing", "feed-published", "feed-marked")
"""Every place where a driver can be killed."""
QUEUE = "dispatch"
PATIENCE_S = 110.0
_STAYS_MS = 30_000
"""A driver renews its lead while it works; a test looks around meanwhile."""


@dataclass
class Ground:
    directory: Path
    redis: RedisServer
    spark: Spark
    database: str = ""
    ttl_ms: int = 2000
    feed: FeedSettings = field(default_factory=lambda: FeedSettings(shards=2, master="local[1]"))
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.store: JobStore = open_store(self.settings)

    @property
    def settings(self) -> Settings:
        return Settings(
            data_dir=self.directory,
            redis=RedisSettings(url=self.redis.url),
            database=DatabaseSettings(url=self.database, app_key="k"),
            lease=LeaseSettings(ttl_ms=self.ttl_ms),
            feed=self.feed,
        )

    # Jobs -----------------------------------------------------------------------------------------

    def add(
        self,
        count: int,
        *,
        groups: int,
        modes: Sequence[Any] = ("NEXT_ON_ERROR",),
        group: str = "g",
        target_url: str = "http://127.0.0.1/",
        **fields: Any,
    ) -> list[str]:
        """`count` jobs, dealt out to the groups g0, g1 …; all of a group have one mode."""
        jobs = [
            NewJob(
                target_url=target_url, msg_group=f"{group}{number % groups}" if groups else None,
                mode=modes[(number % max(groups, 1)) % len(modes)], **{"payload": "{}", **fields},
            )
            for number in range(count)
        ]  # fmt: skip
        added: list[str] = []
        for first in range(0, count, 1000):
            added += self.store.add_jobs(jobs[first : first + 1000]).ids
        return added

    def set_all(self, ids: Sequence[str] | None = None, **values: Any) -> None:
        statement = update(dispatch_jobs).values(**values)
        with self.store.engine.connect() as connection, connection.begin():
            connection.execute(statement if ids is None else statement.where(dispatch_jobs.c.id.in_(ids)))

    def states(self) -> Counter[tuple[str, int]]:
        with self.store.engine.connect() as connection:
            found = connection.execute(select(dispatch_jobs.c.status, dispatch_jobs.c.attempt))
            return Counter((row.status, row.attempt) for row in found)

    def places(self) -> dict[str, tuple[int, int, str]]:
        c = dispatch_jobs.c
        with self.store.engine.connect() as connection:
            return {row.id: (row.sequence, row.created_ms, row.id) for row in connection.execute(
                select(c.id, c.sequence, c.created_ms))}  # fmt: skip

    # The queue ------------------------------------------------------------------------------------

    def drain(self) -> list[tuple[dict[str, Any], str]]:
        """Every message, as a consumer would be given it: (body, group at the queue)."""
        shown = asyncio.run(self._drain())
        return [(json.loads(one.body), one.group) for one in shown]

    async def _drain(self) -> list[Shown]:
        taken: list[Shown] = []
        async with connected(self.redis.url) as client:
            queue = OwnQueue(client, QUEUE)
            while True:
                shown, _ = await queue.receive(1000, visibility_ms=60_000)
                if not shown:
                    return taken
                taken += shown
                await queue.conclude([Conclusion(one.number, one.count, one.group) for one in shown])

    def judge(self, expected: set[str], messages: list[tuple[dict[str, Any], str]]) -> None:
        """0 lost, 0 twice for the same (job, attempt), and of each group in order."""
        sent = Counter((body["id"], body["mediationTarget"]) for body, _ in messages)
        assert {job for job, _ in sent} == expected, "lost, or never added"
        assert [key for key, times in sent.items() if times > 1] == []
        places = self.places()
        latest: dict[str, tuple[int, int, str]] = {}
        for body, group in messages:
            if group:
                assert places[body["id"]] > latest.get(group, (0, 0, "")), f"{group} is out of order"
                latest[group] = places[body["id"]]

    # Drivers --------------------------------------------------------------------------------------

    @contextmanager
    def driver(self, *, ttl_ms: int = _STAYS_MS, **feed: Any) -> Iterator[Feed]:
        """One in this process, with the session that all tests share. It does not lead yet."""
        settings = dataclasses.replace(self.settings, feed=dataclasses.replace(self.feed, **feed))
        lead = Lead(redis_url=self.redis.url, sqs_endpoint="", ttl_ms=ttl_ms)
        with lead:
            setup = Setup(
                spark=self.spark, engine=self.store.engine, lead=lead, feed=settings.feed, to=destination(settings)
            )
            yield Feed(setup=setup, say=self.said.append)

    @contextmanager
    def leading(self, **feed: Any) -> Iterator[Feed]:
        with self.driver(**feed) as driver:
            driver.setup.lead.lead()
            driver.begin()
            yield driver

    def killed_at(self, place: str) -> None:
        """A real driver that dies there, and everything it had started gone."""
        environment = child_environment(
            {**{name: value for name, value in os.environ.items() if not name.startswith("FLEET_")},
             "FLEET_REDIS_URL": self.redis.url, "FLEET_DATA_DIR": str(self.directory), "FLEET_DATABASE_APP_KEY": "k",
             "FLEET_DATABASE_URL": self.database, "FLEET_LEASE_TTL_MS": str(self.ttl_ms),
             "FLEET_FEED_SHARDS": str(self.feed.shards), "FLEET_FEED_BATCH_SIZE": str(self.feed.batch_size),
             "FLEET_FAILPOINT": place}
        )  # fmt: skip
        log = self.directory / "victim.log"
        with log.open("wb") as output:
            victim = subprocess.Popen(
                [sys.executable, "-P", "-m", "fleet.cli", "feed", "once", "--master", "local[1]"],
                env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        try:
            code = victim.wait(PATIENCE_S)
            assert code == -signal.SIGKILL, f"ended with {code}: {log.read_text(errors='replace')[-2000:]}"
        finally:
            end_session(victim.pid)


def process(body: dict[str, Any]) -> dict[str, Any]:
    """What a worker does with a message of the pipeline, and what the server tells it."""
    headers = {"Authorization": f"Bearer {body['authToken']}"}
    answer = requests.post(body["mediationTarget"], json={"messageId": body["id"]}, headers=headers, timeout=25)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def end_session(leader: int) -> None:
    """What a dead driver leaves behind: its JVM ends by itself when it misses it; no test waits for that."""
    left = [one for one in psutil.process_iter() if _session_of(one.pid) == leader]
    for one in left:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(left, timeout=10)


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0
