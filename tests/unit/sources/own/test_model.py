"""Our own queue, with its scripts on fakeredis, against the model of a queue that holds groups."""

from __future__ import annotations

import asyncio

import fakeredis
from hypothesis import HealthCheck, given, settings

from fleet.sources.own.source import OwnPublisher, OwnSource
from fleet.state.engine import DEDUP_MS
from fleet.state.own_queue import OwnQueue
from tests.clocks import HandClock
from tests.unit.sources import queue_model
from tests.unit.sources.queue_model import VISIBILITY_MS, Run, Step, steps_of_a_run


class TakenAlong(HandClock):
    """As the clock of Redis: every call of these queues takes it along."""

    def __init__(self, *queues: OwnQueue) -> None:
        self._queues = queues
        super().__init__()

    @property
    def now_ms(self) -> int:
        return self._now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self._now_ms = now_ms
        for queue in self._queues:
            queue.now_ms = str(now_ms)


async def _run(steps: list[Step]) -> None:
    async with fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer()) as client:
        source = OwnSource(queue="q", visibility_ms=VISIBILITY_MS, redis_url="unused")
        publisher = OwnPublisher(queue="q", redis_url="unused")
        source.attach(client)
        publisher.attach(client)
        assert source.queue is not None
        assert publisher.queue is not None
        run = Run(TakenAlong(source.queue, publisher.queue), source, publisher, fills=False)
        for step in steps:
            await run.step(*step)
        await run.drain()
        await source.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps_of_a_run)
def test_the_queue_does_what_its_model_does(steps: list[Step]) -> None:
    assert queue_model.DEDUP_MS == DEDUP_MS
    asyncio.run(_run(steps))
