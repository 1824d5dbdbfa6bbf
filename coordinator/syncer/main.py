"""The config syncer process: wire and run, nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvloop

from coordinator.syncer.leading import Leading
from coordinator.syncer.publish import Publisher
from coordinator.syncer.sync import RetryPolicy, Severity, Syncer
from coordinator.syncer.validate import Validator
from fleet import config_sources
from fleet.clock import SystemClock
from fleet.errors import FleetError
from fleet.lease import Lease
from fleet.metrics.port import serve_metrics
from fleet.process import Heartbeat, Identity, Life
from fleet.settings import Settings
from fleet.sources.check import haste_of
from fleet.state.connect import connected
from fleet.state.keys import CHANGED_CHANNEL, FleetKeys
from fleet.state.registry import Registry
from fleet.state.reload import request_of
from fleet.state.signals import Signals
from fleet.state.warnings import Warnings

log = logging.getLogger("fleet.syncer")


async def serve(settings: Settings, retry: RetryPolicy | None, metrics_port: int | None) -> int:
    """Keep the published configuration equal to its sources, or stand by, until SIGTERM. Returns the exit code."""
    config_sources.check_files(settings.config)
    identity, life, clock = Identity.new("syncer"), Life(), SystemClock()
    ttl_ms = settings.lease.ttl_ms
    reloaded = {"request": "", "error": ""}

    def describe() -> dict[str, Any]:
        return {
            "revision": syncer.revision,
            "leads": leading.leads,
            "follows": leading.leader,
            "differs": leading.differs,
            "reloaded": reloaded,
        }

    async with connected(settings.redis.url) as client:
        warnings, registry = Warnings(client), Registry(client)

        async def warn(category: str, severity: Severity, text: str) -> None:
            log.log(logging.ERROR if severity == "CRITICAL" else logging.WARNING, "%s: %s", category, text)
            await warnings.add(category, severity, text, "syncer")

        def on_changed(what: str) -> None:
            if what == "lease":
                leading.look()
            request = request_of(what)
            # Asked again by who has had no answer yet: what was done is not done twice.
            if leading.leads and request not in ("", reloaded["request"]):
                log.info("asked to read the configuration")
                syncer.reload(request)

        async def on_reloaded(request: str, error: str) -> None:
            reloaded.update(request=request, error=error)
            await heartbeat.beat()

        validator = Validator(
            warn=lambda category, text: warn(category, "WARN", text),
            remark_on=lambda queue: haste_of(queue, ttl_ms),
        )
        leading = Leading(
            name=identity.name,
            lease=Lease(client=client, key=FleetKeys.syncer, owner=identity.name, ttl_ms=ttl_ms, clock=clock),
            publisher=Publisher(client=client),
            registry=registry,
            clock=clock,
            ttl_ms=ttl_ms,
            warn=lambda category, text: warn(category, "WARN", text),
            on_lead=lambda: syncer.reread(),
        )
        syncer = Syncer(
            sources=settings.config.source,
            inline=settings.config.inline,
            publish=leading.publish,
            warn=warn,
            clock=clock,
            sync_interval_s=settings.config.sync_interval_s,
            max_pools=settings.config.max_pools,
            pool_warning_threshold=settings.config.pool_warning_threshold,
            retry=retry,
            on_new=validator.look_at,
            on_reloaded=on_reloaded,
        )
        heartbeat = Heartbeat(registry=registry, identity=identity, ttl_ms=ttl_ms, describe=describe)

        signals = Signals(
            client=client,
            url=settings.redis.url,
            handlers={CHANGED_CHANNEL: on_changed},
            # What is asked for while we cannot hear is asked for again, by somebody who sees nothing change.
            on_subscribed=leading.look,
        )

        async def sync() -> None:
            try:
                await syncer.initial()
            except FleetError as error:
                # Final: a fleet that never had a configuration has nothing to go on with.
                log.error("%s", error)
                life.crash = error
                life.end()
                return
            # At once: who started us waits for it.
            await heartbeat.beat()
            await syncer.run()

        await heartbeat.beat()
        own_metrics = serve_metrics(metrics_port, heartbeat.counted)
        for job in (heartbeat.run(), signals.run(), sync(), leading.run(), validator.run(), own_metrics):
            life.spawn(asyncio.get_running_loop().create_task(job))
        log.info("%s syncs", identity.name)
        await life.wait()
        await life.cancel()
        await leading.release()
        await heartbeat.leave()
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def run(settings: Settings, *, retry: RetryPolicy | None = None, metrics_port: int | None = None) -> int:
    return uvloop.run(serve(settings, retry, metrics_port))
