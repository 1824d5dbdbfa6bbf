"""Our own queue, with its scripts on fakeredis, against the model of a queue that holds groups."""

from __future__ import annotations

import asyncio

import fakeredis
from hypothesis import HealthCheck, given, settings

from fleet.sources.own.source import OwnPublisher, OwnSource
from fleet.state.own_queue import DEDUP_MS, OwnQueue
from tests.unit.sources import queue_model
from tests.unit.sources.queue_model import VISIBILITY_MS, Run, Step, steps_of_a_run


class Hands:
    """The clock of Redis, moved by hand: every call takes it along."""

    def __init__(self) -> None:
        self.queues: list[OwnQueue] = []
        self._now_ms = 1_700_000_000_000

    @property
    def now_ms(self) -> int:
        return self._now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for queue in self.queues:
            queue.now_ms = str(now_ms)


async def _run(steps: list[Step]) -> None:
    async with fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer()) as client:
        hands = Hands()
        source = OwnSource(queue="q", visibility_ms=VISIBILITY_MS, redis_url="unused")
        publisher = OwnPublisher(queue="q", redis_url="unused")
        source.attach(client)
        publisher.attach(client)
        for one in (source, publisher):
            assert one.queue is not None
            hands.queues.append(one.queue)
        hands.now_ms += 1
        run = Run(hands, source, publisher, fills=False)
        for step in steps:
            await run.step(*step)
        await run.drain()
        await source.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps_of_a_run)
def test_the_queue_does_what_its_model_does(steps: list[Step]) -> None:
    assert queue_model.DEDUP_MS == DEDUP_MS
    asyncio.run(_run(steps))
