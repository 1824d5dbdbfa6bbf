"""The server process: wire and run, nothing else."""

from __future__ import annotations

import logging

import uvloop

from fleet.clock import SystemClock
from fleet.config.settings import Settings
from fleet.listening import listen
from fleet.process import Identity, Life, tame_collector
from fleet.server.door import Tokens
from fleet.server.server import Server
from fleet.state.connect import connected

log = logging.getLogger("fleet.server")


async def serve(settings: Settings, host: str, port: int) -> int:
    """Answer until SIGTERM. Returns the exit code."""
    tokens = Tokens.of(settings.server, host)
    tame_collector()
    identity, life = Identity.new("server"), Life()
    async with connected(settings.redis.url) as client:
        server = Server(
            identity=identity,
            client=client,
            clock=SystemClock(),
            life=life,
            settings=settings,
            listening=listen(host, port),
            tokens=tokens,
        )
        await server.run()
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def run(settings: Settings, host: str, port: int) -> int:
    return uvloop.run(serve(settings, host, port))
