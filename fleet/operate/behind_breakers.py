"""What waits behind circuit breakers that are not closed: the origins, and which pools have messages for them.

A breaker knows nothing of pools. So messages are looked at where they can be: in the pools, and in queues whose
messages can be inspected without receiving them. If there are many, only some are looked at, so numbers are `at least`.
For other queues the fleet remembers what it gave back and for which pool, but not for which target.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fleet.config.router import QueueConfig, RouterConfig
from fleet.delivery.origin import origin_of
from fleet.errors import FleetError
from fleet.message import DEFAULT_POOL, decode
from fleet.sources.open import adapter_for
from fleet.state.breakers import BreakerView, SharedBreakers
from fleet.state.connect import Client, translated
from fleet.state.entry import unpack
from fleet.state.keys import PoolKeys
from fleet.state.queue import Queue

_WITHIN_S = 2.0
_POOLS, _QUEUES = 64, 64
_MESSAGES = 1000
"""How many are looked at in each pool and each queue, at most …"""
_BODY_BYTES = 4 * 1024 * 1024
"""… and in a queue no more once the bodies add up to that."""
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Blocked:
    """One origin that is left alone, and what waits for it."""

    breaker: BreakerView
    since_s: float
    """For how long it has not been closed."""
    pools: dict[str, int] = field(default_factory=dict)
    """How many messages of each pool wait for it."""
    is_whole: bool = True
    """False: at least that many. There are too many to look at all of them, or they cannot all be seen."""
    perhaps: tuple[str, ...] = ()
    """Pools of messages that were given back to queues that cannot be looked into."""

    def to_json(self) -> dict[str, Any]:
        return {
            **self.breaker.to_json(),
            "pools": self.pools,
            "poolsComplete": self.is_whole,
            "perhapsPools": list(self.perhaps),
        }


async def blocked(client: Client, config: RouterConfig, pools: Iterable[str] | None) -> list[Blocked]:
    """Each breaker that is not closed, those with the most behind them first.

    `pools`: those that hold messages; None: only say which breakers there are, at the cost of one call.
    """
    now_ms, breakers = await SharedBreakers(client).all()
    since_s = {view.origin: max(0, now_ms - view.since_ms) / 1000 for view in breakers}
    if not breakers or pools is None:
        return [Blocked(view, since_s[view.origin], is_whole=False) for view in breakers]
    sample = _Sample(client, config, set(since_s))
    await sample.take(sorted(pools))
    counts = sample.counts()
    found = [
        Blocked(
            view,
            since_s[view.origin],
            dict(counts[view.origin].most_common()),
            sample.is_whole,
            tuple(sorted(sample.perhaps)),
        )
        for view in breakers
    ]
    return sorted(found, key=lambda one: (-sum(one.pools.values()), one.breaker.since_ms))


class _Sample:
    def __init__(self, client: Client, config: RouterConfig, origins: set[str]) -> None:
        self._client = client
        self._config = config
        self._origins = origins
        self._found: dict[tuple[str, str], tuple[str, str]] = {}
        """Queue and broker id → origin and pool: most of what a pool holds is seen in its queue too, and counts
        once."""
        self.perhaps: set[str] = set()
        self.is_whole = True
        """Whether every message was seen."""

    def counts(self) -> dict[str, Counter[str]]:
        counts: dict[str, Counter[str]] = {origin: Counter() for origin in self._origins}
        for origin, pool in self._found.values():
            counts[origin][pool] += 1
        return counts

    async def take(self, pools: Sequence[str]) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(look: Callable[[], Awaitable[None]]) -> None:
            async with gate:
                try:
                    await look()
                except FleetError:
                    # It is named where that queue, or Redis itself, is looked at.
                    self.is_whole = False

        queues = sorted(self._config.queues, key=lambda queue: queue.name)
        self.is_whole = len(pools) <= _POOLS and len(queues) <= _QUEUES
        looks = [*(partial(self._pool, code) for code in pools[:_POOLS])]
        looks += [partial(self._queue, queue) for queue in queues[:_QUEUES]]
        try:
            async with asyncio.timeout(_WITHIN_S):
                await asyncio.gather(*map(one, looks))
        except TimeoutError:
            self.is_whole = False

    async def _pool(self, code: str) -> None:
        cursor = seen = 0
        while seen < _MESSAGES:
            with translated():
                cursor, page = await self._client.hscan(PoolKeys(code).entries, cursor, count=200)
            for key, value in page.items():
                entry = unpack(key, value, "", "r")
                self._saw(entry.queue, entry.broker_id, entry.target, code)
            seen += len(page)
            if not cursor:
                return
        self.is_whole = False

    async def _queue(self, queue: QueueConfig) -> None:
        adapter = adapter_for(queue.uri)
        if adapter is None or adapter.look is None:
            self.is_whole = False
            async for page in Queue(self._client, queue.name).hidden():
                self.perhaps.update(one.pool for one in page)
                return  # one page of some hundred is enough
            return
        seen = length = 0
        address = adapter.parse(queue.uri)
        async for broker_id, body in adapter.look.bodies(self._client, address, _MESSAGES, _BODY_BYTES):
            self._saw_body(queue.name, broker_id, body)
            seen += 1
            length += len(body)
        self.is_whole = self.is_whole and seen < _MESSAGES and length < _BODY_BYTES

    def _saw_body(self, queue: str, broker_id: str, body: bytes) -> None:
        try:
            message = decode(body)
        except FleetError:
            return
        pool = message.pool_code if self._config.pool(message.pool_code) is not None else DEFAULT_POOL
        self._saw(queue, broker_id, message.mediation_target, pool)

    def _saw(self, queue: str, broker_id: str, target: str, pool: str) -> None:
        if (origin := origin_of(target)) in self._origins:
            self._found[queue, broker_id] = origin, pool
