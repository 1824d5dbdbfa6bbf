"""The worker process: wire and run, nothing else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import uvloop

from fleet import failpoint
from fleet.alarms import Alarms
from fleet.clock import SystemClock
from fleet.config.settings import Settings
from fleet.delivery.client import HttpClient
from fleet.delivery.egress import egress_rules
from fleet.metrics.port import serve_metrics
from fleet.process import Heartbeat, Identity, Life, tame_collector
from fleet.state.connect import connected
from fleet.state.registry import Registry
from fleet.state.warnings import Warnings
from workers.worker import Worker

log = logging.getLogger("fleet.worker")


async def serve(settings: Settings, pool_globs: Sequence[str], metrics_port: int | None = None) -> int:
    """Deliver until SIGTERM. Returns the exit code."""
    failpoint.arm_if(settings.failpoint)
    tame_collector()
    identity, life, clock = Identity.new("worker"), Life(), SystemClock()
    async with connected(settings.redis.url) as client:
        rules = egress_rules(settings.egress.allow, settings.egress.deny)
        http = HttpClient(
            forbidden=rules.forbids_address,
            http_version=settings.http.version,
            connect_timeout_ms=settings.http.connect_timeout_ms,
            max_idle_connections=settings.worker.max_in_flight * 2,
        )
        alarms = Alarms(warnings=Warnings(client), source=identity.role)
        worker = Worker(
            name=identity.name,
            client=client,
            redis_url=settings.redis.url,
            http=http,
            clock=clock,
            life=life,
            alarms=alarms,
            ttl_ms=settings.lease.ttl_ms,
            timeout_ms=settings.http.timeout_ms,
            forbids_url=rules.forbids_url,
            max_in_flight=settings.worker.max_in_flight,
            stop_within_s=settings.worker.stop_within_s,
            pool_globs=pool_globs,
        )
        heartbeat = Heartbeat(
            registry=Registry(client),
            identity=identity,
            ttl_ms=settings.lease.ttl_ms,
            describe=worker.describe,
            on_alive=worker.on_alive,
            counters=worker.counters,
        )
        await heartbeat.beat()
        for job in (heartbeat.run(), serve_metrics(metrics_port, heartbeat.counted)):
            life.spawn(asyncio.get_running_loop().create_task(job))
        log.info("%s delivers", identity.name)
        await worker.run()
        http.close()
        await alarms.flush()
        await heartbeat.leave()
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def run(settings: Settings, pool_globs: Sequence[str], metrics_port: int | None = None) -> int:
    return uvloop.run(serve(settings, pool_globs, metrics_port))
