"""How many due jobs the queue may take now, and of which pools: slow pools must not fill it up for all the others.

No pool has more out than is left free. So one pool whose endpoint takes a job a second may have half of `max_depth`
out, and two such pools a third each. A pool that had nothing due until now finds room at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_WORTH = 20
"""Room for less than 1/20 of `max_depth` is not used yet: a plan for every job a slow pool delivers takes a core."""


@dataclass(frozen=True, slots=True)
class PoolDue:
    """How many jobs of one pool are due, and how many are out."""

    due: int
    out: int


@dataclass(frozen=True, slots=True)
class QueueRoom:
    jobs: int
    """How many fit, of all pools together."""
    pools: Mapping[str, int] = field(default_factory=dict)
    """How many of each pool that has more due than may go. The other pools are not limited."""

    def shuts_out(self, code: str) -> bool:
        return self.pools.get(code) == 0


def room_for(pools: Mapping[str, PoolDue], *, depth: int, max_depth: int) -> QueueRoom:
    """`depth`: messages in the queue, of all pools."""
    free, worth = max(0, max_depth - depth), max(1, max_depth // _WORTH)
    # A job that got lost on its way counts as out too, but takes no room.
    out = {code: min(pool.out, depth) for code, pool in pools.items()}
    level = _level(pools, out, free)
    limited: dict[str, int] = {}
    for code, pool in pools.items():
        may = max(0, level - out[code])
        if may < min(pool.due, out[code], worth):
            may = 0
        if pool.due > may:
            limited[code] = may
    fit = sum(limited.get(code, pool.due) for code, pool in pools.items())
    if not fit and not depth:
        # The queue is empty, and too small to be shared between the pools.
        return QueueRoom(min(free, sum(pool.due for pool in pools.values())))
    return QueueRoom(fit, limited)


def _level(pools: Mapping[str, PoolDue], out: Mapping[str, int], free: int) -> int:
    """The most that a pool may have out such that as much is left free once all have taken what they may."""
    least, most = 0, free
    while least < most:
        level = (least + most + 1) // 2
        taken = sum(min(pool.due, max(0, level - out[code])) for code, pool in pools.items())
        if taken + level <= free:
            least = level
        else:
            most = level - 1
    return least
