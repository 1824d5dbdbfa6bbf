"""A storm of what disturbs the order of groups, for one kind of queue: how it is made up, and what it leaves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fleet.operate.verify import Judgement
from fleet.state.connect import connected
from fleet.state.totals import totals
from tests.chaos.order_stage import ROOMY, OrderStage, Policy
from tests.clocks import WallClock, running_stepped_redis
from tests.servers.brokers import BROKERS, Broker

HOUR_S = 3600
AWHILE_S = 40
"""Where Fleet itself remembers what went back to a source that is waited for no longer than a minute and the
visibility timeout, twice (docs/order.md), by the clock of Redis."""
WORKERS, COORDINATORS = 3, 2
CONCURRENCY, CAPACITY = 12, 40
"""Less room than what a first poll asks for: the rest of that does not fit."""
LATENCY_MS = 25
TTL_MS, VISIBILITY_S = 2000, 5
BESIDE, BESIDE_GROUPS = 100, 20
SOME = 60
"""Requests between two disturbances, so that these spread over the run, however fast this machine is."""
DRAIN_S = 240.0


@dataclass(frozen=True, slots=True)
class Row:
    """How a kind of queue is put through it."""

    kind: str
    policy: Policy
    step_s: int
    source_holds: bool = True
    is_cut: bool = False
    """Its broker has no visibility timeouts: what a connection was given is shown again when that ends."""
    owners_step: bool = False
    """The wall clocks of coordinators step too: this queue's time is kept by its readers."""


@dataclass(frozen=True, slots=True)
class Form:
    messages: int
    groups: int
    rounds: int


@dataclass(frozen=True, slots=True)
class Outcome:
    verdict: Judgement
    sent: int
    in_doubt: int
    """Requests that had started and were not settled, at kills and stops of workers."""
    steps_forward: int
    """Of the clock of Redis, each of which ends all leases."""
    died: list[str]
    """What processes that ended by themselves said last."""
    leftover_keys: list[str]
    came_again: int
    """Messages that the source showed once more while they were under way."""
    times_full: int
    tails_seen: int

    @property
    def facts(self) -> str:
        return (
            f"{self.in_doubt} in doubt, {self.came_again} came again while under way, the pool full {self.times_full}"
            f" times, tails away at {self.tails_seen} looks"
        )


_BOTH = Policy("return", is_mixed=True)
_HOLD = Policy("hold")
ROWS = [
    Row("sqlite", _BOTH, HOUR_S, owners_step=True),
    Row("fleet", _BOTH, HOUR_S),
    Row("sqs-fifo", _BOTH, HOUR_S),
    Row("nats", _HOLD, AWHILE_S, source_holds=False),
    Row("activemq", _HOLD, AWHILE_S, source_holds=False, is_cut=True),
]


def outcome_of(directory: Path, row: Row, form: Form) -> Outcome:
    with _a_house(directory, row) as (stage, clock):
        storm(stage, clock, row, form)
        return Outcome(
            verdict=stage.verdict(),
            sent=stage.sent,
            in_doubt=stage.in_doubt,
            steps_forward=clock.steps_forward,
            died=[m.text()[-2000:] for m in stage.members if not m.alive and (m.process.returncode or 0) >= 0],
            leftover_keys=stage.leftover_keys(),
            came_again=asyncio.run(_came_again(stage)),
            times_full=stage.times_full(),
            tails_seen=stage.tails_seen,
        )


async def _came_again(stage: OrderStage) -> int:
    async with connected(stage.redis_server.url) as client:
        counted = await totals(client, ("queue",))
    return int(sum(counts.get("redelivered", 0) for counts in counted.values()))


@contextmanager
def _a_house(directory: Path, row: Row) -> Iterator[tuple[OrderStage, WallClock]]:
    clock = WallClock(directory / "redis.clock")
    with running_stepped_redis(clock) as redis_server, _a_broker(directory, row.kind) as broker:
        stage = OrderStage(
            directory,
            redis_server,
            ttl_ms=TTL_MS,
            visibility_s=VISIBILITY_S,
            concurrency=CONCURRENCY,
            pool_options={"onFailure": row.policy.on_failure, "capacity": CAPACITY},
            source_uri=broker.uri,
            near_uri=broker.near_uri,
            policy=row.policy,
            line=broker.line if row.is_cut else None,
            owners_clock=WallClock(directory / "owners.clock") if row.owners_step else None,
        )
        try:
            yield stage, clock
        finally:
            stage.stop()


@contextmanager
def _a_broker(directory: Path, kind: str) -> Iterator[Broker]:
    if kind == "fleet":
        yield Broker("fleet://storm")  # in the Redis of the fleet, whose clock steps
        return
    with BROKERS[kind](directory) as broker:
        yield broker


def storm(stage: OrderStage, clock: WallClock, row: Row, form: Form) -> None:
    dice = random.Random(20261119)
    part = form.messages // (form.rounds * 6)
    stage.start_endpoint(latency_ms=LATENCY_MS)
    stage.configure()
    stage.send_messages(part, form.groups)
    for _ in range(COORDINATORS):
        stage.start("coordinator")
    for _ in range(WORKERS):
        stage.start("worker")
    for number in range(form.rounds):
        # Ahead and back, and the next time behind and back.
        _round(stage, clock, dice, part, form.groups, row.step_s if number % 2 == 0 else -row.step_s)
    stage.wait_drained(DRAIN_S)


def _round(stage: OrderStage, clock: WallClock, dice: random.Random, part: int, groups: int, step_s: int) -> None:
    """Three lapses, two steps of the clocks, and three workers and a coordinator killed in between."""
    send = partial(stage.send_messages, part, groups)
    stage.go_on(SOME)
    stage.replace(dice.choice(stage.workers()))
    stage.lapse(send, workers_too=True)
    stage.send_beside(BESIDE, BESIDE_GROUPS)
    stage.go_on(SOME)
    stage.replace(dice.choice(stage.coordinators()))
    stage.set_capacity(ROOMY)
    _step(stage, clock, step_s)
    send()
    stage.go_on(SOME)
    stage.replace(dice.choice(stage.workers()))
    stage.lapse(send, workers_too=True)
    stage.go_on(SOME)
    # Right before: what a dead worker leased has to lapse in its time, by the new one too.
    stage.replace(dice.choice(stage.workers()))
    _step(stage, clock, 0)
    send()
    stage.go_on(SOME)
    stage.lapse(send, workers_too=False)


def _step(stage: OrderStage, clock: WallClock, to_s: int) -> None:
    clock.step_to(to_s)
    if stage.owners_clock is not None:
        stage.owners_clock.step_to(-to_s)
