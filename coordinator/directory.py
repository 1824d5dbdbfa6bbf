"""The configuration in force, as a running coordinator follows it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fleet.config.router import QueueConfig, RouterConfig, parse_router_config
from fleet.errors import InvalidConfig, StateError
from fleet.message import DEFAULT_POOL
from fleet.state.registry import Registry
from fleet.waiting import happens
from fleet.words import number

log = logging.getLogger("fleet.coordinator")


class Directory:
    """Which pools there are, and which queues."""

    def __init__(self, *, registry: Registry, look_every_s: float, on_change: Callable[[], None]) -> None:
        self._registry = registry
        self._on_change = on_change
        self._look_every_s = look_every_s
        self._look = asyncio.Event()
        self.revision = ""
        self.config = RouterConfig()
        self.pools: frozenset[str] = frozenset()

    def look(self) -> None:
        """A new revision may be in place."""
        self._look.set()

    async def run(self) -> None:
        while True:
            self._look.clear()
            await self.refresh()
            await happens(self._look, within_s=self._look_every_s)

    async def refresh(self) -> None:
        try:
            # Only the revision at first: the body of a thousand pools is not worth reading every second.
            revision = await self._registry.revision()
            if not revision or revision == self.revision:
                return
            found = await self._registry.config()
        except StateError as error:
            log.debug("configuration not read: %s", error)
            return
        if found is None:
            return
        try:
            self.config = parse_router_config(found.body)
        except InvalidConfig as error:
            # The syncer may be of a newer release and know more than we do. What we have stays in force.
            log.error("revision %s of the configuration is not for us: %s", found.revision, error)
            return
        self.revision = found.revision
        self.pools = frozenset(pool.code for pool in self.config.pools)
        queues, pools = number(len(self.config.queues), "queue"), number(len(self.pools), "pool")
        log.info("configuration %s: %s, %s", self.revision, queues, pools)
        self._on_change()

    def queues(self) -> dict[str, QueueConfig]:
        return {queue.name: queue for queue in self.config.queues}

    def pool_for(self, code: str) -> str:
        """Where a message with this pool code goes."""
        return code if code in self.pools else DEFAULT_POOL
