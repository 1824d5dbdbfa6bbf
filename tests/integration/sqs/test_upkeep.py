"""What the upkeep of the door costs while thousands of queues are idle, and that it stops in time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fleet.broker.sqs import attributes, records, upkeep
from fleet.broker.sqs.records import QueueRecord
from fleet.broker.sqs.verbs import Verbs
from fleet.state.connect import connected
from fleet.state.keys import BrokerKeys
from tests.clocks import HandClock
from tests.servers.local import RedisServer

QUEUES = 2000
CALLS = 4
"""To Redis for a queue that is tidied: what the catalogue says, two looks, and the outbox."""
POLICY = '{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":3}'
RECORD = QueueRecord(
    attributes=attributes.create({"RedrivePolicy": POLICY}), incarnation=1, version=1, created_s=1, modified_s=1
)


class Kept:
    """A door without clients, a clock by hand, and how often Redis is asked."""

    def __init__(self, client: Any) -> None:
        self.client, self.clock, self.calls = client, HandClock(), 0
        self.verbs = Verbs(client, now_ms=lambda: str(self.clock.now_ms))
        ask = client.execute_command

        def asked(*command: Any, **options: Any) -> Any:
            self.calls += 1
            return ask(*command, **options)

        client.execute_command = asked

    async def seconds(self, count: int) -> list[int]:
        """How many calls each of them took."""
        found = []
        for _ in range(count):
            self.clock.now_ms += 1000
            self.calls = 0
            await self.verbs.upkeep.each_second()
            found.append(self.calls)
        return found


@pytest.fixture
async def kept(redis_server: RedisServer) -> AsyncIterator[Kept]:
    async with connected(redis_server.url) as client:
        text = records.written(RECORD)
        await client.hset(BrokerKeys.queues, mapping={f"q-{number}": text for number in range(QUEUES)})
        yield Kept(client)


async def test_thousands_of_idle_queues_cost_a_look_a_minute_each_spread_over_it(kept: Kept) -> None:
    await kept.seconds(90)  # it has found them all, and looked at each
    calls = await kept.seconds(60)
    assert sum(calls) <= CALLS * QUEUES + 60 * 7
    assert max(calls) <= 2 * CALLS * QUEUES / 60
    # Each had its look.
    assert sum(calls) >= CALLS * QUEUES


async def test_a_step_that_took_long_enough_leaves_the_rest_to_the_next(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept.seconds(20)
    assert await kept.client.zcard(BrokerKeys.sqs_tidy) == QUEUES
    kept.clock.now_ms += 60_000
    monkeypatch.setattr(upkeep, "_STEP_S", 0.0)
    (calls,) = await kept.seconds(1)
    assert calls <= 12
    monkeypatch.undo()
    # All are due still: as many as a step takes are looked at.
    (calls,) = await kept.seconds(1)
    assert calls >= CALLS * upkeep._MOST


async def test_a_clock_that_steps_back_puts_nothing_off_for_as_long(kept: Kept) -> None:
    await kept.seconds(90)
    kept.clock.now_ms -= 3_600_000
    assert sum(await kept.seconds(60)) >= CALLS * QUEUES


async def test_what_becomes_unfinished_while_it_is_looked_at_is_looked_at_again(kept: Kept) -> None:
    pending = kept.verbs.upkeep._pending
    now_ms = kept.clock.now_ms

    async def take(after_ms: int) -> list[str]:
        at_ms = now_ms + after_ms
        return sorted(await pending.take(at_ms, most=10, again_ms=at_ms + 10_000, furthest_ms=at_ms + 60_000))

    await pending.put({"q-1": 0, "q-2": 0})
    assert await take(0) == ["q-1", "q-2"]
    assert await take(1) == []
    await pending.put({"q-1": 0})
    await pending.done(now_ms + 10_000)
    assert await take(20_000) == ["q-1"]
    # Whoever took it has died.
    assert await take(30_000) == ["q-1"]
