"""Keeps the leases of one pool: renews them in time, all by one call, and drops those that have lapsed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet.clock import Clock
from fleet.errors import StateError
from fleet.lease import safe_deadline
from workers.lease import LaneLease

if TYPE_CHECKING:
    from workers.exchange import PoolLink

log = logging.getLogger("fleet.worker")

_RENEW_AT = 0.6
"""A lease with less than this part of its time left is renewed, and with it all others of its pool."""


class Renewal:
    """Called from the delivery loop itself: a thread of its own would keep a wedged worker's leases alive."""

    def __init__(
        self,
        link: PoolLink,
        *,
        worker: str,
        ttl_ms: int,
        clock: Clock,
        on_state: Callable[[StateError | None], None],
        on_crash: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._link = link
        self._worker = worker
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._on_state = on_state
        self._on_crash = on_crash
        self.task: asyncio.Task[None] | None = None

    def keep(self) -> None:
        now_ms = self._clock.boot_ms()
        ageing = False
        for lease in list(self._link.leases.values()):
            if now_ms >= lease.deadline_ms:
                self._end(lease, "lapsed")
            elif lease.deadline_ms - now_ms < self._ttl_ms * _RENEW_AT:
                ageing = True
        if ageing and self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._renew())
            self.task.add_done_callback(self._on_crash)

    async def _renew(self) -> None:
        link = self._link
        try:
            held = list(link.leases.values())
            asked_at_ms = self._clock.boot_ms()
            known = [(lease.lane, lease.epoch) for lease in held]
            lost = set(await link.pool.renew(self._worker, known, ttl_ms=self._ttl_ms))
            deadline_ms = safe_deadline(asked_at_ms, self._ttl_ms)
            for lease in held:
                if link.leases.get(lease.lane) is not lease:
                    continue  # ended while we asked
                if lease.lane in lost:
                    self._end(lease, "was lost")
                else:
                    lease.deadline_ms = deadline_ms
        except StateError as error:
            # They may still be ours, until their deadlines.
            self._on_state(error)
        finally:
            self.task = None

    def _end(self, lease: LaneLease, how: str) -> None:
        log.warning("lease on %s in %s %s, delivery aborted", lease.entry.group, self._link.pool.code, how)
        self._link.drop(lease)
