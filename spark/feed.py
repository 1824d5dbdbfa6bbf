"""The driver: lead, finish what was left behind, then fan out and dispatch, epoch after epoch.

A loop over epochs rather than Structured Streaming: the ledger in the job store is the offset, written in the same
transaction as the claims. A checkpoint beside it could only disagree.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from fleet.config.settings import Settings
from fleet.errors import Fenced, FleetError, InvalidConfig, SparkGone
from fleet.jobs.app_key import app_key
from fleet.jobs.store import JobStore, open_store
from fleet.sources.open import adapter_of
from fleet.words import number
from spark.cluster import end_with_spark_submit, is_local, submitted
from spark.lead import Lead
from spark.progress import Progress, Say
from spark.room import PoolDue
from spark.session import Spark
from spark.sources.ledger import Backlog
from spark.sources.send import Destination
from spark.steps import dispatch, fan_out
from spark.steps.dispatch import Done
from spark.steps.recover import Recovered, recover
from spark.steps.setup import Setup

_PAUSE_AFTER_TROUBLE_S = 5.0
_HELD_S = 5.0
_LOOKS_APART = 5
"""Looking at what waits takes long where much does. A driver with nothing to do rests this many times as long."""
COUNTED = ("epochs", "events", "sent", "seen", "refused", "expired", "recovered")
"""Of `Totals`, what metrics show."""


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
            f"{number(self.events, 'event')} → {number(self.jobs, 'job')}",
            f"{self.sent} published in {number(self.epochs, 'epoch')}",
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

    def document(self) -> dict[str, Any]:
        return {
            "events": self.events,
            "jobs": self.jobs,
            "epochs": self.epochs,
            "published": self.sent,
            "inQueueAlready": self.seen,
            "queued": self.queued,
            "refused": self.refused,
            "expired": self.expired,
            "recovered": self.recovered,
            "heldBack": self.held_back or None,
        }


class Feed:
    """One driver. Everything it does, it does while it leads."""

    def __init__(self, *, setup: Setup, say: Say, show: Say | None = None) -> None:
        self.setup = setup
        self.totals = Totals()
        self.progress = Progress(say=say, show=show)
        self._say = say
        self._held: tuple[Mapping[str, PoolDue] | None, float] = (None, 0.0)
        self._look_s = 0.0

    def begin(self) -> None:
        """The first act of a new leader: older drivers are shut out before anything is decided."""
        setup = self.setup
        setup.ledger.begin(fence=setup.lead.fence, now_ms=setup.now_ms())
        setup.lead.shut_others_out(setup.to.uri)
        began_s = time.monotonic()
        for done in dispatch.unfinished(setup):
            self._tell(done, began_s=began_s)

    def once(self, *, wait_for_room: bool = False) -> Totals:
        """Publish everything that is due, as far as the groups and the queue's room allow."""
        while self.step():
            self._count()
        while wait_for_room and self.totals.held_back:
            self.setup.lead.rest(threading.Event(), self.setup.feed.poll_interval_s)
            while self.step():
                self._count()
        self._count()
        self.setup.attend(lambda: self.setup.ledger.forget(now_ms=self.setup.now_ms()))
        self.progress.flush()
        return self.totals

    def step(self) -> bool:
        """Fan out one batch, dispatch one epoch. False: there was nothing to do."""
        setup = self.setup
        setup.lead.keep()
        events = jobs = 0
        if setup.attend(lambda: fan_out.waiting(setup.engine)):
            self.progress.step("making jobs of events")
            events, jobs = fan_out.fan_out(setup)
            self.totals.events += events
            self.totals.jobs += jobs
        self.totals.held_back = ""
        found = self._look()
        if found.late:
            self.totals.expired += setup.attend(lambda: setup.ledger.expire(now_ms=setup.now_ms()))
            found = self._look()
        due, lag_ms = found.jobs, found.lag_ms
        if due == 0:
            return bool(events)
        room = dispatch.room(setup, found)
        if shut_out := sum(pool.due for code, pool in found.pools.items() if room.shuts_out(code)):
            self.totals.held_back = f"{shut_out} wait for room in the queue"
        if room.jobs == 0:
            self.totals.held_back = f"{due} wait for room in the queue"
            self.progress.held(waiting=due, lag_s=lag_ms / 1000, why="for room in the queue")
            return bool(events)
        # A plan says nothing about pools that are shut out, whatever happens to them.
        judged = {code: pool for code, pool in found.pools.items() if not room.shuts_out(code)}
        if self._still_held(judged):
            return bool(events)
        self.progress.step("starting Spark")
        setup.attend(lambda: setup.spark.session)  # start-up does not count
        began_s = time.monotonic()
        self.progress.step(f"planning, {due:,} are due")
        epoch = dispatch.freeze(setup, room, due=due)
        if epoch is None:
            self._held = judged, time.monotonic()
            self.progress.held(waiting=due - shut_out, lag_s=lag_ms / 1000, why="for others of their groups")
            return bool(events)
        self._held = None, 0.0
        self.progress.step(f"epoch {epoch.number}: publishing {epoch.jobs:,}")
        self._tell(dispatch.finish(setup, epoch), began_s=began_s, due=due, lag_ms=lag_ms)
        return True

    def _look(self) -> Backlog:
        began_s = time.monotonic()
        found = self.setup.attend(lambda: self.setup.ledger.look(now_ms=self.setup.now_ms()))
        self._look_s = time.monotonic() - began_s
        return found

    def _still_held(self, pools: Mapping[str, PoolDue]) -> bool:
        """Skip a plan that would say the same of the same jobs again: it takes seconds of a core.

        What frees a job usually changes a number. Cancelling an error does not, so the answer holds only for a while.
        """
        held, since_s = self._held
        return pools == held and time.monotonic() - since_s < _HELD_S

    def look_back(self, subscription: str, *, since_ms: int) -> None:
        """Make a subscription's jobs of events that came before it."""
        setup = self.setup
        if subscription not in setup.attend(
            lambda: {row.name for row in setup.ask("subscriptions").select("name").collect()}
        ):
            raise FleetError(f"there is no subscription {subscription}, or it is switched off")
        self.totals.jobs += fan_out.look_back(setup, subscription, since_ms=since_ms, show=self.progress.step)

    def recover(self) -> Recovered:
        found = recover(self.setup)
        self.totals.recovered += found.reset
        return found

    def run(self, stopping: threading.Event) -> None:
        """Work until told to stop. A driver that does not lead waits; one that loses the lead waits again."""
        lead, feed = self.setup.lead, self.setup.feed
        standing_by = False
        while not stopping.is_set():
            try:
                if not lead.try_to_lead():
                    if not standing_by:
                        self._say("another driver leads: standing by")
                    standing_by = True
                    stopping.wait(feed.poll_interval_s)
                    continue
                standing_by = False
                self._say("the feed is leading")
                self._lead(stopping)
            except Fenced as lost:
                self._say(str(lost))
                # By then the next driver leads. And the store may know a newer driver that this Redis does not know.
                stopping.wait(_PAUSE_AFTER_TROUBLE_S)
            except SparkGone:
                # Nothing here brings Java back; what started us can.
                raise
            except FleetError as error:
                self.progress.flush()
                self._say(f"{error}; trying again in {_PAUSE_AFTER_TROUBLE_S:g} s")
                stopping.wait(_PAUSE_AFTER_TROUBLE_S)
        self.progress.flush()

    def _lead(self, stopping: threading.Event) -> None:
        feed = self.setup.feed
        self.begin()
        look_for_lost_at = time.monotonic()
        while not stopping.is_set():
            if time.monotonic() >= look_for_lost_at:
                found = self.recover()
                if found.reset:
                    self._say(f"recovered {found.lost} lost jobs, {found.reset} go again")
                self.setup.attend(lambda: self.setup.ledger.forget(now_ms=self.setup.now_ms()))
                look_for_lost_at = time.monotonic() + feed.stale_queued_poll_interval_s
            stepped = self.step()
            self._count()
            if not stepped:
                self.progress.rest()
                self.setup.lead.rest(stopping, max(feed.poll_interval_s, min(_HELD_S, _LOOKS_APART * self._look_s)))

    def _count(self) -> None:
        counted = asdict(self.totals)
        self.setup.lead.tell({name: counted[name] for name in COUNTED if counted[name]})

    def _tell(self, done: Done, *, began_s: float, due: int = 0, lag_ms: int = 0) -> None:
        self.totals.count(done)
        self.progress.epoch(
            done.epoch,
            jobs=done.sent + done.seen,
            took_s=time.monotonic() - began_s,
            waiting=max(0, due - done.claimed),
            lag_s=lag_ms / 1000,
        )


@contextmanager
def opened(
    settings: Settings, *, master: str, say: Say, show: Say | None = None, options: Mapping[str, str] | None = None
) -> Iterator[Feed]:
    """Everything a driver needs. `say`: a line that stays; `show`: one that the next replaces, if a person watches."""
    feed = settings.feed
    if not feed.enabled:
        raise InvalidConfig("the feed is switched off: [feed] enabled")
    store = open_store(settings)
    lead = Lead(
        redis_url=settings.redis.url,
        sqs_endpoint=settings.sqs.endpoint_override,
        ttl_ms=settings.lease.ttl_ms,
        patience_s=feed.patience_s,
    )
    spark = Spark(master=master, shards=feed.shards, options=options, pack_into=settings.data_dir / "cluster")
    try:
        _refuse_what_only_this_machine_has(settings, spark, store)
        if submitted():
            end_with_spark_submit()
            # Cluster managers take an application without a session for one that failed.
            _ = spark.session
        with lead:
            to = destination(settings, driver_pid=os.getpid())
            yield Feed(setup=Setup(spark=spark, engine=store.engine, lead=lead, feed=feed, to=to), say=say, show=show)
    finally:
        spark.close()
        store.close()


def _refuse_what_only_this_machine_has(settings: Settings, spark: Spark, store: JobStore) -> None:
    if is_local(spark.master):
        return
    if store.engine.dialect.name == "sqlite":
        raise InvalidConfig(f"executors at {spark.master} see no file of this machine: [database] url, postgresql://…")
    if settings.redis.url.startswith("unix:"):
        raise InvalidConfig(f"executors at {spark.master} see no socket of this machine: [redis] url, redis://…")
    if adapter_of(settings.feed.queue_url).kept_in == "file":
        raise InvalidConfig(f"executors at {spark.master} see no file of this machine: [feed] queue_url, fleet://…")


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
        default_pool=feed.default_dispatch_pool_code,
        failpoint=settings.failpoint,
        driver_pid=driver_pid,
    )
