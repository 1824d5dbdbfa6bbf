"""Which signer the webhooks of a job have: that of the pool that its messages go through."""

from __future__ import annotations

import asyncio

from fleet.clock import Clock
from fleet.delivery.signatures import Signatures, Unsignable
from fleet.message import DEFAULT_POOL
from fleet.sign import Signer
from fleet.state.known_pools import KnownPools
from fleet.state.registry import Registry

LOOK_MS = 1000.0


class JobSigners:
    """Follows the pools that exist, at most once a second. StateError if Redis does not say which."""

    def __init__(
        self, *, registry: Registry, signatures: Signatures, clock: Clock, default_pool: str = DEFAULT_POOL
    ) -> None:
        """`default_pool`: where the pipeline sends the jobs that name none."""
        self._default_pool = default_pool
        self._signatures = signatures
        self._clock = clock
        self._looked_ms: float | None = None
        self._pools = KnownPools(registry)
        self._looking = asyncio.Lock()

    async def of(self, pool: str) -> Signer | Unsignable | None:
        async with self._looking:
            now_ms = self._clock.boot_ms()
            if self._looked_ms is None or now_ms - self._looked_ms >= LOOK_MS:
                await self._pools.look()
                await self._signatures.follow(self._pools.marks)
                self._looked_ms = now_ms
        if pool == DEFAULT_POOL:
            pool = self._default_pool
        # A code that is not configured is delivered by DEFAULT-POOL.
        return self._signatures.of(pool if pool in self._pools.marks else DEFAULT_POOL)
