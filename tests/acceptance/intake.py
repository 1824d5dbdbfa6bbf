"""A way in without a coordinator: what admits batches, on a real Redis, beside a source that remembers."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from coordinator.acknowledge import Acknowledger
from coordinator.admit import Admission
from coordinator.bring import Bringer
from coordinator.late import LatePools
from coordinator.put_off import PoolLimits, PutOff
from coordinator.submit import Submitter
from fleet.alarms import Alarms
from fleet.clock import SystemClock
from fleet.lease import Lease
from fleet.message import DEFAULT_POOL
from fleet.sources.base import Depth, Receipt, Received, Source
from fleet.state.connect import Client, connected
from fleet.state.keys import QueueKeys
from fleet.state.pool import Pool, PoolSettings
from fleet.state.queue import Queue
from fleet.state.warnings import Warnings


class SourceWithoutGroups:
    """A queue that would show the rest of a group while an older message of it is delayed."""

    holds_groups = False
    shows_in_order = True
    is_looked_into = False
    gives_few_groups = False
    crash_wait_ms = 0
    visibility_ms = 60_000

    def __init__(self) -> None:
        self.acked: list[str] = []
        """Handles, in the order in which they were acked."""
        self.nacked: dict[str, int] = {}
        """Handle → delay in ms, in the order in which they were nacked."""
        self.expired: set[str] = set()
        """Handles that ack nothing any more."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        return []

    async def ack(self, held: Sequence[Receipt]) -> list[bool]:
        self.acked += [h.handle for h in held if h.handle not in self.expired]
        return [h.handle not in self.expired for h in held]

    async def nack(self, held: Sequence[tuple[Receipt, int]]) -> list[bool]:
        self.nacked |= {h.handle: delay_ms for h, delay_ms in held}
        return [True] * len(held)

    async def extend(self, held: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        return [True] * len(held)

    async def depth(self) -> Depth:
        return Depth(0, 0, 0.0)


@dataclass
class Intake:
    client: Client
    source: SourceWithoutGroups
    queue: Queue
    admission: Admission
    acknowledger: Acknowledger
    alarms: Alarms
    counts: Counter[str]

    async def pool(self, code: str, **settings: Any) -> Pool:
        pool = Pool(self.client, code)
        await pool.configure("1", PoolSettings(**{"concurrency": 10, "capacity": 200, **settings}))
        return pool

    async def warned(self) -> list[tuple[str, str]]:
        await self.alarms.flush()
        return [(warning.category, warning.severity) for warning in await Warnings(self.client).list()]


def received(broker_id: str, handle: str = "", **body: Any) -> Received:
    body = {"id": broker_id, "poolCode": "P", "mediationTarget": "http://127.0.0.1:9/", **body}
    return Received(broker_id, handle or f"handle-{broker_id}", json.dumps(body).encode())


@asynccontextmanager
async def an_intake(url: str, *, pools: Sequence[str] = ("P",), source: Source | None = None) -> AsyncIterator[Intake]:
    """Owner of queue `q`; what names another pool than `pools` goes to the default one."""
    async with connected(url) as client:
        lease = Lease(client=client, key=QueueKeys("q").owner, owner="us", ttl_ms=60_000, clock=SystemClock())
        assert await lease.acquire()
        remembering, queue, counts = SourceWithoutGroups(), Queue(client, "q", epoch=lease.epoch), Counter[str]()
        source = source or remembering
        alarms = Alarms(warnings=Warnings(client), source="us")
        submitter = Submitter(
            client=client,
            queue=queue,
            source=source,
            on_room=lambda *_: None,
            put_off=PutOff(lambda _: PoolLimits(50, 1), lambda _: False, SystemClock()),
            alarms=alarms,
            counts=counts,
        )
        late = LatePools(
            client=client,
            queue=queue,
            source=source,
            lease=lease,
            submitter=submitter,
            ours=lambda: True,
            rest=asyncio.sleep,
        )
        admission = Admission(
            queue=queue,
            source=source,
            lease=lease,
            pool_for=lambda code: code if code in pools else DEFAULT_POOL,
            bringer=Bringer(submitter=submitter, late=late, ours=lambda: True),
            alarms=alarms,
            counts=counts,
        )
        acknowledger = Acknowledger(queue=queue, source=source, lease=lease, counts=counts)
        yield Intake(client, remembering, queue, admission, acknowledger, alarms, counts)
        await alarms.flush()
