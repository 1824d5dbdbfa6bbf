"""The pipeline's driver in a fleet that is up: it runs while the queue it writes to is in the configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from fleet.config.router import RouterConfig
from fleet.config.settings import Settings
from fleet.errors import StateError
from fleet.local import pipeline
from fleet.local.supervise import Program, Supervisor, fleet_command
from fleet.operate.views import configuration
from fleet.state.connect import connected
from fleet.state.registry import Registry
from fleet.state.url import safe_url

log = logging.getLogger("fleet.supervisor")

_NAME = "feed"
FEED_STOPS_S = 30.0
"""It finishes its epoch first, which may have many jobs."""
_LOOK_S = 1.0


def feed_program(environment: Mapping[str, str], *, output: Path | None = None) -> Program:
    command = fleet_command("feed", "run")
    return Program(name=_NAME, command=command, environment=environment, stop_within_s=FEED_STOPS_S, output=output)


class UpFeed:
    def __init__(self, *, settings: Settings, supervisor: Supervisor, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._environment = environment
        self._revision = ""
        self.runs = False

    async def look(self) -> None:
        """Start or stop the feed, as the configuration in force says."""
        async with connected(self._settings.redis.url) as client:
            found, config = await configuration(client)
        self._revision = found.revision if found is not None else ""
        await self._follow(config)

    async def _follow(self, config: RouterConfig) -> None:
        wanted = pipeline.is_configured(self._settings, config)
        if wanted and not self.runs:
            if missing := pipeline.why_not(self._environment):
                log.warning("dispatch jobs and events wait, the feed does not run: %s", missing)
                return
            self._supervisor.add(feed_program(self._environment))
        elif self.runs and not wanted:
            log.info("no queue is %s any more: the feed stops", safe_url(self._settings.feed.queue_url))
            await self._supervisor.remove(_NAME)
        self.runs = wanted

    async def keep_looking(self) -> None:
        while True:
            try:
                async with connected(self._settings.redis.url) as client:
                    while True:
                        if await Registry(client).revision() != self._revision:
                            await self.look()
                        await asyncio.sleep(_LOOK_S)
            except StateError as error:
                log.debug("the configuration cannot be read: %s", error)
            await asyncio.sleep(_LOOK_S)
