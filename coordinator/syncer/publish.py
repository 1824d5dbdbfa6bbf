"""Puts a validated configuration into Redis, for coordinators and workers to follow.

Pools have their settings before anybody hears of the revision, so nobody meets a pool without limits.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from fleet.config import PoolConfig, RouterConfig, canonical
from fleet.errors import StateUnavailable
from fleet.state.connect import Client
from fleet.state.known_pools import mark_of
from fleet.state.observe import pool_settings
from fleet.state.pool import Pool, PoolSettings
from fleet.state.registry import Registry
from fleet.words import number

log = logging.getLogger("fleet.syncer")

_AT_ONCE = 50
"""Each is a connection; redis-py opens no more than 100, and there are others who need one."""
_LOOKED_AT = 100
"""Pools of which a call, and so a second, looks whether they still have their settings."""

_NAMED = 5


class RevisionPublisher:
    """Publishes for the syncer that leads."""

    def __init__(self, *, client: Client) -> None:
        self._client = client
        self._registry = Registry(client)
        self._complete = ""
        """The revision whose pools we configured."""
        self._next = 0
        """Of those the first to be looked at again."""

    async def publish(self, config: RouterConfig, *, epoch: str = "") -> str:
        """Returns the revision that is in place now. Asked every second; costs a few calls when nothing changed.

        `epoch`: of the lead under which it is published; Fenced once another leads. '' where nobody else publishes.
        """
        revision, _ = await self._registry.publish_config(canonical(config), epoch=epoch)
        # Not only when it is new: whoever made it new may have died before its pools were configured.
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
        """Some of the pools in turn: those that do not have what we gave them.

        A failover may lose it with the last writes that Redis had, and a node of a Cluster by itself.
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
        # A node is away: what it has can be neither read nor written, and what others have can.
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
        """What is gone from the configuration delivers what it holds; the leader removes it then.

        `again`: for those that do not, as Redis forgot that, or a syncer that had been stopped configured them late.
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
