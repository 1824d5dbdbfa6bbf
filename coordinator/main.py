"""The coordinator process: wire and run, nothing else."""

from __future__ import annotations

import logging
import sys

import uvloop

from coordinator.coordinator import Coordinator
from fleet import failpoint
from fleet.clock import SystemClock
from fleet.config.settings import Settings
from fleet.process import Identity, Life, tame_collector
from fleet.state.connect import connected

log = logging.getLogger("fleet.coordinator")

SWITCH_S = 0.0005
"""How long a source's thread may keep the interpreter from the event loop. Python's default of 5 ms is felt: a batch
takes about as long."""


async def serve(settings: Settings, metrics_port: int | None = None) -> int:
    """Coordinate until SIGTERM. Returns the exit code."""
    failpoint.arm_if(settings.failpoint)
    tame_collector()
    sys.setswitchinterval(SWITCH_S)
    # Coordinators count by name how many share the queues, and one that is switched off takes none.
    identity = Identity.new("coordinator", prefix="" if settings.config.enabled else "off-")
    life = Life()
    async with connected(settings.redis.url) as client:
        coordinator = Coordinator(identity=identity, client=client, clock=SystemClock(), life=life, settings=settings)
        await coordinator.run(metrics_port)
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def run(settings: Settings, metrics_port: int | None = None) -> int:
    return uvloop.run(serve(settings, metrics_port))
