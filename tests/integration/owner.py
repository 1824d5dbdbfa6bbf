"""An owner of a queue without its polls and acks, on a real Redis, and pools that are silent."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from coordinator.admit import Admission
from coordinator.bring import Bringer
from coordinator.late import LatePools
from coordinator.phantoms import Patrol
from coordinator.put_off import PoolLimits, PutOff
from coordinator.submit import Submitter
from coordinator.takeover import take_over
from fleet.alarms import Alarms
from fleet.clock import SystemClock
from fleet.errors import StateUnavailable
from fleet.lease import Lease
from fleet.sources.base import Received
from fleet.state.connect import Client
from fleet.state.keys import QueueKeys
from fleet.state.pool import Pool
from fleet.state.queue import Queue
from fleet.state.warnings import Warnings
from fleet.waiting import happens
from tests.acceptance.intake import SourceWithoutGroups, received


def of_group(number: int, pool: str = "P") -> Received:
    return received(str(number), poolCode=pool, messageGroupId="g")


class Silence:
    """Of the pool P and others: these calls to it fail, or hang, while it lasts."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *calls: str, hangs: bool = False, of: Sequence[str] = ("P",)
    ) -> None:
        self.over = asyncio.Event()
        self.met = 0
        """Calls that it swallowed."""
        self._hangs = hangs
        self._of = of
        for name in calls:
            monkeypatch.setattr(Pool, name, self._silent(getattr(Pool, name)))

    @asynccontextmanager
    async def at_most(self) -> AsyncIterator[None]:
        """It is over with this, or a test that fails would wait for those that hang."""
        try:
            yield
        finally:
            self.over.set()

    def _silent(self, real: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(pool: Pool, *args: Any, **given: Any) -> Any:
            if pool.code in self._of and not self.over.is_set():
                self.met += 1
                if not self._hangs:
                    raise StateUnavailable
                await self.over.wait()
            return await real(pool, *args, **given)

        return call


class Owner:
    """What an owner of a queue does, but for its polls and acks."""

    def __init__(self, client: Client, lease: Lease, source: SourceWithoutGroups) -> None:
        self.client, self.lease, self.source = client, lease, source
        self.over = asyncio.Event()
        self.queue = Queue(client, "q", epoch=lease.epoch)
        alarms, clock = Alarms(warnings=Warnings(client), source="us"), SystemClock()
        submitter = Submitter(
            client=client,
            queue=self.queue,
            source=source,
            on_room=lambda *_: None,
            put_off=PutOff(lambda _: PoolLimits(50, 1), lambda _: False, clock),
            alarms=alarms,
            counts=Counter(),
        )
        self.late = LatePools(
            client=client,
            queue=self.queue,
            source=source,
            lease=lease,
            submitter=submitter,
            ours=self._ours,
            rest=self._rest,
        )
        self.bringer = Bringer(submitter=submitter, late=self.late, ours=self._ours)
        self.admission = Admission(
            queue=self.queue,
            source=source,
            lease=lease,
            pool_for=lambda code: code,
            bringer=self.bringer,
            alarms=alarms,
            counts=Counter(),
        )
        self.patrol = Patrol(
            client=client,
            queue=self.queue,
            source=source,
            clock=clock,
            alarms=alarms,
            ours=self._ours,
            rest=self._rest,
            late=self.late,
        )

    def _ours(self) -> bool:
        return self.lease.held and not self.over.is_set()

    async def _rest(self, seconds: float) -> None:
        await happens(self.over, within_s=seconds)

    async def take(self, *numbers: int, pool: str = "P") -> None:
        await self.admission.admit([of_group(number, pool) for number in numbers])


@asynccontextmanager
async def owning(client: Client, name: str = "us", source: SourceWithoutGroups | None = None) -> AsyncIterator[Owner]:
    """One who takes the queue over and owns it, until the end of this."""
    source = source or SourceWithoutGroups()
    lease = Lease(client=client, key=QueueKeys("q").owner, owner=name, ttl_ms=60_000, clock=SystemClock())
    assert await lease.acquire()
    owner = Owner(client, lease, source)
    _, silent = await take_over(client=client, queue=owner.queue, source=source)
    owner.late.begin(silent)
    running = asyncio.create_task(owner.late.run())
    try:
        yield owner
    finally:
        owner.over.set()
        await running
        await lease.release()
