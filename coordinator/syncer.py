"""The config syncer process: wire and run, nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvloop

from coordinator.publish import Publisher
from coordinator.sync import RetryPolicy, Severity, Syncer
from fleet import config_sources
from fleet.clock import SystemClock
from fleet.errors import FleetError
from fleet.process import Heartbeat, Identity, Life
from fleet.settings import Settings
from fleet.state.connect import connected
from fleet.state.registry import Registry

log = logging.getLogger("fleet.syncer")


async def serve(settings: Settings, retry: RetryPolicy | None) -> int:
    """Keep the published configuration equal to its sources until SIGTERM. Returns the exit code."""
    config_sources.check_files(settings.config)
    identity, life = Identity.new("syncer"), Life()
    revision = ""

    async def warn(category: str, severity: Severity, text: str) -> None:
        log.log(logging.ERROR if severity == "CRITICAL" else logging.WARNING, "%s: %s", category, text)

    def describe() -> dict[str, Any]:
        return {"revision": revision}

    async with connected(settings.redis.url) as client:
        syncer = Syncer(
            sources=settings.config.source,
            inline=settings.config.inline,
            publish=Publisher(client=client).publish,
            warn=warn,
            clock=SystemClock(),
            sync_interval_s=settings.config.sync_interval_s,
            max_pools=settings.config.max_pools,
            pool_warning_threshold=settings.config.pool_warning_threshold,
            retry=retry,
        )
        heartbeat = Heartbeat(
            registry=Registry(client), identity=identity, ttl_ms=settings.lease.ttl_ms, describe=describe
        )

        async def sync() -> None:
            nonlocal revision
            try:
                revision = await syncer.initial()
            except FleetError as error:
                # Final: a fleet that never had a configuration has nothing to go on with.
                log.error("%s", error)
                life.crash = error
                life.end()
                return
            await syncer.run()

        await heartbeat.beat()
        for job in (heartbeat.run(), sync()):
            life.spawn(asyncio.get_running_loop().create_task(job))
        log.info("%s syncs", identity.name)
        await life.wait()
        await life.cancel()
        await heartbeat.leave()
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def run(settings: Settings, *, retry: RetryPolicy | None = None) -> int:
    return uvloop.run(serve(settings, retry))
