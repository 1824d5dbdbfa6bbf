"""The SQS door as a process: wire and run, nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvloop

from fleet.broker.sqs.counts import DoorCounts
from fleet.broker.sqs.door import Door
from fleet.broker.sqs.http import HttpServer
from fleet.broker.sqs.records import FEATURES, PARTITIONS
from fleet.broker.sqs.sign import parse_keys
from fleet.broker.sqs.verbs import Verbs
from fleet.clock import SystemClock
from fleet.config.settings import Settings
from fleet.errors import InvalidConfig
from fleet.listening import address_of, is_loopback, listen
from fleet.metrics.port import serve_metrics
from fleet.process import Heartbeat, Identity, Life, tame_collector
from fleet.state import present
from fleet.state.connect import Client, connected
from fleet.state.keys import MOVED_CHANNEL, OWN_QUEUE_CHANNEL
from fleet.state.registry import Registry
from fleet.state.signals import Signals

log = logging.getLogger("fleet.sqs")

ROLE = "sqs"


async def serve(settings: Settings, *, shared: bool = False, metrics_port: int | None = None) -> int:
    """Answer until SIGTERM. Returns the exit code. `shared`: other doors listen at the same port."""
    chosen = settings.sqs
    keys = parse_keys(chosen.access_keys)
    if not keys and not is_loopback(chosen.host):
        why = "set FLEET_SQS_ACCESS_KEYS=ID:SECRET (or listen on 127.0.0.1)"
        raise InvalidConfig(f"listening on {chosen.host} needs access keys: {why}")
    tame_collector()
    listening = listen(chosen.host, chosen.port, shared=shared)
    address = address_of(listening)  # the server closes it, and we say goodbye after that
    identity, life, counts = Identity.new(ROLE), Life(), DoorCounts()
    async with connected(settings.redis.url) as client:
        verbs = Verbs(
            client,
            region=chosen.region,
            purge_interval_s=chosen.purge_interval_s,
            serves_partitions=lambda: _all_serve_partitions(client),
            counts=counts,
        )
        signals = Signals(
            client=client,
            url=settings.redis.url,
            handlers={OWN_QUEUE_CHANNEL: verbs.queues.on_signal, MOVED_CHANNEL: verbs.upkeep.on_moved},
            on_subscribed=verbs.queues.look_everywhere,
        )

        def describe() -> dict[str, Any]:
            return {"address": address, "features": sorted(FEATURES)}

        heartbeat = Heartbeat(
            registry=Registry(client),
            identity=identity,
            ttl_ms=settings.lease.ttl_ms,
            describe=describe,
            counters=counts.counters,
        )
        await heartbeat.beat()
        server = HttpServer(Door(verbs.table, keys=keys, clock=SystemClock(), counts=counts))
        loop = asyncio.get_running_loop()
        async with verbs.upkeep.by_lease().running():
            answering = loop.create_task(server.serve(listening))
            answering.add_done_callback(life.check)
            for job in (heartbeat.run(), signals.run(), serve_metrics(metrics_port, heartbeat.counted)):
                life.spawn(loop.create_task(job))
            log.info("%s answers at %s", identity.name, address)
            await life.wait()
            server.stop()
            verbs.queues.end_waits()
            await asyncio.wait([answering])
            await verbs.aclose()
            await life.cancel()
        await heartbeat.leave()
    log.info("%s has stopped", identity.name)
    return life.exit_code()


async def _all_serve_partitions(client: Client) -> bool:
    doors = [one for one in await present.processes(client) if one.get("role") == ROLE]
    return all(PARTITIONS in one.get("features", ()) for one in doors)


def run(settings: Settings, *, shared: bool = False, metrics_port: int | None = None) -> int:
    return uvloop.run(serve(settings, shared=shared, metrics_port=metrics_port))
