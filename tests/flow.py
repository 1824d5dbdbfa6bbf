"""A message's way through a real source, the coordinator's intake and a pool, one step at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fleet.message import Message, decode, encode
from fleet.sources.base import Outgoing, Publisher, Received, Source
from fleet.state.by_hand import PoolByHand
from fleet.state.entry import nack, outbox_item, unpack_item
from fleet.state.pool import Claim, Pool, Settlement, failed, in_place
from tests.acceptance.intake import Intake, an_intake

WITHIN_S = 30.0
TTL_MS = 60_000
TAIL_MS = 1500


class Flow:
    """A source, the intake that it feeds, and the worker of its pool."""

    def __init__(self, publisher: Publisher, source: Source, intake: Intake, pool: Pool) -> None:
        self._publisher = publisher
        self.source = source
        self.pool = pool
        self._intake = intake
        self._calls = 0

    async def send(self, *ids: str) -> None:
        target = "http://127.0.0.1:9/"
        messages = [Message(id=one, pool_code="P", mediation_target=target, message_group_id="g") for one in ids]
        outgoing = [Outgoing(message.id, encode(message), "g") for message in messages]
        assert not any(await self._publisher.publish(outgoing))

    async def take(self, wanted: int) -> list[str]:
        """Poll until so many came, and admit each batch as it came."""
        taken: list[Received] = []
        async with asyncio.timeout(WITHIN_S):
            while len(taken) < wanted:
                batch = await self.source.poll(100, 200)
                taken += batch
                if batch:
                    await self.admit(batch)
        return [decode(one.body).id for one in taken]

    async def claim(self, chunk: int = 100) -> Claim | None:
        answer = await self.pool.exchange("w", ttl_ms=TTL_MS, want=1, chunk=chunk)
        return answer.claims[0] if answer.claims else None

    async def settle(self, settlement: Settlement) -> None:
        """And have the source hear of it."""
        await self.report(settlement)
        await self.apply()

    async def apply(self) -> None:
        await self._intake.acknowledger.catch_up()

    async def admit(self, batch: list[Received]) -> None:
        await self._intake.admission.admit(batch)

    async def report(self, settlement: Settlement) -> None:
        self._calls += 1
        answer = await self.pool.exchange("w", ttl_ms=TTL_MS, call=self._calls, settlements=[settlement])
        items = [*settlement.items, *answer.cascaded]
        await self._intake.queue.report([unpack_item(item)[1] for item in items])
        await self.pool.trim_outbox("w", [self._calls])

    async def deliver(self, wanted: int) -> list[str]:
        """Deliver and ack what the pool has and what still comes; the ids in their order."""
        delivered: list[str] = []
        async with asyncio.timeout(WITHIN_S):
            while len(delivered) < wanted:
                if (claimed := await self.claim()) is not None:
                    delivered += [entry.message_id for entry in claimed.entries]
                    done = [outbox_item(entry, "a") for entry in claimed.entries]
                    await self.settle(Settlement(claimed.lane, claimed.epoch, done, "ready"))
                elif batch := await self.source.poll(100, 200):
                    await self.admit(batch)
        return delivered

    def failure(self, claimed: Claim) -> Settlement:
        """Its head is refused, in a pool that returns what fails."""
        head = claimed.entries[0]
        queue = head.queue if head.source_holds_groups else ""
        item = outbox_item(head, nack(0))
        return Settlement(claimed.lane, claimed.epoch, [item], failed(0, head.batch, queue))


@asynccontextmanager
async def flowing(publisher: Publisher, source: Source, url: str, **settings: Any) -> AsyncIterator[Flow]:
    """From a queue that is new to pool `P`."""
    async with an_intake(url, source=source) as intake:
        yield Flow(publisher, source, intake, await intake.pool("P", **settings))


async def what_lapsed_is_not_overtaken(flow: Flow) -> None:
    """Of a source that holds groups, whose visibility timeout is short and extended by nobody."""
    await flow.send("m1", "m2", "m3")
    assert await flow.take(3) == ["m1", "m2", "m3"]
    await flow.send("m4", "m5")
    # Their visibility ends while they stand in the pool, and the source shows them once more, with newer ones behind.
    assert (await flow.take(3))[:3] == ["m1", "m2", "m3"]
    claimed = await flow.claim(chunk=1)
    assert claimed is not None
    await flow.settle(flow.failure(claimed))
    assert await flow.claim() is None, "all that the pool had of the group went with its head"
    assert await flow.deliver(5) == ["m1", "m2", "m3", "m4", "m5"]


async def what_comes_while_the_head_fails_goes_back(flow: Flow) -> None:
    """As above, and the head fails between the poll that brings newer messages and their way into the pool."""
    await flow.send("m1", "m2")
    assert await flow.take(2) == ["m1", "m2"]
    await flow.send("m3")
    claimed = await flow.claim(chunk=1)
    assert claimed is not None
    batch: list[Received] = []
    async with asyncio.timeout(WITHIN_S):
        while not batch:
            batch = await flow.source.poll(100, 200)
    await flow.report(flow.failure(claimed))
    await flow.admit(batch)
    assert await flow.claim() is None
    await flow.apply()
    assert await flow.deliver(3) == ["m1", "m2", "m3"]


async def a_tail_that_went_back_is_not_overtaken(flow: Flow) -> None:
    """In a pool that holds what fails, and is too small for the group."""
    await flow.send(*(f"m{n}" for n in range(6)))
    await flow.take(6)
    claimed = await flow.claim()
    assert claimed is not None
    await flow.settle(Settlement(claimed.lane, claimed.epoch, [], in_place(TAIL_MS)))
    await flow.send("m6", "m7")
    # What the pool kept is through before the tail comes again.
    assert await PoolByHand(flow.pool.client, flow.pool.code).release("g") == "released"
    assert await flow.deliver(8) == [f"m{n}" for n in range(8)]
