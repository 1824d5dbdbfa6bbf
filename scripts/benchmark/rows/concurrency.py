"""The concurrency limit, full and never passed: 150 groups at 100 in a pool, and an endpoint that takes 200 ms."""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmark.ground import Ground
from benchmark.house.endpoint import read_journal, running_endpoint
from benchmark.house.fill import fill_pool, on_redis
from benchmark.house.house import POOL, house
from benchmark.scenario import ITSELF, Budget, Measurement, Scenario
from fleet.state.keys import PoolKeys

_GROUPS = 150
_CONCURRENCY = 100
_LATENCY_MS = 200.0
_COUNT = 3_000
_SAMPLE_S = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit(Scenario):
    """The peak of requests in progress, as the endpoint saw them; every lease count that was read."""

    name: str = "concurrency"
    title: str = "Fleet, 150 groups at concurrency 100, 200 ms endpoint"
    budgets: tuple[Budget, ...] = (
        Budget(of=ITSELF, at_least=95, at_most=_CONCURRENCY),
        Budget(of=ITSELF, detail="peak_leases", label="leases", at_most=_CONCURRENCY),
    )

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        count = max(_GROUPS, ground.scaled(_COUNT))
        with house(ground) as home, running_endpoint(home, latency_ms=_LATENCY_MS) as endpoint:
            on_redis(
                home.server.url,
                lambda client: fill_pool(
                    client, count=count, groups=_GROUPS, target=endpoint.url, concurrency=_CONCURRENCY
                ),
            )
            leases: list[int] = []
            key = PoolKeys(POOL).leases
            with home.crew(workers=2) as crew:
                began = time.monotonic()

                def is_drained() -> bool:
                    # Read in a tight loop between two looks at the rest.
                    for _ in range(20):
                        leases.append(int(home.client.zcard(key)))
                        time.sleep(_SAMPLE_S)
                    return home.pool_left() == 0

                crew.await_that("delivering all", is_drained)
                seconds = time.monotonic() - began
            settled = home.queue_left()["settled"]
        seen = read_journal(endpoint.journal)
        problems = []
        if seen.accepted != count or len(seen.started_ms) != count or settled != count:
            problems.append(f"{seen.accepted} deliveries and {settled} outcomes of {count} messages")
        if max(leases) > _CONCURRENCY or seen.peak > _CONCURRENCY:
            problems.append(f"{max(leases)} leases, {seen.peak} requests at once: the limit is {_CONCURRENCY}")
        return Measurement(
            value=seen.peak,
            unit="at once",
            problems=tuple(problems),
            note=f"leases read {len(leases):,} times",
            details={
                "messages": count,
                "delivered": seen.accepted,
                "peak_leases": max(leases),
                "lease_readings": len(leases),
                "messages_per_s": round(count / seconds, 1),
                "possible_per_s": round(_CONCURRENCY * 1000 / _LATENCY_MS, 1),
            },
        )


SCENARIOS = (Limit(),)
