"""The driver: lead, finish what was left behind, then fan out and dispatch, epoch after epoch.

A loop over epochs and not Structured Streaming: the ledger in the job store is the offset, written in the transaction
that also holds the claims, and a checkpoint beside it could only disagree.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from fleet.errors import Fenced, FleetError, InvalidConfig
from fleet.jobs.app_key import app_key
from fleet.jobs.store import open_store
from fleet.settings import Settings
from spark.jobs import dispatch, fan_out
from spark.jobs.dispatch import Done
from spark.jobs.recover import Recovered, recover
from spark.jobs.setup import Setup
from spark.line import Line
from spark.session import Spark
from spark.sources.send import Destination

_PAUSE_AFTER_TROUBLE_S = 5.0
Say = Callable[[str], None]


@dataclass
class Totals:
    """What one run of the feed has done."""

    epochs: int = 0
    events: int = 0
    jobs: int = 0
    sent: int = 0
    seen: int = 0
    refused: int = 0
    queued: int = 0
    expired: int = 0
    recovered: int = 0
    held_back: str = field(default="")

    def count(self, done: Done) -> None:
        self.epochs += 1
        self.sent += done.sent
        self.seen += done.seen
        self.refused += done.refused
        self.queued += done.marked

    def line(self) -> str:
        parts = [
            f"{self.events} events → {self.jobs} jobs",
            f"{self.sent} published in {self.epochs} epochs",
            f"{self.queued} queued",
        ]
        for count, what in (
            (self.seen, "were in the queue already"),
            (self.refused, "refused"),
            (self.expired, "expired"),
            (self.recovered, "recovered"),
        ):
            if count:
                parts.append(f"{count} {what}")
        return ", ".join([*parts, *([self.held_back] if self.held_back else [])])


class Feed:
    """One driver. Everything it does, it does while it leads."""

    def __init__(self, *, setup: Setup, say: Say) -> None:
        self.setup = setup
        self.totals = Totals()
        self._say = say

    def begin(self) -> None:
        """The first act of a new leader: older drivers are shut out before anything is decided."""
        setup = self.setup
        setup.ledger.begin(fence=setup.line.fence, now_ms=setup.now_ms())
        setup.line.shut_others_out(setup.to.uri)
        for done in dispatch.unfinished(setup):
            self._tell(done)

    def once(self, *, wait_for_room: bool = False) -> Totals:
        """Everything that is due, as far as the groups and the queue's room let it."""
        while self.step():
            continue
        while wait_for_room and self.totals.held_back:
            time.sleep(self.setup.feed.poll_interval_s)
            while self.step():
                continue
        return self.totals

    def step(self) -> bool:
        """Fan out one batch, dispatch one epoch. False: nothing was there to do."""
        setup = self.setup
        events = jobs = 0
        if fan_out.waiting(setup.engine):
            events, jobs = fan_out.fan_out(setup)
            self.totals.events += events
            self.totals.jobs += jobs
        self.totals.expired += setup.ledger.expire(now_ms=setup.now_ms())
        self.totals.held_back = ""
        due, lag_ms = setup.ledger.due(now_ms=setup.now_ms())
        if due == 0:
            return bool(events)
        room = dispatch.room(setup)
        if room == 0:
            self.totals.held_back = f"{due} wait for room in the queue"
            return bool(events)
        done = dispatch.next_epoch(setup, most=min(room, setup.feed.batch_size), due=due)
        if done is None:
            return bool(events)
        self._tell(done, due=due, lag_ms=lag_ms)
        return True

    def look_back(self, subscription: str, *, since_ms: int) -> None:
        """Make a subscription's jobs of events that came before it."""
        if subscription not in {row.name for row in self.setup.ask("subscriptions").select("name").collect()}:
            raise FleetError(f"there is no subscription {subscription}, or it is switched off")
        self.totals.jobs += fan_out.look_back(self.setup, subscription, since_ms=since_ms)

    def recover(self) -> Recovered:
        found = recover(self.setup)
        self.totals.recovered += found.reset
        return found

    def run(self, stopping: threading.Event) -> None:
        """Until told to stop. Whoever does not lead waits; who loses the lead waits again."""
        line, feed = self.setup.line, self.setup.feed
        standing_by = False
        while not stopping.is_set():
            try:
                if not line.try_to_lead():
                    if not standing_by:
                        self._say("another driver leads: standing by")
                    standing_by = True
                    stopping.wait(feed.poll_interval_s)
                    continue
                standing_by = False
                self._say("leading")
                self._lead(stopping)
            except Fenced as lost:
                self._say(str(lost))
            except FleetError as error:
                self._say(f"{error}; trying again in {_PAUSE_AFTER_TROUBLE_S:g} s")
                stopping.wait(_PAUSE_AFTER_TROUBLE_S)

    def _lead(self, stopping: threading.Event) -> None:
        feed = self.setup.feed
        self.begin()
        look_for_lost_at = time.monotonic()
        while not stopping.is_set():
            if time.monotonic() >= look_for_lost_at:
                found = self.recover()
                if found.reset:
                    self._say(f"recovered {found.lost} lost jobs, {found.reset} go again")
                look_for_lost_at = time.monotonic() + feed.stale_queued_poll_interval_s
            if not self.step():
                # Also says that we are alive: a lease that nobody uses is given up.
                _ = self.setup.line.fence
                stopping.wait(feed.poll_interval_s)

    def _tell(self, done: Done, *, due: int = 0, lag_ms: int = 0) -> None:
        self.totals.count(done)
        left = max(0, due - done.claimed)
        self._say(
            f"epoch {done.epoch}: {done.claimed} claimed, {done.sent} published, {done.marked} queued, "
            f"{left} left, lag {lag_ms / 1000:.1f} s"
        )


@contextmanager
def opened(settings: Settings, *, master: str, say: Say, options: Mapping[str, str] | None = None) -> Iterator[Feed]:
    """Everything a driver needs."""
    feed = settings.feed
    if not feed.enabled:
        raise InvalidConfig("the feed is switched off: [feed] enabled")
    store = open_store(settings)
    line = Line(redis_url=settings.redis.url, sqs_endpoint=settings.sqs.endpoint_override, ttl_ms=settings.lease.ttl_ms)
    spark = Spark(master=master, shards=feed.shards, options=options)
    try:
        with line:
            to = destination(settings, driver_pid=os.getpid())
            yield Feed(setup=Setup(spark=spark, engine=store.engine, line=line, feed=feed, to=to), say=say)
    finally:
        spark.close()
        store.close()


def destination(settings: Settings, *, driver_pid: int = 0) -> Destination:
    feed = settings.feed
    host = f"[{settings.server.host}]" if ":" in settings.server.host else settings.server.host
    return Destination(
        uri=feed.queue_url,
        redis_url=settings.redis.url,
        sqs_endpoint=settings.sqs.endpoint_override,
        endpoint=feed.processing_endpoint or f"http://{host}:{settings.server.port}/api/dispatch/process",
        key=app_key(settings),
        fence=0,
        dedup_ms=int(feed.dedup_s * 1000),
        failpoint=settings.failpoint,
        driver_pid=driver_pid,
    )
