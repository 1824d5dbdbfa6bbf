"""The server process: wire and run, nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn
import uvloop
from starlette.applications import Starlette

from fleet.alarms import Alarms
from fleet.clock import Clock, SystemClock
from fleet.delivery.breakers import Breakers
from fleet.delivery.client import HttpClient
from fleet.delivery.egress import egress_rules
from fleet.delivery.signatures import Signatures
from fleet.errors import StateError
from fleet.jobs.app_key import app_key
from fleet.jobs.due import DueJobs
from fleet.jobs.store import open_store
from fleet.process import Heartbeat, Identity, Life, tame_collector
from fleet.processing.process import AT_ONCE, THREADS, Processor
from fleet.processing.signers import JobSigners
from fleet.server.app import make_app
from fleet.server.aside import Aside
from fleet.server.breakers import BreakerBoard
from fleet.server.context import Context
from fleet.server.depths import Depths
from fleet.server.door import Tokens, address_of, listen
from fleet.server.due import DueNow
from fleet.server.metrics import forget_what_is_gone
from fleet.server.publishers import Publishers
from fleet.server.pulse import Pulse
from fleet.server.snapshot import Snapshots
from fleet.settings import Settings
from fleet.state.breakers import SharedBreakers
from fleet.state.connect import Client, connected
from fleet.state.keys import BREAKER_CHANNEL
from fleet.state.registry import Registry
from fleet.state.signals import Signals
from fleet.state.warnings import Warnings

log = logging.getLogger("fleet.server")

STOP_WITHIN_S = 5
_FORGET_EVERY_S = 600.0
_WINDOW_OF_OTHERS = 100
"""A driver elsewhere may have been given a larger one than we were."""


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: the process says goodbye to the fleet first."""
        yield


async def serve(settings: Settings, host: str, port: int) -> int:
    """Answer until SIGTERM. Returns the exit code."""
    tokens = Tokens.of(settings.server, host)
    tame_collector()
    identity, life, clock = Identity.new("server"), Life(), SystemClock()
    async with connected(settings.redis.url) as client:
        found = listen(host, port)
        address = address_of(found)
        pulse, depths, breakers, publishers = (
            Pulse(clock=clock),
            Depths(clock=clock),
            BreakerBoard(client),
            Publishers(),
        )
        aside = Aside(settings.redis.url)
        snapshots = Snapshots(looks=aside, clock=clock, depths=depths, breakers=breakers)
        targets = Breakers(shared=SharedBreakers(client), worker=identity.name, clock=clock)
        signals = Signals(
            client=client, url=settings.redis.url, handlers={BREAKER_CHANNEL: targets.on_message},
            on_subscribed=targets.resync,
        )  # fmt: skip
        http, processor = _processor(settings, client, clock, identity, targets)
        lag = DueJobs(settings, clock=clock)
        due = DueNow(ask=lag, clock=clock, alarms=Alarms(warnings=Warnings(client), source=identity.role))
        context = Context(
            client=client, identity=identity, pulse=pulse, depths=depths, looks=aside, snapshots=snapshots,
            publishers=publishers, breakers=breakers, processor=processor, due=due,
        )  # fmt: skip
        server = _Uvicorn(_options(make_app(context, tokens)))

        def describe() -> dict[str, Any]:
            return {"address": address, "counts": dict(processor.counts)}

        heartbeat = Heartbeat(
            registry=Registry(client), identity=identity, ttl_ms=settings.lease.ttl_ms, describe=describe,
            on_alive=pulse.beat,
        )  # fmt: skip
        await heartbeat.beat()
        answering = asyncio.get_running_loop().create_task(server.serve(sockets=[found]))
        answering.add_done_callback(life.check)
        for job in (heartbeat.run(), _forget(client), targets.run(), signals.run()):
            life.spawn(asyncio.get_running_loop().create_task(job))
        log.info("%s answers at %s", identity.name, address)
        await life.wait()
        await snapshots.close()
        server.should_exit = True
        await asyncio.wait([answering])
        await aside.close()
        await publishers.close()
        http.close()
        await processor.close()
        due.close()
        lag.close()
        await life.cancel()
        await heartbeat.leave()
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def _processor(
    settings: Settings, client: Client, clock: Clock, identity: Identity, targets: Breakers
) -> tuple[HttpClient, Processor]:
    """What delivers dispatch jobs, with the rules that workers have."""
    rules = egress_rules(settings.egress.allow, settings.egress.deny)
    http = HttpClient(
        forbidden=rules.forbids_address,
        http_version=settings.http.version,
        connect_timeout_ms=settings.http.connect_timeout_ms,
        max_idle_connections=AT_ONCE * 2,
    )
    alarms = Alarms(warnings=Warnings(client), source=identity.role)
    signers = JobSigners(
        registry=Registry(client),
        signatures=Signatures(client=client, alarms=alarms),
        clock=clock,
        default_pool=settings.feed.default_dispatch_pool_code,
    )
    processor = Processor(
        open_store=partial(open_store, settings, connections=THREADS, durable=False),
        read_key=partial(app_key, settings),
        http=http,
        clock=clock,
        forbids_url=rules.forbids_url,
        signers=signers,
        breakers=targets,
        window=max(settings.feed.window, _WINDOW_OF_OTHERS),
    )
    return http, processor


def _options(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        # A line a request would bury what matters, and a query may hold what is nobody's business.
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=STOP_WITHIN_S,
    )


async def _forget(client: Client) -> None:
    while True:
        await asyncio.sleep(_FORGET_EVERY_S)
        try:
            await forget_what_is_gone(client)
        except StateError as error:
            log.debug("totals not tidied: %s", error)


def run(settings: Settings, host: str, port: int) -> int:
    return uvloop.run(serve(settings, host, port))
