"""How pools are set and what they hold: thousands of them in a few calls, as they are looked at every second."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from redis.asyncio.cluster import RedisCluster

from fleet.state.connect import Client
from fleet.state.keys import keys_of_pool
from fleet.state.scripts import script

_POOLS_A_CALL = 100
"""On a single server: a call takes half a millisecond of its time."""
_CALLS_AT_ONCE = 16


@dataclass(slots=True)
class Looked:
    code: str
    settings: dict[str, str]
    messages: int
    leases: int
    ready: int
    later: int

    @property
    def exists(self) -> bool:
        return "concurrency" in self.settings


async def look(client: Client, codes: Sequence[str]) -> list[Looked]:
    """Each pool in order; one that is gone has no settings."""
    # In a Cluster each pool has a slot of its own, and a call may only use the keys of one slot.
    size = 1 if isinstance(client, RedisCluster) else _POOLS_A_CALL
    gate = asyncio.Semaphore(_CALLS_AT_ONCE)

    async def part(first: int) -> list[Looked]:
        async with gate:
            return await _call(client, codes[first : first + size])

    parts = await asyncio.gather(*(part(first) for first in range(0, len(codes), size)))
    return [one for found in parts for one in found]


async def _call(client: Client, codes: Sequence[str]) -> list[Looked]:
    s = script("look")
    keys = [key for code in codes for key in keys_of_pool(code, s.keys)]
    answer = await s(client, keys, [len(codes)])
    return [
        Looked(code, dict(zip(settings[::2], settings[1::2], strict=True)), *sizes)
        for code, (settings, *sizes) in zip(codes, answer, strict=True)
    ]
