"""One worker process: which pools it serves, how many leases it holds, when it stops."""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.config.settings import Settings
from fleet.delivery.breakers import Breakers
from fleet.delivery.client import HttpClient
from fleet.delivery.request import Requests
from fleet.delivery.signatures import Signatures
from fleet.errors import StateError
from fleet.metrics.port import serve_metrics
from fleet.process import Heartbeat, Identity, Life
from fleet.state.breakers import SharedBreakers
from fleet.state.cluster import PerNode
from fleet.state.connect import Client
from fleet.state.keys import BREAKER_CHANNEL, CHANGED_CHANNEL, POOL_WAKE_CHANNEL, WAKE_CHANNEL
from fleet.state.known_pools import KnownPools
from fleet.state.outages import outages
from fleet.state.pool import Pool
from fleet.state.registry import Registry
from fleet.state.signals import Signals
from fleet.state.warnings import Warnings
from fleet.waiting import happens
from fleet.words import number
from workers.account import Account
from workers.deliver import ATTEMPTS, Deliveries
from workers.exchange import PoolLink
from workers.lease import LaneLease
from workers.mediate import Mediator
from workers.report import Reporter
from workers.seats import Seats
from workers.under_way import slow_deliveries
from workers.waking import POOLS_A_TURN, UNPLACED, Waking

log = logging.getLogger("fleet.worker")

CALLS_AT_ONCE = 16
"""To one node of Redis, over all pools that it has: each call takes a connection, and a thousand pools are woken at
once when signals were missed. This is half of the connections: renewals and outcomes never wait behind a claim."""
_BUSY_AGAIN_S = 1.0
"""A pool that is gone but has a call under way, or something owed, is looked at again this soon."""


class Worker:
    def __init__(
        self,
        *,
        identity: Identity,
        client: Client,
        http: HttpClient,
        clock: Clock,
        life: Life,
        settings: Settings,
        forbids_url: Callable[[str], bool],
        pool_globs: Sequence[str] = ("*",),
    ) -> None:
        name, ttl_ms, timeout_ms = identity.name, settings.lease.ttl_ms, settings.http.timeout_ms
        self.name = name
        self._client = client
        self._clock = clock
        self._life = life
        self._alarms = alarms = Alarms(warnings=Warnings(client), source=identity.role)
        self._ttl_ms = ttl_ms
        self._timeout_ms = timeout_ms
        self._globs = tuple(pool_globs)
        self._serves = re.compile("|".join(map(fnmatch.translate, self._globs))).match
        self._seats = Seats(settings.worker.max_in_flight, lambda: self._stopping)
        self._stop_within_s = settings.worker.stop_within_s
        self._links: dict[str, PoolLink] = {}
        registry = Registry(client)
        self._pools = KnownPools(registry)
        self._ours: dict[str, str] = {}
        """The pools that we serve, with their marks."""
        self._calls_at_once = PerNode(client, CALLS_AT_ONCE)
        self._reporter = Reporter(client=client, worker=name, on_crash=life.check)
        self._breakers = Breakers(shared=SharedBreakers(client), worker=name, clock=clock)
        self._signatures = Signatures(client=client, alarms=alarms)
        self.account = Account(clock=clock, alarms=alarms)
        requests = Requests(
            client=http,
            clock=clock,
            breakers=self._breakers,
            forbids_url=forbids_url,
            asleep_ms=ttl_ms / 10,
            drop_lapsed=self._keep_now,
        )
        mediator = Mediator(requests=requests, signatures=self._signatures, timeout_ms=timeout_ms)
        self._deliveries = Deliveries(mediator=mediator, account=self.account, clock=clock)
        self._waking = Waking(
            name=name,
            globs=self._globs,
            registry=registry,
            links=self._links,
            has_room=lambda: self._seats.has_room,
            is_stopping=lambda: self._stopping,
        )
        self.heartbeat = Heartbeat(
            registry=registry,
            identity=identity,
            ttl_ms=ttl_ms,
            describe=self.describe,
            on_alive=self._waking.on_alive,
            counters=self.account.counters,
        )
        self._signals = Signals(
            client=client,
            url=settings.redis.url,
            handlers={
                WAKE_CHANNEL: self._waking.on_others,
                CHANGED_CHANNEL: self._on_changed,
                BREAKER_CHANNEL: self._breakers.on_message,
            },
            on_subscribed=self._resync,
            prefix=POOL_WAKE_CHANNEL,
            on_prefixed=self._waking.on_pool,
        )
        self._look = asyncio.Event()
        self._away: set[str] = set()
        """Pools, and '' for the fleet's own keys, whose last call failed: part of a Cluster may be away."""
        self._stopping = False
        self._is_open = False
        """Whether our pools are open: until then others must not count on us for what is due in them."""
        self._holding: dict[PoolLink, None] = {}
        """Pools that we hold leases in, or did when we last looked: of ten thousand links only a few have leases."""

    # Life -----------------------------------------------------------------------------------------

    async def run(self, metrics_port: int | None = None) -> None:
        """Until SIGTERM, or until something crashes."""
        loop = asyncio.get_running_loop()
        await self.heartbeat.beat()
        for job in (self.heartbeat.run(), serve_metrics(metrics_port, self.heartbeat.counted)):
            self._life.spawn(loop.create_task(job))
        log.info("%s delivers", self.name)
        jobs = (
            self._signals.run(),
            self._keep_leases(),
            self._follow_pools(),
            *self._waking.jobs(self._signals),
            self._breakers.run(),
        )
        for job in jobs:
            self._life.spawn(loop.create_task(job))
        await self._life.wait()
        await self._stop()
        await self._life.cancel()
        await self._alarms.flush()
        await self.heartbeat.leave()

    async def _stop(self) -> None:
        """Claim no more, finish the requests in flight, settle them, give the rest back."""
        self._stopping = True
        for link in self._links.values():
            link.stopping = True
            for lease in list(link.leases.values()):
                if lease.transfer is None and lease.retry is not None:
                    lease.stop()
                    link.release(lease)
            link.poke()
        try:
            async with asyncio.timeout(self._stop_within_s):
                # Once in a life: simpler than an event for each of the reasons to wait.
                while self._reporter.busy or any(link.busy for link in self._links.values()):  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
        except TimeoutError:
            held = sum(len(link.leases) for link in self._links.values())
            unfinished = number(held, "delivery", "deliveries")
            log.warning("stopped with %s unfinished; what it leased lapses by itself", unfinished)

    def describe(self) -> dict[str, Any]:
        """What the heartbeat says about us."""
        slow = slow_deliveries(
            (lease for link in self._links_with_leases() for lease in link.leases.values()),
            boot_ms=self._clock.boot_ms(),
            wall_ms=self._clock.wall_ms(),
            timeout_ms=self._timeout_ms,
            attempts=ATTEMPTS,
        )
        return {
            "deliveries": slow,
            "httpTimeoutMs": self._timeout_ms,
            "pools": sorted(self._links) if len(self._links) <= 20 else [*self._globs],
            **({"globs": self._globs} if self._is_open else {}),
            "inFlight": sum(len(link.leases) for link in self._links_with_leases()),
            "redisAvailable": not self._away,
            "outcomes": dict(self.account.outcomes),
            "counts": dict(self.account.counts),
        }

    def _links_with_leases(self) -> list[PoolLink]:
        for link in [link for link in self._holding if not link.leases]:
            del self._holding[link]
        return list(self._holding)

    # Pools ----------------------------------------------------------------------------------------

    async def _follow_pools(self) -> None:
        while True:
            self._look.clear()
            try:
                if await self._pools.look():
                    marks = self._pools.marks
                    self._ours = {code: mark for code, mark in marks.items() if self._serves(code)}
                # Before any of them is opened: nothing leaves unsigned that should be signed.
                await self._signatures.follow(self._ours)
                await self._open_and_close()
                self._is_open = True
                self._waking.pools_changed()
                self._on_state("", None)
            except StateError as error:
                self._on_state("", error)
            await happens(self._look, within_s=self._ttl_ms / 2000)

    async def _open_and_close(self) -> None:
        for count, code in enumerate([code for code in self._ours if self._may_open(code)], start=1):
            if self._stopping:
                return
            self._open(code)
            if count % POOLS_A_TURN == 0:
                await asyncio.sleep(0)
        for code in [code for code in self._links if code not in self._pools.marks]:
            if self._links[code].busy:
                asyncio.get_running_loop().call_later(_BUSY_AGAIN_S, self._look.set)
                continue
            self._links.pop(code).close()
            self._away.discard(code)

    def _may_open(self, code: str) -> bool:
        return code not in self._links and code not in self._signatures.unread

    def _open(self, code: str) -> PoolLink:
        link = self._links[code] = PoolLink(
            pool=Pool(self._client, code),
            worker=self.name,
            ttl_ms=self._ttl_ms,
            clock=self._clock,
            seats=self._seats,
            calls_at_once=self._calls_at_once,
            reporter=self._reporter,
            account=self.account,
            start=self._deliveries.deliver,
            on_claimed=self._on_claimed,
            on_state=partial(self._on_state, code),
            on_crash=self._life.check,
        )
        link.place = UNPLACED  # until it is worked out, for all that were opened together
        return link

    def _on_changed(self, what: str) -> None:
        # A lease that came free is not for us: with as many queues as pools, every worker would look all the time.
        kind, _, code = what.partition(" ")
        if kind == "config":
            self._look.set()
        elif kind == "pool" and (link := self._links.get(code)) is not None and link.leases:
            # What we hold there goes on by its new rules, which come with the next answer.
            link.wake()

    def _resync(self) -> None:
        """Signals may have been missed. Each home is told separately about the channels of its pools."""
        self._breakers.resync()
        self._look.set()

    async def _keep_leases(self) -> None:
        """From the delivery loop itself: a thread of its own would keep a wedged worker's leases alive."""
        while True:
            await asyncio.sleep(self._ttl_ms / 20_000)
            self._keep_now()

    def _keep_now(self) -> None:
        for link in self._links_with_leases():
            link.renewal.keep()

    def _on_state(self, code: str, error: StateError | None) -> None:
        if error is None:
            if code in self._away:
                self._away.discard(code)
                if not self._away:
                    outages.over()
                    self._resync()
                    self._waking.ask_all()
        else:
            if not self._away:
                log.error("%s; deliveries stop before their leases lapse, and go on when it is back", error)
            self._away.add(code)

    def _on_claimed(self, lease: LaneLease) -> None:
        self._holding[lease.link] = None
        self.account.claimed(lease)
