"""The last coordinator ends: what waits in the pools goes back to its source, in order.

If another coordinator is left, nothing goes back. The pools keep what they hold, and the new owner goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from coordinator.return_ import return_
from fleet.alarms import Alarms
from fleet.errors import FleetError, SourceError, StateUnavailable
from fleet.sources.base import Source
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.state.queue import Queue, Tracked

log = logging.getLogger("fleet.coordinator")

MOST = 500
WITHIN_S = 20.0
"""A supervisor gives us half a minute. What is left after this comes back when its visibility ends."""


async def return_all(*, client: Client, queue: Queue, source: Source, alarms: Alarms) -> int:
    """Returns how many messages were shown again at once."""
    returned = 0
    errors: list[str] = []
    try:
        async with asyncio.timeout(WITHIN_S):
            for code in sorted(await _pools_of(queue)):
                try:
                    returned += await _from_pool(client, code, queue, source)
                except (SourceError, StateUnavailable) as error:
                    # Go on with the other pools. In this one nothing may overtake what failed.
                    errors.append(f"pool {code}: {error}")
    except (FleetError, TimeoutError) as error:
        errors.append(str(error) or f"not done within {WITHIN_S:g} s")
    if errors:
        text = f"queue {queue.name}: not all could be returned, the rest comes when its visibility ends"
        alarms.add("SHUTDOWN_CLEANUP_ERRORS", "WARN", f"{text} ({len(errors)} errors, the first: {errors[0]})")
    if returned:
        log.info("%d messages of %s returned to it", returned, queue.name)
    return returned


async def _pools_of(queue: Queue) -> set[str]:
    """Those that something is tracked for. No other pool holds any of the queue's messages."""
    codes: set[str] = set()
    async for page in queue.all_tracked():
        codes |= {tracked.pool for tracked in page}
    return codes


async def _from_pool(client: Client, code: str, queue: Queue, source: Source) -> int:
    returned = 0
    async for recalled in Pool(client, code).recall(queue.name, MOST):
        tokens = dict(recalled)
        ours = tracked_under(tokens, await queue.tracked(list(tokens)))
        returned += await return_(client, queue, source, ours)
    return returned


def tracked_under(tokens: Mapping[str, str], tracked: Iterable[Tracked | None]) -> list[Tracked]:
    """Those still tracked under the token that they had in the pool. The others are gone, or were taken anew."""
    return [one for one in tracked if one is not None and one.token == tokens[one.broker_id]]
