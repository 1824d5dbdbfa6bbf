"""The worker process: wire and run, nothing else."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import uvloop

from fleet import failpoint
from fleet.clock import SystemClock
from fleet.config.settings import Settings
from fleet.delivery.client import HttpClient
from fleet.delivery.egress import egress_rules
from fleet.process import Identity, Life, tame_collector
from fleet.state.connect import connected
from workers.worker import Worker

log = logging.getLogger("fleet.worker")


async def serve(settings: Settings, pool_globs: Sequence[str], metrics_port: int | None = None) -> int:
    """Deliver until SIGTERM. Returns the exit code."""
    failpoint.arm_if(settings.failpoint)
    tame_collector()
    identity, life = Identity.new("worker"), Life()
    async with connected(settings.redis.url) as client:
        rules = egress_rules(settings.egress.allow, settings.egress.deny)
        http = HttpClient(
            forbidden=rules.forbids_address,
            http_version=settings.http.version,
            connect_timeout_ms=settings.http.connect_timeout_ms,
            max_idle_connections=settings.worker.max_in_flight * 2,
        )
        worker = Worker(
            identity=identity,
            client=client,
            http=http,
            clock=SystemClock(),
            life=life,
            settings=settings,
            forbids_url=rules.forbids_url,
            pool_globs=pool_globs,
        )
        await worker.run(metrics_port)
        http.close()
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def run(settings: Settings, pool_globs: Sequence[str], metrics_port: int | None = None) -> int:
    return uvloop.run(serve(settings, pool_globs, metrics_port))
