"""What a claim costs when a million groups wait, and when a thousand pools exist.

Two Redis servers take turns in short blocks of the same calls, so that a busy moment of the machine falls on both.
Each call does what a worker's does: it settles what the last one claimed, trims its outbox, and claims again.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import redis
import uvloop

from benchmark.ground import Ground
from benchmark.house.fill import add_pools, fill_pool
from benchmark.house.house import POOL, house
from benchmark.machine.cost import script_usec
from benchmark.scenario import ITSELF, Better, Budget, Measurement, Scenario
from fleet.state.connect import Client, connected
from fleet.state.entry import ACK, outbox_item
from fleet.state.pool import Claim, Pool, Settlement

FEW_GROUPS = 100
MANY_GROUPS = 1_000_000
MANY_POOLS = 1_000
_BLOCKS = 16
_CALLS = 20
_WANT = 50
_LEASE_MS = 600_000
_CLAIMED = (_BLOCKS + 1) * _CALLS * _WANT


@dataclass(frozen=True, slots=True, kw_only=True)
class Claiming(Scenario):
    """Few against many: the median cost of a message, on Redis' own account, as a ratio."""

    name: str
    title: str
    many_groups: int
    many_pools: int
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (
        Budget(of=ITSELF, at_most=1.5),
        Budget(of=ITSELF, detail="wall_ratio", label="by the clock", at_most=1.5),
    )

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        many_groups = max(FEW_GROUPS, ground.scaled(self.many_groups)) if self.many_groups > FEW_GROUPS else FEW_GROUPS
        many_pools = ground.scaled(self.many_pools) if self.many_pools > 1 else 1
        with ExitStack() as stack:
            few, many = (stack.enter_context(house(ground)) for _ in range(2))
            return uvloop.run(
                _compare(
                    ground,
                    few=_Side(few.server.url, few.client, groups=FEW_GROUPS, pools=1),
                    many=_Side(many.server.url, many.client, groups=many_groups, pools=many_pools),
                )
            )


@dataclass(slots=True)
class _Side:
    url: str
    statistics_client: redis.Redis
    groups: int = field(kw_only=True)
    pools: int = field(kw_only=True)
    claims: list[Claim] = field(default_factory=list)
    call: int = 0
    claimed: set[str] = field(default_factory=set)
    script_us: list[float] = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)

    @property
    def messages(self) -> int:
        # With few groups, enough that none of them runs dry; with many, at least one each, as they are spread.
        return max(self.groups, 2 * _CLAIMED)

    async def fill(self, client: Client) -> None:
        if self.pools > 1:
            await add_pools(client, [f"EMPTY-{n}" for n in range(1, self.pools)], concurrency=10, capacity=100)
        await fill_pool(
            client,
            count=self.messages,
            groups=self.groups,
            target="http://127.0.0.1:1/",
            concurrency=_WANT,
            track=False,
        )

    async def block(self, pool: Pool) -> None:
        """Some calls in a row, and what they cost for each message."""
        before = len(self.claimed)
        self.statistics_client.config_resetstat()
        began = time.perf_counter()
        for _ in range(_CALLS):
            settlements = [
                Settlement(c.lane, c.epoch, [outbox_item(e, ACK) for e in c.entries], "ready") for c in self.claims
            ]
            self.call += 1
            answer = await pool.exchange(
                "bench-worker", ttl_ms=_LEASE_MS, want=_WANT, chunk=1, quiet=True, call=self.call,
                trims=[self.call - 1], settlements=settlements,
            )  # fmt: skip
            self.claims = answer.claims
            self.claimed.update(entry.broker_id for claim in answer.claims for entry in claim.entries)
        wall_s = time.perf_counter() - began
        messages = max(len(self.claimed) - before, 1)
        self.script_us.append(script_usec(self.statistics_client) / messages)
        self.wall_us.append(wall_s * 1e6 / messages)


async def _compare(ground: Ground, *, few: _Side, many: _Side) -> Measurement:
    async with connected(few.url) as few_client, connected(many.url) as many_client:
        ground.say(f"filling with {many.messages:,} messages in {many.groups:,} groups")
        await many.fill(many_client)
        await few.fill(few_client)
        turns = ((few, Pool(few_client, POOL)), (many, Pool(many_client, POOL)))
        for _ in range(_BLOCKS + 1):
            for side, pool in turns:
                await side.block(pool)
        left = [int(await client.hlen(pool.keys.entries)) for client, (_, pool) in
                zip((few_client, many_client), turns, strict=True)]  # fmt: skip
    problems = []
    for side, remaining in zip((few, many), left, strict=True):
        # The last call's messages are claimed and not settled.
        if len(side.claimed) != _CLAIMED or remaining != side.messages - _CLAIMED + _WANT:
            problems.append(f"{len(side.claimed)} of {_CLAIMED} messages claimed, {remaining} left")
    # The first block of each warms caches up.
    script_us = [statistics.median(side.script_us[1:]) for side in (few, many)]
    wall_us = [statistics.median(side.wall_us[1:]) for side in (few, many)]
    return Measurement(
        value=script_us[1] / script_us[0],
        unit="× the cost",
        problems=tuple(problems),
        note=f"{many.pools:,} pools against 1" if many.pools > 1 else f"{many.groups:,} groups against {few.groups:,}",
        details={
            "groups": many.groups,
            "pools": many.pools,
            "claimed": len(many.claimed),
            "wall_ratio": round(wall_us[1] / wall_us[0], 3),
            "few_script_us": round(script_us[0], 2),
            "many_script_us": round(script_us[1], 2),
            "few_call_us": round(wall_us[0] * _WANT, 1),
            "many_call_us": round(wall_us[1] * _WANT, 1),
        },
    )


SCENARIOS = (
    Claiming(
        name="claim-groups",
        title="Fleet, claim and settle with many groups",
        many_groups=MANY_GROUPS,
        many_pools=1,
    ),
    Claiming(
        name="claim-pools",
        title="Fleet, claim and settle with many pools",
        many_groups=FEW_GROUPS,
        many_pools=MANY_POOLS,
    ),
)
