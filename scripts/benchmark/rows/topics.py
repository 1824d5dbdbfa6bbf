"""What publishing costs with ten subscriptions, divided by what it costs with one.

Two topics on one Redis take turns in short blocks of the same calls, so that a busy moment of the machine falls on
both. What was published is then pulled and acked, as nothing may be lost or left.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

import redis
import uvloop

from benchmark.ground import Ground
from benchmark.machine.cost import script_usec
from benchmark.machine.servers import fresh_redis
from benchmark.scenario import ITSELF, Better, Budget, Measurement, Scenario
from fleet.broker.core import Broker
from fleet.broker.options import SubscriptionOptions

FEW, MANY = 1, 10
_BLOCKS = 10
_CALLS = 8
_BATCH = 100
_LEASE_MS = 600_000
_BODY = b"x" * 300


@dataclass(slots=True)
class _Side:
    topic: str
    subscriptions: int
    script_us: list[float] = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)
    pulled: int = 0

    @property
    def names(self) -> list[str]:
        return [f"{self.topic}-{n}" for n in range(self.subscriptions)]

    async def make(self, broker: Broker) -> None:
        await broker.register_topic(self.topic)
        for name in self.names:
            await broker.register_subscription(name, self.topic, SubscriptionOptions.read())

    async def block(self, broker: Broker, statistics_client: redis.Redis, calls: int) -> None:
        """Some calls in a row, and what they cost for each message."""
        messages = [{"data": _BODY, "attributes": {"kind": "order"}} for _ in range(_BATCH)]
        statistics_client.config_resetstat()
        began = time.perf_counter()
        for _ in range(calls):
            await broker.publish(self.topic, messages)
        wall_s = time.perf_counter() - began
        self.script_us.append(script_usec(statistics_client) / calls / _BATCH)
        self.wall_us.append(wall_s * 1e6 / calls / _BATCH)
        for name in self.names:
            reader = broker.push(name)
            while pulled := (await reader.receive(1000, _LEASE_MS))[0]:
                self.pulled += sum(await reader.ack([one.ack_id for one in pulled]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing(Scenario):
    """One against many: the median cost of a message, by the clock of its publisher, as a ratio."""

    name: str = "topic-publish"
    title: str = "Fleet, publishing to a topic with many subscriptions"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (
        Budget(of=ITSELF, at_most=5),
        Budget(of=ITSELF, detail="script_ratio", label="of Redis's time", at_most=5),
    )

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        with fresh_redis(ground.scratch) as server, server.client() as client:
            return uvloop.run(_compare(server.url, client, ground.scaled(_CALLS)))


async def _compare(url: str, client: redis.Redis, calls: int) -> Measurement:
    few, many = _Side("few", FEW), _Side("many", MANY)
    async with Broker.connected(url) as broker:
        for side in (few, many):
            await side.make(broker)
        for _ in range(_BLOCKS + 1):
            for side in (few, many):
                await side.block(broker, client, calls)
        left = sum(found.messages for found in (await broker.all_depths([*few.names, *many.names])).values())
    published = (_BLOCKS + 1) * calls * _BATCH
    problems = [f"{left} messages left"] if left else []
    problems += [
        f"{side.pulled} of {published * side.subscriptions} messages pulled from {side.topic}"
        for side in (few, many)
        if side.pulled != published * side.subscriptions
    ]
    # The first block of each warms caches up.
    script_us = [statistics.median(side.script_us[1:]) for side in (few, many)]
    wall_us = [statistics.median(side.wall_us[1:]) for side in (few, many)]
    return Measurement(
        value=wall_us[1] / wall_us[0],
        unit="× the cost",
        problems=tuple(problems),
        note=f"{MANY} subscriptions against {FEW}; {1e6 / wall_us[0]:,.0f}/s and {1e6 / wall_us[1]:,.0f}/s",
        details={
            "script_ratio": round(script_us[1] / script_us[0], 2),
            "few_us": round(wall_us[0], 2),
            "many_us": round(wall_us[1], 2),
            "few_script_us": round(script_us[0], 2),
            "many_script_us": round(script_us[1], 2),
        },
    )


SCENARIOS = (Publishing(),)
