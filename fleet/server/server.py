"""One server process: what its answers are made of, what runs beside them, and the order in which it ends."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from fleet.alarms import Alarms
from fleet.broker.core import Broker
from fleet.broker.errors import BrokerError
from fleet.broker.upkeep import Upkeep
from fleet.clock import Clock
from fleet.config.settings import Settings
from fleet.delivery.breakers import Breakers
from fleet.delivery.egress import egress_rules
from fleet.errors import StateError
from fleet.jobs.due import DueJobs
from fleet.listening import UvicornServer, address_of
from fleet.process import Heartbeat, Identity, Life
from fleet.server.app import make_app
from fleet.server.aside import Aside
from fleet.server.breakers import BreakerBoard
from fleet.server.context import Context
from fleet.server.depths import Depths
from fleet.server.door import Tokens
from fleet.server.due import DueNow
from fleet.server.job_processor import http_client, job_processor
from fleet.server.metrics import forget_what_is_gone, forget_what_the_broker_lost
from fleet.server.publishers import Publishers
from fleet.server.pulse import Pulse
from fleet.server.snapshot import Snapshots
from fleet.state.breakers import SharedBreakers
from fleet.state.connect import Client
from fleet.state.keys import BREAKER_CHANNEL
from fleet.state.registry import Registry
from fleet.state.signals import Signals
from fleet.state.warnings import Warnings

log = logging.getLogger("fleet.server")

_FORGET_EVERY_S = 600.0


class Server:
    def __init__(
        self,
        *,
        identity: Identity,
        client: Client,
        clock: Clock,
        life: Life,
        settings: Settings,
        listening: socket.socket,
        tokens: Tokens,
    ) -> None:
        self._name = identity.name
        self._client = client
        self._life = life
        self._listening = listening
        self._address = address_of(listening)
        alarms = Alarms(warnings=Warnings(client), source=identity.role)
        pulse, depths, board = Pulse(clock=clock), Depths(clock=clock), BreakerBoard(client)
        self._publishers = Publishers()
        broker = Broker(client)
        self._upkeep = Upkeep(broker)
        self._aside = Aside(settings.redis.url)
        self._snapshots = Snapshots(looks=self._aside, clock=clock, depths=depths, breakers=board)
        self._breakers = Breakers(shared=SharedBreakers(client), worker=identity.name, clock=clock)
        self._signals = Signals(
            client=client,
            url=settings.redis.url,
            handlers={BREAKER_CHANNEL: self._breakers.on_message},
            on_subscribed=self._breakers.resync,
        )
        rules = egress_rules(settings.egress.allow, settings.egress.deny)
        self._http = http_client(settings, rules)
        self._processor = job_processor(
            settings,
            client=client,
            http=self._http,
            rules=rules,
            clock=clock,
            alarms=alarms,
            breakers=self._breakers,
        )
        self._lag = DueJobs(settings, clock=clock)
        self._due = DueNow(ask=self._lag, clock=clock, alarms=alarms)
        context = Context(
            client=client,
            identity=identity,
            pulse=pulse,
            depths=depths,
            looks=self._aside,
            snapshots=self._snapshots,
            publishers=self._publishers,
            broker=broker,
            breakers=board,
            processor=self._processor,
            due=self._due,
        )
        self._uvicorn = UvicornServer(make_app(context, tokens))
        self._heartbeat = Heartbeat(
            registry=Registry(client),
            identity=identity,
            ttl_ms=settings.lease.ttl_ms,
            describe=self._describe,
            counters=broker.counters,
            on_alive=pulse.beat,
        )

    async def run(self) -> None:
        """Until SIGTERM, or until something crashes."""
        await self._heartbeat.beat()
        loop = asyncio.get_running_loop()
        answering = loop.create_task(self._uvicorn.serve(sockets=[self._listening]))
        answering.add_done_callback(self._life.check)
        jobs = (
            self._heartbeat.run(), self._forget(), self._breakers.run(), self._signals.run(), self._upkeep.run(),
        )  # fmt: skip
        for job in jobs:
            self._life.spawn(loop.create_task(job))
        log.info("%s answers at %s", self._name, self._address)
        await self._life.wait()
        await self._stop(answering)

    async def _stop(self, answering: asyncio.Task[None]) -> None:
        # End the event streams first: uvicorn would wait for them.
        await self._snapshots.close()
        self._uvicorn.should_exit = True
        await asyncio.wait([answering])
        # Nobody asks any more, so what the answers were made of can go.
        await self._aside.close()
        await self._publishers.close()
        self._http.close()
        await self._processor.close()
        self._due.close()
        self._lag.close()
        await self._life.cancel()
        await self._upkeep.release()
        await self._heartbeat.leave()

    def _describe(self) -> dict[str, Any]:
        """What the heartbeat says of us."""
        return {"address": self._address, "counts": dict(self._processor.counts)}

    async def _forget(self) -> None:
        while True:
            await asyncio.sleep(_FORGET_EVERY_S)
            try:
                await forget_what_is_gone(self._client)
                await forget_what_the_broker_lost(self._client)
            except (StateError, BrokerError) as error:
                log.debug("totals not tidied: %s", error)
