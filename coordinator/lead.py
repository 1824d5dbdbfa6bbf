"""Leadership of the fleet: one lease, held by whichever coordinator gets it first."""

from __future__ import annotations

import logging
import math
from collections import Counter

from fleet.errors import StateError
from fleet.lease import Lease

log = logging.getLogger("fleet.coordinator")


class Leadership:
    def __init__(self, *, name: str, lease: Lease) -> None:
        self._name = name
        self._lease = lease
        self.lost: Counter[str] = Counter()
        """Leases that ended against our will."""

    @property
    def held(self) -> bool:
        """Whether we lead now."""
        return self._lease.held

    @property
    def epoch(self) -> str:
        """Of our leadership; '' while another leads."""
        return self._lease.epoch if self._lease.held else ""

    async def keep(self) -> float:
        """Renew the lease, or take it if it is free. Returns in how many ms another's lapses, or inf."""
        lease = self._lease
        led = bool(lease.epoch)
        if not lease.held or (lease.ageing and not await lease.renew()):
            self.lost["leader_leases_lost"] += led
            if await lease.acquire() and not led:
                log.info("%s leads the fleet", self._name)
        if not lease.held and lease.held_by is not None:
            return lease.held_by.remaining_ms
        return math.inf

    def drop(self) -> None:
        """Redis has failed: do not lead again before we are granted the lease anew."""
        self.lost["leader_leases_lost"] += bool(self._lease.epoch)
        self._lease.drop()

    async def release(self) -> None:
        try:
            await self._lease.release()
        except StateError as error:
            log.debug("leadership not given back: %s", error)
