"""How deep the queues are, asked no more often than a queue can bear: a poll of SQS costs money."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fleet.clock import Clock
from fleet.config.router import QueueConfig
from fleet.operate.views import AskDepths, DepthNow, queue_depths
from fleet.sources.open import adapter_for

LOCAL_MS = 1000.0
REMOTE_MS = 10_000.0


class Depths:
    """For all callers: however many look at once, each source is asked once."""

    def __init__(self, *, clock: Clock, ask: AskDepths = queue_depths) -> None:
        self._clock = clock
        self._ask = ask
        self._known: dict[tuple[str, str], tuple[float, DepthNow]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, queues: Sequence[QueueConfig]) -> list[DepthNow]:
        async with self._one_at_a_time:
            now_ms = self._clock.boot_ms()
            due = [queue for queue in queues if self._is_due(queue, now_ms)]
            answers = await self._ask(due)
            # This also forgets what is not configured any more.
            self._known = {_key(q): self._known[_key(q)] for q in queues if _key(q) in self._known}
            self._known |= {_key(q): (now_ms, answer) for q, answer in zip(due, answers, strict=True)}
            return [self._known[_key(queue)][1] for queue in queues]

    def _is_due(self, queue: QueueConfig, now_ms: float) -> bool:
        asked_ms, _ = self._known.get(_key(queue), (float("-inf"), None))
        adapter = adapter_for(queue.uri)
        is_local = adapter is not None and adapter.is_local
        return now_ms - asked_ms >= (LOCAL_MS if is_local else REMOTE_MS)


def _key(queue: QueueConfig) -> tuple[str, str]:
    return queue.name, queue.uri
