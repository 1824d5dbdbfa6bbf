"""The whole pipeline as real processes: job store, Redis, router, server, drivers, and who witnesses what they do."""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import delete, func, select

from fleet.config.settings import DatabaseSettings, Settings
from fleet.jobs.records import MODES, Job, NewJob
from fleet.jobs.schema import claims, dispatch_jobs, epochs
from fleet.jobs.store import JobStore, open_store
from spark.sources.ledger import Epoch
from tests.acceptance.fleet_command import Fleet, Process
from tests.servers.local import RedisServer
from tests.servers.ports import free_port
from tests.spark.driver import QUEUE, end_session
from tests.spark.witness import Delivery, Endpoint, Published, a_record_of, an_endpoint
from tests.waiting import until

POOL = "P"
TTL_MS = 2000
STAYS_MS = 10_000
"""Of a driver that is not killed, and must not lose its lead because the machine is busy."""
BLOCK, NEXT = "BLOCK_ON_ERROR", "NEXT_ON_ERROR"
Launch = Callable[[Mapping[str, str]], AbstractContextManager[Process]]


@dataclass
class Works:
    directory: Path
    redis: RedisServer
    database: str
    endpoint: Endpoint
    published: Published
    dice: random.Random
    stack: ExitStack
    feed: dict[str, str] = field(default_factory=dict)
    launch: Launch | None = None
    """How a driver is started; None: by `fleet feed run`."""
    drivers: list[Process] = field(default_factory=list)
    paths: dict[str, str] = field(default_factory=dict)
    """Of each job that was added, what its endpoint is."""
    began_s: float = field(default_factory=time.monotonic)

    @cached_property
    def store(self) -> JobStore:
        store = open_store(Settings(data_dir=self.directory, database=DatabaseSettings(url=self.database)))
        self.stack.callback(store.close)
        return store

    @cached_property
    def port(self) -> int:
        return free_port()

    @cached_property
    def fleet(self) -> Fleet:
        return Fleet(
            self.directory,
            {
                "FLEET_REDIS_URL": self.redis.url,
                "FLEET_DATABASE_URL": self.database,
                "FLEET_DATABASE_APP_KEY": "k",
                "FLEET_DATA_DIR": str(self.directory),
                "FLEET_CONFIG": str(self.directory / "router.json"),
                "FLEET_LEASE_TTL_MS": str(TTL_MS),
                "FLEET_SERVER_PORT": str(self.port),
                "FLEET_FEED_POLL_INTERVAL_S": "0.1",
                "FLEET_FEED_MASTER": "local[1]",
                "FLEET_FEED_SHARDS": "2",
                **self.feed,
            },
        )

    # Processes ------------------------------------------------------------------------------------

    def start(self, *arguments: str, **environment: str) -> Process:
        return self.stack.enter_context(self.fleet.running(*arguments, **environment))

    def start_router(self) -> Process:
        """All of it; the worker is what is returned."""
        queue = {"queueName": QUEUE, "queueUri": f"fleet://{QUEUE}"}
        pool = {"code": POOL, "concurrency": 64}
        (self.directory / "router.json").write_text(json.dumps({"queues": [queue], "processingPools": [pool]}))
        for role in ("syncer", "coordinator"):
            self.start(role)
        return self.start("worker")

    def start_server(self) -> Process:
        server = self.start("server")
        self.says(server, "answers at")
        return server

    def start_driver(self, failpoint: str = "", *, ttl_ms: int = TTL_MS) -> Process:
        environment = {"FLEET_FAILPOINT": failpoint, "FLEET_LEASE_TTL_MS": str(ttl_ms)}
        if self.launch is None:
            driver = self.start("feed", "run", **environment)
            self.stack.callback(end_session, driver.popen.pid)
        else:
            driver = self.stack.enter_context(self.launch({**self.fleet.environment, **environment}))
        self.drivers.append(driver)
        return driver

    # Jobs -----------------------------------------------------------------------------------------

    def add(self, count: int, *, groups: int) -> None:
        """Dealt out to the groups: all of a group have one mode, but in every tenth group, where modes alternate.

        One in a hundred has an endpoint that is down, and another one one that refuses first attempts.
        """
        first = len(self.paths)
        for start in range(first, first + count, 1000):
            jobs = [self._job(number, groups) for number in range(start, min(start + 1000, first + count))]
            added = self.store.add_jobs(jobs).ids
            self.paths |= {id_: job.target_url.rpartition("/")[2] for id_, job in zip(added, jobs, strict=True)}

    def _job(self, number: int, groups: int) -> NewJob:
        group, turn = number % groups, number // groups
        mode: Any = MODES[(group + turn if group % 10 == 9 else group) % 3]
        path = self.dice.choices(("good", "shaky", "down"), (98, 1, 1))[0]
        return NewJob(
            target_url=f"{self.endpoint.url}/{path}", payload=f'{{"number":{number}}}', msg_group=f"g{group}",
            mode=mode, pool=POOL, max_retries=1, timeout_seconds=1,
        )  # fmt: skip

    def jobs(self) -> list[Job]:
        return sorted(self.store.jobs(limit=0), key=place)

    # Facts ----------------------------------------------------------------------------------------

    def wait(self, fact: Callable[[], bool], what: str, *, limit_s: float = 120, every_s: float = 0.05) -> None:
        until(fact, limit_s, lambda: f"{what}\n{self.describe()}", every_s=every_s)

    def stays(self, fact: Callable[[], bool], *, for_s: float) -> bool:
        """Also when what was on its way to a server is done there: nobody tells when that is."""
        over = time.monotonic() + for_s
        while fact():
            if time.monotonic() >= over:
                return True
            time.sleep(0.02)
        return False

    def says(self, process: Process, words: str) -> None:
        def said() -> bool:
            assert process.popen.poll() is None or words in process.text(), process.text()
            return words in process.text()

        # Patient: Java and Spark start slowly where others work too.
        self.wait(said, words)

    def describe(self) -> str:
        logs = {*self.directory.glob("*.log"), *(driver.log for driver in self.drivers)}
        texts = (f"--- {log.name}\n{log.read_text(errors='replace')[-1500:]}" for log in sorted(logs))
        return f"{self.store.stats()}, {len(self.endpoint.seen)} deliveries\n" + "\n".join(texts)

    def newest_epoch(self) -> Epoch:
        question = select(epochs.c.epoch, epochs.c.state, epochs.c.jobs).order_by(epochs.c.epoch.desc())
        with self.store.engine.connect() as connection:
            row = connection.execute(question).first()
        return Epoch(0, "", 0) if row is None else Epoch(*row)

    def is_in_publish(self, number: int) -> bool:
        epoch = self.newest_epoch()
        return (epoch.number, epoch.state) == (number, "frozen")

    def claimed(self) -> int:
        """How many (job, attempt) the ledger ever claimed."""
        with self.store.engine.connect() as connection:
            pairs = select(claims.c.job_id, claims.c.attempt).distinct().subquery()
            return connection.execute(select(func.count()).select_from(pairs)).scalar_one()

    def forget_ledger(self) -> None:
        with self.store.engine.connect() as connection, connection.begin():
            for table in (claims, epochs):
                connection.execute(delete(table))

    def in_progress(self) -> set[str]:
        with self.store.engine.connect() as connection:
            question = select(dispatch_jobs.c.id).where(dispatch_jobs.c.status == "IN_PROGRESS")
            return set(connection.execute(question).scalars())

    def settled(self) -> bool:
        """Nothing is under way, and what waits waits for ever: a BLOCK_ON_ERROR job behind an error."""
        stats = self.store.stats()
        if stats["QUEUED"] or stats["IN_PROGRESS"]:
            return False
        return stats["PENDING"] == 0 or stats["PENDING"] == len(self.held())

    def held(self) -> set[str]:
        """BLOCK_ON_ERROR jobs behind one that is in ERROR, and never tried."""
        found, errors = set(), set()
        for job in self.jobs():
            if job.status == "ERROR":
                errors.add(job.msg_group)
            elif job.mode == BLOCK and job.msg_group in errors and job.status == "PENDING" and job.attempt == 1:
                found.add(job.id)
        return found


def place(job: Job) -> tuple[int, int, str]:
    return job.sequence, job.created_ms, job.id


@contextmanager
def the_works(
    directory: Path,
    redis: RedisServer,
    database: str,
    feed: dict[str, str] | None = None,
    *,
    launch: Launch | None = None,
    latency_ms: float = 20,
) -> Iterator[Works]:
    seed = random.randrange(1_000_000)
    print(f"\nseed {seed}")
    with (
        an_endpoint(latency_ms=latency_ms) as endpoint,
        a_record_of(QUEUE, port=redis.port) as published,
        ExitStack() as stack,
    ):
        yield Works(directory, redis, database, endpoint, published, random.Random(seed), stack, feed or {}, launch)


# The verdict -----------------------------------------------------------------------------------------


@dataclass
class Verdict:
    jobs: int
    deliveries: int
    delivered: int
    """Jobs that their endpoint said yes to."""
    lost: list[str]
    published: int
    published_twice: list[tuple[str, int]]
    delivered_twice: list[str]
    """The same attempt at the endpoint again."""
    out_of_order: list[str]
    after_an_error: list[str]
    """BLOCK_ON_ERROR jobs that came while one before them was not done."""

    def line(self) -> str:
        named = (
            ("lost", self.lost), ("published twice", self.published_twice), ("delivered twice", self.delivered_twice),
            ("out of order", self.out_of_order), ("after an unresolved error", self.after_an_error),
        )  # fmt: skip
        return ", ".join(
            [f"{self.jobs} jobs, {self.published} published, {self.deliveries} deliveries, {self.delivered} delivered"]
            + [f"{len(found)} {what}" for what, found in named]
        )


def judge(works: Works, jobs: int, in_doubt: Set[str] = frozenset()) -> Verdict:
    """None lost, doubled or out of order; `in_doubt` may have been delivered twice."""
    found = verdict(works)
    tell(works, found.line())
    assert len(works.paths) == jobs == found.jobs
    assert found.lost == []
    assert found.published_twice == []
    assert works.claimed() == found.published
    assert found.out_of_order == []
    assert found.after_an_error == []
    assert {one.rpartition(":")[0] for one in found.delivered_twice} <= in_doubt
    return found


def tell(works: Works, what: str) -> None:
    print(f"{time.monotonic() - works.began_s:5.1f} s: {what}; {len(works.endpoint.seen)} deliveries so far")


def verdict(works: Works) -> Verdict:
    jobs = works.jobs()
    by_job: dict[str, list[Delivery]] = defaultdict(list)
    for one in works.endpoint.seen:
        by_job[one.job].append(one)
    done_at = {name: min((d.ended for d in seen if d.good), default=0) for name, seen in by_job.items()}
    held = works.held()
    groups: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        groups[job.msg_group or ""].append(job)
    out_of_order: list[str] = []
    after_an_error: list[str] = []
    for group in groups.values():
        out_of_order += _disordered(group, by_job)
        after_an_error += _too_early(group, by_job, done_at)
    said: dict[str, bool] = {job.id: bool(done_at.get(job.id)) for job in jobs}
    lost = [
        job.id for job in jobs
        if not (job.status == "COMPLETED" and said[job.id])
        and not (job.status == "ERROR" and works.paths[job.id] == "down" and len(by_job[job.id]) >= 2)
        and job.id not in held
    ]  # fmt: skip
    twice = [
        f"{name}:{attempt}" for name, seen in by_job.items()
        for attempt, times in _times([d.attempt for d in seen]) if times > 1
    ]  # fmt: skip
    return Verdict(
        jobs=len(jobs), deliveries=len(works.endpoint.seen), delivered=sum(said.values()), lost=lost,
        published=works.published.count, published_twice=works.published.twice(), delivered_twice=twice,
        out_of_order=out_of_order, after_an_error=after_an_error,
    )  # fmt: skip


def _times(attempts: Sequence[int]) -> list[tuple[int, int]]:
    return [(attempt, attempts.count(attempt)) for attempt in sorted(set(attempts))]


def _disordered(group: Sequence[Job], by_job: dict[str, list[Delivery]]) -> list[str]:
    """NEXT_ON_ERROR by first arrivals; BLOCK_ON_ERROR by all: none comes after a later one of its mode."""
    found = []
    first = latest = 0
    for job in group:
        seen = [one.began for one in by_job.get(job.id, ())]
        if not seen:
            continue
        if job.mode == NEXT:
            if seen[0] < first:
                found.append(job.id)
            first = max(first, seen[0])
        elif job.mode == BLOCK:
            if min(seen) < latest:
                found.append(job.id)
            latest = max(seen)
    return found


def _too_early(group: Sequence[Job], by_job: dict[str, list[Delivery]], done_at: dict[str, int]) -> list[str]:
    """BLOCK_ON_ERROR jobs of which any delivery began before all that stand before them had been said yes to."""
    found = []
    free_at: float = 0
    for job in group:
        if job.mode == BLOCK and any(one.began < free_at for one in by_job.get(job.id, ())):
            found.append(job.id)
        free_at = max(free_at, done_at.get(job.id) or float("inf"))
    return found
