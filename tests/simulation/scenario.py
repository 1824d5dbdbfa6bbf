"""From a seed to everything that will happen: the fleet, its queues and pools, what is sent, and which faults come
when.

Pure. Every fault and every message is drawn from its own random generator, so that one can be left out and the others
stay as they are: that is how a failing seed is shrunk.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

from fleet.outcome import DEFAULT_RETRY_S, QUEUE_FULL_RETRY_S
from fleet.state.pool import SHARE
from tests.simulation.endpoint import Nature

Kind = Literal["sqlite", "own", "fifo", "standard", "jetstream", "activemq"]
KINDS: tuple[Kind, ...] = get_args(Kind)
HOLDING: frozenset[Kind] = frozenset({"sqlite", "own", "fifo"})
"""Kinds that show no message of a group while an older one is out."""

Family = Literal[
    "processes", "redis", "forgets", "refuses", "weather", "queues", "clocks", "config", "operator", "endpoints",
    "together",
]  # fmt: skip
FAMILIES: tuple[Family, ...] = tuple(family for family in get_args(Family) if family != "together")
SHARE_TOGETHER = 0.2
"""The share of high seeds (those of the day are such) that also have faults made of several at once …"""
TOGETHER_FROM = 1_000_000
"""… and no seed below this has them: those stay what they were before such faults existed."""

MESSAGES = 200
FAULTS = 20
SENDING_S = 45.0
"""How long messages are sent and faults come."""


@dataclass(frozen=True)
class QueuePlan:
    name: str
    kind: Kind
    uri: str
    visibility_s: int


@dataclass(frozen=True)
class PoolPlan:
    code: str
    concurrency: int
    capacity: int
    rate: int | None
    on_failure: str
    park_after: int

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "concurrency": self.concurrency,
            "capacity": self.capacity,
            "rateLimitPerMinute": self.rate,
            "onFailure": self.on_failure,
            "parkAfter": self.park_after,
        }


@dataclass(frozen=True)
class GroupPlan:
    name: str
    queue: str
    pool: str
    origin: str
    mode: str | None


@dataclass(frozen=True)
class MessagePlan:
    number: int
    id: str
    at_s: float
    group: str
    is_high: bool
    nature: Nature


@dataclass(frozen=True)
class EndpointPlan:
    origin: str
    fences: bool
    latency_s: float
    stays_sick: str
    """The mood in which it stays until the very end; '' for none."""


@dataclass(frozen=True)
class FaultPlan:
    number: int
    at_s: float
    kind: str
    seed: int

    def chance(self) -> random.Random:
        return random.Random(self.seed)


@dataclass(frozen=True)
class Scenario:
    seed: int
    ttl_ms: int
    workers: int
    coordinators: int
    timeout_ms: int
    max_in_flight: int
    queues: tuple[QueuePlan, ...]
    pools: tuple[PoolPlan, ...]
    groups: tuple[GroupPlan, ...]
    endpoints: tuple[EndpointPlan, ...]
    messages: tuple[MessagePlan, ...]
    faults: tuple[FaultPlan, ...]
    families: frozenset[Family] = field(default=frozenset())

    def group(self, name: str) -> GroupPlan:
        return next(group for group in self.groups if group.name == name)

    @property
    def is_eased(self) -> bool:
        """Whether, some time after the last fault, the rest goes out without limits and refusals: four seeds in
        five."""
        return self.seed % 5 != 0

    @cached_property
    def sure_to_go_on(self) -> frozenset[str]:
        """Groups that are not held up by an endpoint that stays sick."""
        sick = {plan.origin for plan in self.endpoints if plan.stays_sick}
        latency_s = {plan.origin: plan.latency_s for plan in self.endpoints}
        ill = {group.name: group for group in self.groups if group.origin in sick}
        # What cannot be delivered takes permits of a rate too. If it alone keeps a pool busy for as long as the pool
        # puts off what does not fit, nothing else is sure to find room when it comes again. Nor is it in a pool that
        # one share fills, because a share goes in whole or not at all: there the undeliverable messages come again too,
        # unless they rest in the pool.
        busy_s: defaultdict[str, float] = defaultdict(float)
        comes_again: set[str] = set()
        rests = {p.code: p.on_failure in ("hold", "park") for p in self.pools}
        for message in self.messages:
            if group := ill.get(message.group):
                busy_s[group.pool] += latency_s[group.origin]
                if not (rests[group.pool] if group.mode is None else group.mode == "BLOCK_ON_ERROR"):
                    comes_again.add(group.pool)
        taken = {
            p.code
            for p in self.pools
            if busy_s[p.code] > (0 if p.rate else QUEUE_FULL_RETRY_S * p.concurrency)
            or (p.capacity <= SHARE and p.code in comes_again)
        }
        return frozenset(g.name for g in self.groups if g.name not in ill and g.pool not in taken)

    def asked_for_s(self) -> float:
        """How long endpoints put off the messages of one group at most, one after the other."""
        put_off_s: Counter[str] = Counter()
        for message in self.messages:
            put_off_s[message.group] += message.nature.refusals * max(message.nature.delay_s, DEFAULT_RETRY_S)
        return float(max(put_off_s.values(), default=0))


KINDS_OF: dict[Family, tuple[str, ...]] = {
    "processes": (
        "kill worker", "kill worker", "kill coordinator", "kill coordinator", "stop worker", "stop worker",
        "stop coordinator", "kill syncer", "end worker", "end coordinator", "kill all coordinators", "add worker",
    ),
    "redis": ("redis away", "redis frozen", "redis restarts", "signals deaf", "redis full"),
    "forgets": ("failover", "failover", "flush"),
    "refuses": ("readonly", "misconf", "noreplicas", "busy"),
    "weather": ("lossy redis", "lossy redis", "lossy queue", "cut off", "cut off"),
    "queues": ("queue away", "queue shaken", "lapse"),
    "clocks": ("redis clock", "queue clock", "process clock"),
    "config": ("limits", "limits", "rate", "rate", "policy", "pool removed", "rival syncer", "nothing new"),
    "operator": ("pause", "drain", "skip", "release", "adjust"),
    "endpoints": ("mood", "mood", "mood"),
    "together": ("lapse behind a head",),
}  # fmt: skip


def scenario(seed: int, *, only: Sequence[Family] = (), messages: int = MESSAGES, faults: int = FAULTS) -> Scenario:
    chance = random.Random(seed)
    families = _families(chance, only)
    ttl_ms = chance.choice((4000, 10_000))
    queues = tuple(_queue(chance, i, ttl_ms) for i in range(chance.choice((1, 1, 2))))
    pools = tuple(_pool(chance, i) for i in range(chance.choice((1, 2, 2, 3))))
    endpoints = tuple(_endpoint(chance, i) for i in range(chance.choice((2, 3))))
    ordered = chance.random() < 0.8
    groups = tuple(
        GroupPlan(
            f"{queue.name}-g{i}",
            queue.name,
            chance.choice(pools).code,
            chance.choice(endpoints).origin,
            None if ordered else chance.choice((None, None, "IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR")),
        )
        for queue in queues
        for i in range(chance.randint(3, 14))
    )
    return Scenario(
        seed=seed,
        ttl_ms=ttl_ms,
        workers=chance.choice((1, 2, 2, 3)),
        coordinators=chance.choice((1, 2, 2)),
        timeout_ms=chance.choice((5000, 15_000)),
        max_in_flight=chance.choice((4, 64)),
        queues=queues,
        pools=pools,
        groups=groups,
        endpoints=endpoints,
        messages=_messages(chance, groups, messages),
        faults=_faults(chance, sorted(families - {"together"}), faults) + _together(seed, families, only, faults),
        families=families,
    )


def _families(chance: random.Random, only: Sequence[Family]) -> frozenset[Family]:
    """Only some of them: a fault that is in every run hides what the others do by themselves."""
    if only:
        return frozenset(only)
    return frozenset(chance.sample(FAMILIES, chance.choice((1, 2, 2, 3, 3, 4, 5))))


def _queue(chance: random.Random, number: int, ttl_ms: int) -> QueuePlan:
    kind = chance.choice(KINDS)
    name = f"{kind}{number}"
    uris: dict[Kind, str] = {
        "sqlite": f"sqlite:///queue.db?queue={name}",
        "own": f"fleet://{name}",
        "fifo": f"https://sqs.simulated/0/{name}.fifo",
        "standard": f"https://sqs.simulated/0/{name}",
        "jetstream": f"nats://simulated/{name}/fleet",
        "activemq": f"stomp://simulated/{name}",
    }
    return QueuePlan(name, kind, uris[kind], chance.choice((ttl_ms // 400, ttl_ms // 250)))


def _pool(chance: random.Random, number: int) -> PoolPlan:
    return PoolPlan(
        code=f"P{number}",
        concurrency=chance.choice((1, 2, 3, 5, 10)),
        capacity=chance.choice((8, 12, 20, 40, 100)),
        rate=chance.choice((None, None, None, 60, 120)),
        on_failure=chance.choice(("return", "return", "return", "hold", "hold", "skip", "park")),
        park_after=chance.choice((2, 5)),
    )


def _endpoint(chance: random.Random, number: int) -> EndpointPlan:
    return EndpointPlan(
        origin=f"http://e{number}.simulated",
        fences=number == 0 or chance.random() < 0.3,
        latency_s=chance.choice((0.01, 0.05, 0.3, 1.0)),
        stays_sick=chance.choice(("fences", "500", "no")) if number > 0 and chance.random() < 0.15 else "",
    )


def _messages(chance: random.Random, groups: Sequence[GroupPlan], count: int) -> tuple[MessagePlan, ...]:
    any_high = chance.random() < 0.2
    share_failing = chance.choice((0.0, 0.02, 0.1))
    starts: list[tuple[float, str]] = []
    while len(starts) < count:
        at_s, group = 1.0 + chance.random() * (SENDING_S - 5.0), chance.choice(groups).name
        # In bursts: what is sent together comes in one batch.
        starts += [(at_s + i * 0.001, group) for i in range(chance.choice((1, 1, 2, 3, 5, 12)))]
    starts = sorted(starts[:count])
    return tuple(
        _message(random.Random(chance.getrandbits(64)), i, at_s, group, any_high, share_failing)
        for i, (at_s, group) in enumerate(starts)
    )


def _message(
    chance: random.Random, number: int, at_s: float, group: str, any_high: bool, share_failing: float
) -> MessagePlan:
    nature = Nature()
    if chance.random() < share_failing:
        nature = Nature(
            refusals=chance.choice((1, 1, 2, 4)),
            refused_with=chance.choice(("no", "no", "500", "429")),
            delay_s=chance.choice((1, 3, 10, 20)),
            is_rejected=chance.random() < 0.1,
        )
    return MessagePlan(number, f"m{number}", at_s, group, any_high and chance.random() < 0.1, nature)


def _faults(chance: random.Random, families: Sequence[Family], count: int) -> tuple[FaultPlan, ...]:
    if not families:
        return ()
    drawn = [
        (
            2.0 + chance.random() * (SENDING_S - 4.0),
            chance.choice(KINDS_OF[chance.choice(families)]),
            chance.getrandbits(64),
        )
        for _ in range(count)
    ]
    return tuple(FaultPlan(i, at_s, kind, seed) for i, (at_s, kind, seed) in enumerate(sorted(drawn)))


def _together(seed: int, families: frozenset[Family], only: Sequence[Family], first: int) -> tuple[FaultPlan, ...]:
    """Drawn apart from everything else: a seed without them is the same as if such faults did not exist."""
    is_drawn = seed >= TOGETHER_FROM and random.Random(seed ^ 0x70641).random() < SHARE_TOGETHER
    if not ("together" in families if only else is_drawn):
        return ()
    chance, kinds = random.Random(seed ^ 0x70637), KINDS_OF["together"]
    return tuple(
        FaultPlan(first + i, 3.0 + chance.random() * 12.0, chance.choice(kinds), chance.getrandbits(64))
        for i in range(chance.choice((1, 2)))
    )
