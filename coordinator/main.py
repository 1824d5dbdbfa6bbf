"""The coordinator process: wire and run, nothing else."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import uvloop

from coordinator.directory import Directory
from coordinator.lead import Lead
from coordinator.put_off import Limits
from coordinator.rooms import Rooms
from coordinator.watch import WATCH_EVERY_S, Watch
from fleet import failpoint
from fleet.alarms import Alarms
from fleet.clock import SystemClock
from fleet.config import MIN_CAPACITY
from fleet.metrics.port import serve_metrics
from fleet.process import Heartbeat, Identity, Life, tame_collector
from fleet.settings import Settings
from fleet.state.connect import connected
from fleet.state.keys import CHANGED_CHANNEL, ROOM_CHANNEL, SETTLED_CHANNEL
from fleet.state.registry import Registry
from fleet.state.signals import Signals
from fleet.state.warnings import Warnings

log = logging.getLogger("fleet.coordinator")

SWITCH_S = 0.0005
"""How long a source's thread may keep the interpreter from the event loop. Python's own 5 ms is a batch's latency."""


async def serve(settings: Settings, metrics_port: int | None = None) -> int:
    """Coordinate until SIGTERM. Returns the exit code."""
    failpoint.arm_if(settings.failpoint)
    tame_collector()
    sys.setswitchinterval(SWITCH_S)
    # By their names coordinators count how many share the queues, and one that is switched off takes none.
    identity = Identity.new("coordinator", prefix="" if settings.config.enabled else "off-")
    life, clock = Life(), SystemClock()
    ttl_ms = settings.lease.ttl_ms
    async with connected(settings.redis.url) as client:
        registry = Registry(client)
        alarms = Alarms(warnings=Warnings(client), source=identity.role)
        directory = Directory(registry=registry, look_every_s=min(1.0, ttl_ms / 2000), on_change=lambda: changed())

        def limits_of(code: str) -> Limits:
            pool = directory.config.pool(code)
            return Limits(pool.capacity, pool.concurrency) if pool is not None else Limits(MIN_CAPACITY, 1)

        rooms = Rooms(client=client, clock=clock, limits_of=limits_of, full=lambda: watch.memory_full)
        lead = Lead(
            name=identity.name,
            client=client,
            directory=directory,
            clock=clock,
            ttl_ms=ttl_ms,
            rooms=rooms,
            alarms=alarms,
            enabled=settings.config.enabled,
            on_crash=life.check,
        )
        watch = Watch(
            client=client,
            directory=directory,
            leads=lambda: lead.leadership.held,
            alarms=alarms,
            clock=clock,
            every_s=min(WATCH_EVERY_S, ttl_ms / 3000),
        )

        def changed() -> None:
            rooms.forget()
            lead.look()

        def look(_what: str = "") -> None:
            directory.look()
            lead.look()

        def describe() -> dict[str, Any]:
            return {
                "queues": sorted(lead.owned),
                "epoch": lead.leadership.epoch if lead.leadership.held else "",
                "leader": lead.leadership.held,
                "enabled": settings.config.enabled,
                **lead.consumers(),
                "counts": {**lead.lost, **{name: dict(counts) for name, counts in lead.counts.items()}},
            }

        heartbeat = Heartbeat(registry=registry, identity=identity, ttl_ms=ttl_ms, describe=describe)
        signals = Signals(
            client=client,
            url=settings.redis.url,
            handlers={
                CHANGED_CHANNEL: look,
                ROOM_CHANNEL: rooms.on_signal,
                SETTLED_CHANNEL: lead.on_settled,
            },
            on_subscribed=look,
        )
        await heartbeat.beat()
        await directory.refresh()
        own_metrics = serve_metrics(metrics_port, heartbeat.counted)
        for job in (heartbeat.run(), signals.run(), directory.run(), lead.run(), watch.run(), own_metrics):
            life.spawn(asyncio.get_running_loop().create_task(job))
        if not settings.config.enabled:
            log.warning("the router is switched off (MESSAGE_ROUTER_ENABLED): no queue is read here")
        log.info("%s coordinates", identity.name)
        await life.wait()
        # What looks after the fleet first: it would mend what we are taking apart.
        await watch.stop()
        # Gone from the registry first: the others count their share without us when the leases come free.
        await heartbeat.withdraw()
        await lead.stop()
        await life.cancel()
        await heartbeat.leave()
        await alarms.flush()
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def run(settings: Settings, metrics_port: int | None = None) -> int:
    return uvloop.run(serve(settings, metrics_port))
