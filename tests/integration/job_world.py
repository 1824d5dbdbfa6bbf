"""What delivers jobs in a server, in the test's own process, with a job store and an endpoint to deliver to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import fakeredis
from sqlalchemy import update

from coordinator.syncer.publish import RevisionPublisher
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.config.router import PoolConfig, RouterConfig
from fleet.delivery.breakers import Breakers
from fleet.delivery.client import HttpClient
from fleet.delivery.egress import egress_rules
from fleet.delivery.signatures import Signatures
from fleet.jobs.database import open_engine, parse_url, writing
from fleet.jobs.records import Job, NewJob
from fleet.jobs.schema import dispatch_jobs
from fleet.jobs.store import JobStore
from fleet.processing.process import Processor
from fleet.processing.signers import JobSigners
from fleet.state.breakers import SharedBreakers
from fleet.state.connect import Client
from fleet.state.registry import Registry
from fleet.state.warnings import Warnings
from tests.clocks import HandClock
from tests.unit.delivery.endpoints import Endpoint, Handler, endpoint

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + b'{"ack":true}'
FAILED = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
KEY = b"the app's key"
WINDOW = 3


@dataclass
class World:
    store: JobStore
    processor: Processor
    http: HttpClient
    clock: HandClock
    redis: Client
    url: str = ""

    def add(self, **given: Any) -> Job:
        base = NewJob(target_url=self.url, payload='{"n": 1.50}', msg_group="g")
        (id_,) = self.store.add_jobs([replace(base, **given)]).ids
        return self.job(id_)

    def job(self, id_: str) -> Job:
        found = self.store.job(id_)
        assert found is not None
        return found

    def set(self, job: Job, **values: Any) -> None:
        with writing(self.store.engine) as connection:
            connection.execute(update(dispatch_jobs).where(dispatch_jobs.c.id == job.id).values(**values))

    async def pools(self, *pools: PoolConfig) -> None:
        await RevisionPublisher(client=self.redis).publish(RouterConfig(pools=pools))
        self.clock.now_ms += 1000


@asynccontextmanager
async def a_world(database_url: str, *, deny: tuple[str, ...] = ()) -> AsyncIterator[World]:
    clock = HandClock()
    client = fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer())
    store = JobStore(open_engine(parse_url(database_url)), clock=clock)
    store.migrate()
    breakers = Breakers(shared=SharedBreakers(client), worker="server", clock=clock)
    async with a_processor(store, client, clock, breakers, deny=deny) as (processor, http):
        yield World(store, processor, http, clock, client)
    # The processor closes the one that it has opened; without a message it opens none.
    store.close()
    await client.aclose()


@asynccontextmanager
async def a_processor(
    store: JobStore, client: Client, clock: Clock, breakers: Breakers, *, deny: tuple[str, ...] = ()
) -> AsyncIterator[tuple[Processor, HttpClient]]:
    """What delivers jobs in a server."""
    rules = egress_rules((), deny)
    http = HttpClient(forbidden=rules.forbids_address)
    alarms = Alarms(warnings=Warnings(client), source="server")
    processor = Processor(
        open_store=lambda: store,
        read_key=lambda: KEY,
        http=http,
        clock=clock,
        forbids_url=rules.forbids_url,
        signers=JobSigners(registry=Registry(client), signatures=Signatures(client=client, alarms=alarms), clock=clock),
        window=WINDOW,
        breakers=breakers,
    )
    try:
        yield processor, http
    finally:
        http.close()
        await alarms.flush()
        await processor.close()


@asynccontextmanager
async def target(world: World, handle: Handler) -> AsyncIterator[Endpoint]:
    async with endpoint(handle) as server:
        world.url = server.url
        yield server
