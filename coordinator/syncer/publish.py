"""Puts a validated configuration into Redis, for coordinators and workers to follow.

Pools get their settings before anybody hears of the revision, so nobody meets a pool without limits.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from fleet.config.router import PoolConfig, RouterConfig, canonical
from fleet.errors import StateUnavailable
from fleet.state.connect import Client
from fleet.state.known_pools import mark_of
from fleet.state.observe import pool_settings
from fleet.state.pool import Pool, PoolSettings
from fleet.state.registry import Registry
from fleet.words import number

log = logging.getLogger("fleet.syncer")

_AT_ONCE = 50
"""Pools configured side by side. Each call takes a connection, and waits for one where all are taken."""
_LOOKED_AT = 100
"""Pools whose settings each call, and so each second, checks."""
_NAMED = 5
"""Pools that one line of the log names."""


class RevisionPublisher:
    """Publishes for the syncer that leads."""

    def __init__(self, *, client: Client) -> None:
        self._client = client
        self._registry = Registry(client)
        self._complete = ""
        """The revision whose pools we have configured."""
        self._next = 0
        """Which of its pools to check next."""

    async def publish(self, config: RouterConfig, *, epoch: str = "") -> str:
        """Returns the revision that is in force now. Called every second; costs a few calls when nothing changed.

        `epoch`: of our lead; '' where nobody else publishes. Raises Fenced once another leads.
        """
        revision, _ = await self._registry.publish_config(canonical(config), epoch=epoch)
        # Also if it is not new: whoever published it may have died before its pools were configured.
        if revision != self._complete:
            await self._configure(config.pools, revision)
            await self._drain_others({pool.code for pool in config.pools}, revision)
            await self._registry.announce_config()
            self._complete = revision
        elif forgotten := await self._forgotten(config.pools, revision):
            codes = ", ".join(pool.code for pool in forgotten[:_NAMED])
            log.warning("%s configured again that Redis had forgotten: %s", number(len(forgotten), "pool"), codes)
            await self._configure(forgotten, revision)
            await self._registry.announce_config()
        return revision

    async def _forgotten(self, pools: tuple[PoolConfig, ...], revision: str) -> tuple[PoolConfig, ...]:
        """Check some of the pools, in turn. Returns those that do not have what we gave them.

        A failover may lose it with Redis's last writes, and a node of a Cluster may lose it by itself.
        """
        first = self._next if self._next < len(pools) else 0
        part = pools[first : first + _LOOKED_AT]
        self._next = first + _LOOKED_AT
        if first == 0:
            await self._drain_others({pool.code for pool in pools}, revision, again=True)
        known = await self._known([pool.code for pool in part], revision)
        return tuple(pool for pool in part if pool.code not in known)

    async def _known(self, codes: list[str], revision: str) -> set[str]:
        try:
            return await self._registry.known_under(revision, codes)
        except StateUnavailable as error:
            log.debug("%s", error)
        # A node is away. Its pools can be neither read nor written, but those of other nodes can.
        known: set[str] = set()
        for code in codes:
            try:
                known |= await self._registry.known_under(revision, [code])
            except StateUnavailable:
                known.add(code)
        return known

    async def _configure(self, pools: tuple[PoolConfig, ...], revision: str) -> None:
        for first in range(0, len(pools), _AT_ONCE):
            part = pools[first : first + _AT_ONCE]
            await asyncio.gather(*(Pool(self._client, pool.code).configure(revision, _settings(pool)) for pool in part))
            marks = {pool.code: mark_of(pool.secret or "", pool.secret_file or "") for pool in part}
            await self._registry.add_pools(marks)

    async def _drain_others(self, codes: set[str], revision: str, *, again: bool = False) -> None:
        """A pool that is gone from the configuration delivers what it holds. Then the leader removes it.

        `again`: only those that do not drain, because Redis forgot, or a syncer woke late and configured them.
        """
        others = sorted(await self._registry.pools() - codes)
        found = await pool_settings(self._client, others)
        for code, settings in found.items():
            if not settings.draining:
                log.info("pool %s is no longer configured: it delivers what it holds, then it goes", code)
            if not settings.draining or not again:
                await Pool(self._client, code).configure(revision, replace(settings, draining=True))


def _settings(pool: PoolConfig) -> PoolSettings:
    return PoolSettings(
        pool.concurrency,
        pool.capacity,
        pool.rate_limit_per_minute,
        pool.on_failure,
        park_after=pool.park_after,
        secret=pool.secret or "",
        secret_file=pool.secret_file or "",
    )
