"""How much of what is due the queue may take now, and of which pools: a slow pool must not fill it up for all others.

Of the room there is a pool takes no more than it leaves. So one whose endpoint takes a job a second may have half of
`max_depth` out, a second one like it a quarter, and a pool that nothing was due of until now finds room at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_WORTH = 20
"""Less than this part of `max_depth` is waited for: to plan for each job that a slow pool is rid of takes a core."""


@dataclass(frozen=True, slots=True)
class PoolDue:
    """Of one pool."""

    due: int
    out: int


@dataclass(frozen=True, slots=True)
class Room:
    jobs: int
    """So many fit, of all pools together."""
    pools: Mapping[str, int] = field(default_factory=dict)
    """So many of those pools that have more due; the others are not limited."""


def room_for(pools: Mapping[str, PoolDue], *, depth: int, max_depth: int) -> Room:
    """`depth`: messages in the queue, of whichever pool."""
    free, worth = max(0, max_depth - depth), max(1, max_depth // _WORTH)
    limited: dict[str, int] = {}
    for code, pool in pools.items():
        # What got lost on its way is out as well, and takes no room.
        may = (free - min(pool.out, depth)) // 2
        if may < min(pool.due, pool.out, worth):
            may = 0
        if pool.due > may:
            limited[code] = may
    fit = min(free, sum(limited.get(code, pool.due) for code, pool in pools.items()))
    return Room(fit, limited)
