"""The end of the last coordinator: what waits in the pools goes back to its source, in order.

With another coordinator left nothing goes back: the pools keep what they hold, and its new owner goes on.
"""

from __future__ import annotations

import asyncio
import logging

from fleet.errors import FleetError
from fleet.sources.base import Held, Source
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.state.queue import Queue
from fleet.state.registry import Registry

log = logging.getLogger("fleet.coordinator")

MOST = 500
WITHIN_S = 20.0
"""Of the half minute that a supervisor gives us. What is left then comes back when its visibility ends."""


async def hand_back(*, client: Client, queue: Queue, source: Source) -> int:
    """Returns how many messages were shown again at once."""
    handed = 0
    try:
        async with asyncio.timeout(WITHIN_S):
            for code in sorted(await Registry(client).pools()):
                handed += await _from_pool(Pool(client, code), queue, source)
    except (FleetError, TimeoutError) as error:
        log.warning("queue %s: not everything was handed back: %s", queue.name, error or "out of time")
    if handed:
        log.info("%d messages of %s handed back to it", handed, queue.name)
    return handed


async def _from_pool(pool: Pool, queue: Queue, source: Source) -> int:
    handed = 0
    while recalled := await pool.recall(queue.name, MOST):
        records = await queue.tracked([broker_id for broker_id, _ in recalled])
        handles = {t.broker_id: t.handle for t in records if t is not None}
        gone = await queue.untrack(recalled, only_unsettled=True)
        shown = [(Held(broker_id, handles[broker_id]), 0) for broker_id, _ in recalled if broker_id in gone]
        await source.nack(shown)
        handed += len(shown)
    return handed
