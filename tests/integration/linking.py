"""The pools of one worker without its deliveries: what is claimed stays leased until a test drops it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from fleet.alarms import Alarms
from fleet.clock import SystemClock
from fleet.errors import StateError
from fleet.state.cluster import PerNode
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.state.warnings import Warnings
from fleet.waiting import cancel
from tests.state.stage import in_group, pool_settings, submit
from workers.account import Account
from workers.exchange import PoolLink
from workers.lease import LaneLease
from workers.report import Reporter
from workers.worker import CALLS_AT_ONCE

TTL_MS = 10_000


class AllSeats:
    def take(self, most: int, _link: PoolLink) -> int:
        return most

    def give(self, _seats: int) -> None:
        return


class Links:
    def __init__(self, client: Client, *, ttl_ms: int = TTL_MS) -> None:
        self.client = client
        self.errors: list[StateError] = []
        self.crashes: list[BaseException] = []
        self.claimed: asyncio.Queue[str] = asyncio.Queue()
        """Pools, in the order in which something of them was claimed."""
        self._gates = PerNode(client, CALLS_AT_ONCE)
        self._reporter = Reporter(client=client, worker="w", on_crash=self._on_crash)
        alarms = Alarms(warnings=Warnings(client), source="w")
        self._account = Account(clock=SystemClock(), alarms=alarms)
        self.ttl_ms = ttl_ms
        self.links: dict[str, PoolLink] = {}

    async def open(self, codes: Sequence[str]) -> None:
        """Each with one message that nobody has claimed."""
        for code in codes:
            pool = Pool(self.client, code)
            await pool.configure("1", pool_settings())
            await submit(pool, in_group(1, f"g-{code}"))
            self.links[code] = PoolLink(
                pool=pool,
                worker="w",
                ttl_ms=self.ttl_ms,
                clock=SystemClock(),
                seats=cast(Any, AllSeats()),
                calls_at_once=self._gates,
                reporter=self._reporter,
                account=self._account,
                start=lambda _lease: None,
                on_claimed=self._on_claimed,
                on_state=self._on_state,
                on_crash=self._on_crash,
            )

    def wake(self, codes: Sequence[str] = ()) -> None:
        for code in codes or self.links:
            self.links[code].wake()

    async def claims(self, count: int, *, within_s: float = 10.0) -> set[str]:
        async with asyncio.timeout(within_s):
            return {await self.claimed.get() for _ in range(count)}

    def held(self) -> list[LaneLease]:
        return [lease for link in self.links.values() for lease in link.leases.values()]

    async def end(self) -> None:
        for link in self.links.values():
            link.stopping = True
            link.due.end()
        await cancel([t for link in self.links.values() for t in (link._task, link.renewal.task) if t is not None])

    def _on_claimed(self, lease: LaneLease) -> None:
        self.claimed.put_nowait(lease.link.pool.code)

    def _on_state(self, error: StateError | None) -> None:
        if error is not None:
            self.errors.append(error)

    def _on_crash(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.crashes.append(error)
