"""The dead letters of a queue in Redis, as they were put there: newest first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from fleet.state.connect import Client, translated
from fleet.state.keys import QueueKeys
from fleet.state.scripts import number

KEPT = number("report", "DEAD_KEPT")
"""The newest of each queue."""
_AT_ONCE = 200
"""Letters in one call: each may hold 16 KiB of body."""


class Letters:
    def __init__(self, client: Client, queue: str) -> None:
        self.client = client
        self.key = QueueKeys(queue).dead

    async def newest_first(self) -> AsyncIterator[str]:
        """Counted from the old end, where nothing is added: one that comes meanwhile moves no other to another page."""
        with translated():
            count = await self.client.llen(self.key)
        while count > 0:
            first = max(0, count - _AT_ONCE)
            with translated():
                # From the end: -1 is the oldest.
                page = await self.client.lrange(self.key, -count, -(count - min(count, _AT_ONCE)) - 1)
            for raw in page:
                yield raw
            count = first

    async def remove(self, raws: Mapping[str, int]) -> int:
        """Remove each this many times; one that is gone already is not an error. Returns how many there were."""
        removed = 0
        names = list(raws)
        for first in range(0, len(names), _AT_ONCE):
            pipeline = self.client.pipeline(transaction=False)
            for raw in names[first : first + _AT_ONCE]:
                # Searched from the old end: those that are sent again stand there.
                pipeline.lrem(self.key, -raws[raw], raw)
            with translated():
                removed += sum(await pipeline.execute())
        return removed
