"""What a coordinator does again and again: see who is alive, keep its leases, take those that are free."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from coordinator.lead import Leadership
from coordinator.ownership import Ownership
from fleet.errors import StateError
from fleet.state.registry import Registry
from fleet.waiting import happens

log = logging.getLogger("fleet.coordinator")

ROUNDS = 10
"""So many in a lease's time. That is how soon a dead owner's queue is taken after its lease lapsed."""
_LEAST_MS = 10.0
_AFTER_LAPSE_MS = 5


class Rounds:
    """One round after the other, the next at once if a lease may be free."""

    def __init__(
        self,
        *,
        name: str,
        registry: Registry,
        lead: Leadership,
        ownership: Ownership,
        ttl_ms: int,
        on_crash: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._name = name
        self._registry = registry
        self._lead = lead
        self._ownership = ownership
        self._every_ms = ttl_ms / ROUNDS
        self._on_crash = on_crash
        self._look = asyncio.Event()
        self._stopping = False
        self._over = asyncio.Event()
        self._away = False
        ownership.on_let_go = self.look

    def look(self) -> None:
        """A lease may be free."""
        self._look.set()

    async def run(self) -> None:
        keeping = asyncio.get_running_loop().create_task(self._keep_queues())
        keeping.add_done_callback(self._on_crash)
        try:
            while not self._stopping:
                self._look.clear()
                soon_ms = await self.round()
                await happens(self._look, within_s=soon_ms / 1000)
            # What we own is kept until it has ended, however long that takes.
            await self._over.wait()
        finally:
            keeping.cancel()

    async def stop(self) -> None:
        """Give every lease back, so that the others need not wait for it to lapse."""
        self._stopping = True
        self._look.set()
        await self._ownership.stop()
        self._over.set()
        await self._lead.release()

    async def round(self) -> float:
        """Returns in how many ms the next is due."""
        soon_ms = self._every_ms
        self._ownership.keep()
        try:
            alive = await self._registry.alive() | {self._name}
            # If nobody renews another's lease it lapses. Be there.
            soon_ms = min(soon_ms, await self._lead.keep() + _AFTER_LAPSE_MS)
            self._ownership.restart_stuck()
            soon_ms = min(soon_ms, await self._ownership.share_out(alive) + _AFTER_LAPSE_MS)
            self._away = False
        except StateError as error:
            self._lead.drop()
            if not self._away:
                log.warning("%s; queues are left to others, and taken again when it is back", error)
            self._away = True
        return max(soon_ms, _LEAST_MS)

    async def _keep_queues(self) -> None:
        """Beside the rounds, so that a part of Redis that keeps a round waiting costs us no queue."""
        while True:
            self._ownership.keep()
            await asyncio.sleep(self._every_ms / 1000)
