"""What a worker owes to a pool, and what it is granted there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from fleet.clock import SystemClock
from fleet.state.cluster import PerNode
from fleet.state.entry import ACK, outbox_item
from fleet.state.keys import PoolKeys
from fleet.state.pool import Claim, Exchanged, Policy, Settlement
from tests.state.stage import entry
from workers.exchange import PoolLink
from workers.lease import LaneLease


class OnePool:
    """It answers each call with the next of these claims, as soon as somebody lets it."""

    code, keys = "P", PoolKeys("P")

    def __init__(self, *claims: list[Claim]) -> None:
        self.asked: asyncio.Queue[list[Settlement]] = asyncio.Queue()
        self.answers = asyncio.Semaphore(0)
        self._claims = list(claims)

    async def exchange(self, _worker: str, *, settlements: list[Settlement], **_: Any) -> Exchanged:
        self.asked.put_nowait(settlements)
        await self.answers.acquire()
        claims = self._claims.pop(0) if self._claims else []
        return Exchanged("ok", None, set(), set(), [], claims, Policy())


def linked(pool: OnePool, started: asyncio.Queue[LaneLease]) -> PoolLink:
    account = SimpleNamespace(lost_lease=lambda: None, refused=lambda _: None)
    return PoolLink(
        pool=cast(Any, pool),
        worker="w",
        ttl_ms=10_000,
        clock=SystemClock(),
        seats=cast(Any, SimpleNamespace(take=lambda most, _link: most, give=lambda _seats: None)),
        calls_at_once=PerNode(None, 16),
        reporter=cast(Any, SimpleNamespace(report=lambda *_: None)),
        account=cast(Any, account),
        start=started.put_nowait,
        on_claimed=lambda _: None,
        on_state=lambda _: None,
        on_crash=lambda task: None,
    )


async def test_an_epoch_that_is_granted_again_is_not_settled_for_its_first_lease() -> None:
    """Redis forgot the first grant, and its clock had stepped back: seed 601088, with one worker."""
    message = entry("g0", "g")
    pool, started = OnePool([Claim("g", "7", [message])], [Claim("g", "7", [message])]), asyncio.Queue[LaneLease]()
    link = linked(pool, started)
    async with asyncio.timeout(5):
        link.wake()
        pool.answers.release()
        first = await started.get()
        await pool.asked.get()
        link.wake()
        await pool.asked.get()
        link.release(first).items.append(outbox_item(message, ACK))
        pool.answers.release()
        second = await started.get()
        pool.answers.release()
        link.poke(urgent=True)
        link.wake()
        assert await pool.asked.get() == [], "the outcome is of a lease that nobody knows"
    assert link.leases == {"g": second}
    link.close()
