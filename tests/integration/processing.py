"""What delivers jobs in a server, in the test's own process, with a job store and an endpoint to deliver to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import fakeredis

from coordinator.syncer.publish import RevisionPublisher
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.config.router import PoolConfig, RouterConfig
from fleet.delivery.breakers import Breakers
from fleet.delivery.client import HttpClient
from fleet.delivery.egress import egress_rules
from fleet.delivery.signatures import Signatures
from fleet.jobs.records import Job
from fleet.jobs.store import JobStore
from fleet.processing.process import Processor
from fleet.processing.signers import JobSigners
from fleet.state.breakers import SharedBreakers
from fleet.state.connect import Client
from fleet.state.registry import Registry
from fleet.state.warnings import Warnings
from tests.clocks import HandClock
from tests.integration.job_store import InStore, a_store, added
from tests.unit.delivery.endpoints import Endpoint, Handler, endpoint

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + b'{"ack":true}'
FAILED = b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n"
KEY = b"the app's key"
WINDOW = 3


@dataclass
class Processing(InStore):
    processor: Processor
    http: HttpClient
    clock: HandClock
    redis: Client
    url: str = ""

    def add(self, **given: Any) -> Job:
        return added(self.store, **{"target_url": self.url, "payload": '{"n": 1.50}', "msg_group": "g", **given})

    async def pools(self, *pools: PoolConfig) -> None:
        await RevisionPublisher(client=self.redis).publish(RouterConfig(pools=pools))
        self.clock.now_ms += 1000


@asynccontextmanager
async def processing(database_url: str, *, deny: tuple[str, ...] = ()) -> AsyncIterator[Processing]:
    clock = HandClock()
    client = fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer())
    breakers = Breakers(shared=SharedBreakers(client), worker="server", clock=clock)
    with a_store(database_url, clock) as store:
        async with a_processor(store, client, clock, breakers, deny=deny) as (processor, http):
            yield Processing(store, processor, http, clock, client)
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
async def target(jobs: Processing, handle: Handler) -> AsyncIterator[Endpoint]:
    async with endpoint(handle) as server:
        jobs.url = server.url
        yield server
