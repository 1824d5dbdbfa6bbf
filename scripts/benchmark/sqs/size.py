"""What a queue of a million costs: a receive beside that of a small queue, and the memory of a message that waits.

Two Redis servers take turns in short blocks of the same calls, so that a busy moment of the machine falls on both.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

import redis
import uvloop

from benchmark.ground import Ground
from benchmark.machine.cost import script_usec
from benchmark.machine.servers import RedisServer, fresh_redis
from benchmark.rows.footprint import steady_memory
from benchmark.scenario import ITSELF, Better, Budget, Kind, Measurement, Scenario
from fleet.state.connect import Client, connected
from fleet.state.engine import Engine, New, Rules, Verdict
from fleet.state.keys import OwnQueueKeys

FEW, MANY = 1_000, 1_000_000
_GROUPS = 10_000
_BLOCKS = 16
_CALLS = 20
_MOST = 10
_AT_ONCE = 500
_RULES = Rules(visibility_ms=600_000, per_lane=_MOST)
_MEMORY_COUNT = 100_000
_BODY = "t" + "x" * 300


def _engine(client: Client, *, ordered: bool) -> Engine:
    return Engine(client, OwnQueueKeys("sqs/bench", 0), kind="o" if ordered else "s", incarnation=1, version=1)


async def _fill(engine: Engine, first: int, count: int) -> None:
    groups = min(_GROUPS, count)
    for begin in range(first, count, _AT_ONCE):
        numbers = range(begin, min(begin + _AT_ONCE, count))
        ordered = engine.kind == "o"
        await engine.send([New(_BODY, f"g{n % groups}" if ordered else "") for n in numbers])


@dataclass(slots=True)
class _Side:
    server: RedisServer
    statistics_client: redis.Redis
    messages: int
    shown: list[str] = field(default_factory=list)
    script_us: list[float] = field(default_factory=list)

    async def block(self, engine: Engine) -> None:
        """Some receives in a row; what each showed is deleted after they were measured, and as many sent again."""
        self.statistics_client.config_resetstat()
        takings = [await engine.receive(_MOST, _RULES) for _ in range(_CALLS)]
        showings = [showing for taking in takings for showing in taking.showings]
        self.script_us.append(script_usec(self.statistics_client) / max(len(showings), 1))
        self.shown += [showing.number for showing in showings]
        verdicts = [Verdict(one.number, one.times, one.group, "d") for one in showings]
        await engine.conclude(verdicts)
        await engine.send([New(_BODY, one.group) for one in showings])


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiving(Scenario):
    """Many against few: the median cost of a message on Redis's own account, as a ratio."""

    name: str
    title: str
    ordered: bool
    kind: Kind = "sqs"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (Budget(of=ITSELF, at_most=1.2),)

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        with ExitStack() as stack:
            servers = [stack.enter_context(fresh_redis(ground.scratch)) for _ in range(2)]
            counts = (FEW, max(FEW, ground.scaled(MANY)))
            few, many = (
                _Side(server, stack.enter_context(server.client()), count)
                for server, count in zip(servers, counts, strict=True)
            )
            return uvloop.run(self._compare(ground, few, many))

    async def _compare(self, ground: Ground, few: _Side, many: _Side) -> Measurement:
        async with connected(few.server.url) as few_client, connected(many.server.url) as many_client:
            sides = [
                (few, _engine(few_client, ordered=self.ordered)),
                (many, _engine(many_client, ordered=self.ordered)),
            ]
            ground.say(f"filling with {many.messages:,} messages")
            for side, engine in sides:
                await engine.establish()
                await _fill(engine, 0, side.messages)
            for _ in range(_BLOCKS + 1):
                for side, engine in sides:
                    await side.block(engine)
            left = [(await engine.depths()).messages for _, engine in sides]
        expected = (_BLOCKS + 1) * _CALLS * _MOST
        # The first block of each warms caches up.
        few_us, many_us = (statistics.median(side.script_us[1:]) for side in (few, many))
        return Measurement(
            value=many_us / few_us,
            unit="× the cost",
            problems=_problems((few, many), left, expected),
            note=f"{many.messages:,} against {few.messages:,}; {many_us:.1f} and {few_us:.1f} µs a message",
            details={"few_us": round(few_us, 2), "many_us": round(many_us, 2), "messages": many.messages},
        )


def _problems(sides: Sequence[_Side], left: Sequence[int], expected: int) -> tuple[str, ...]:
    found = []
    for side, remaining in zip(sides, left, strict=True):
        if len(set(side.shown)) != expected or remaining != side.messages:
            found.append(
                f"{len(set(side.shown))} of {expected} messages shown once, {remaining} of {side.messages} left"
            )
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Scenario):
    """Bytes in Redis for a message that waits, beside its body."""

    name: str
    title: str
    ordered: bool
    kind: Kind = "sqs"
    better: Better = "lower"

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        with fresh_redis(ground.scratch) as server, server.client() as client:
            return uvloop.run(self._measure(server, client, ground.scaled(_MEMORY_COUNT)))

    async def _measure(self, server: RedisServer, statistics_client: redis.Redis, count: int) -> Measurement:
        async with connected(server.url) as client:
            engine, first = _engine(client, ordered=self.ordered), count // 10
            await engine.establish()
            await _fill(engine, 0, first)
            before = steady_memory(statistics_client)
            await _fill(engine, first, count)
            after = steady_memory(statistics_client)
            held = (await engine.depths()).messages
        each, body = (after - before) / (count - first), len(_BODY)
        return Measurement(
            value=each - body,
            unit="bytes",
            problems=() if held == count else (f"{held} of {count} messages there",),
            note=f"{each:.0f} in all, the body {body}",
            details={"messages": count, "bytes_in_all": round(each, 1)},
        )


SCENARIOS = (
    Receiving(name="sqs-size", title="Fleet, receiving from a long standard queue", ordered=False),
    Receiving(name="sqs-size-fifo", title="Fleet, receiving from a long FIFO queue", ordered=True),
    Memory(
        name="sqs-memory",
        title="Fleet, Redis per message of a standard queue beside its body",
        ordered=False,
        budgets=(Budget(of=ITSELF, at_most=130),),
    ),
    Memory(name="sqs-memory-fifo", title="Fleet, the same of a FIFO queue", ordered=True),
)
