"""The config syncer process: wire and run, nothing else."""

from __future__ import annotations

import logging

import uvloop

from coordinator.syncer.sync import RetryPolicy
from coordinator.syncer.syncer import Syncer
from fleet.clock import SystemClock
from fleet.config import sources as config_sources
from fleet.config.settings import Settings
from fleet.process import Identity, Life
from fleet.state.connect import connected

log = logging.getLogger("fleet.syncer")


async def serve(settings: Settings, retry: RetryPolicy | None, metrics_port: int | None) -> int:
    """Keep the published configuration equal to its sources, or stand by, until SIGTERM. Returns the exit code."""
    config_sources.check_files(settings.config)
    identity, life = Identity.new("syncer"), Life()
    async with connected(settings.redis.url) as client:
        syncer = Syncer(
            identity=identity, client=client, clock=SystemClock(), life=life, settings=settings, retry=retry
        )
        await syncer.run(metrics_port)
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def run(settings: Settings, *, retry: RetryPolicy | None = None, metrics_port: int | None = None) -> int:
    return uvloop.run(serve(settings, retry, metrics_port))
