"""What a large fleet asks of Redis: a hundred workers and ten thousand pools, at rest, woken now and then, and slow."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmark.ground import Ground
from benchmark.machine import child
from benchmark.machine.servers import fresh_redis
from benchmark.machine.sink import TOKEN
from benchmark.scenario import ITSELF, Better, Budget, Kind, Measurement, Scenario

WORKERS, POOLS = 100, 10_000
_WITHIN_S = 180.0
_MOST_KINDS = 4


def program(ground: Ground, row: str, spec: Mapping[str, object]) -> dict[str, Any]:
    """What `benchmark.scale.program` answers, from a process of its own."""
    output = child.call(
        [sys.executable, "-P", "-m", "benchmark.scale.program", row, json.dumps(spec)],
        log=ground.scratch / "scale.log",
        timeout_s=_WITHIN_S,
    )
    answer: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AtSize(Scenario):
    """The share of Redis's core that the fleet takes, reckoned from what four small ones ask for at the same time."""

    name: str
    title: str
    slow: bool
    workers: tuple[int, int]
    pools: tuple[int, int]
    seconds: float
    budgets: tuple[Budget, ...]
    kind: Kind = "scale"
    better: Better = "lower"

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        few_pools, many_pools = self.pools[0], max(self.pools[0] * 2, ground.scaled(self.pools[1]))
        sizes = [(workers, pools) for workers in self.workers for pools in (few_pools, many_pools)]
        with ExitStack() as stack:
            servers = [stack.enter_context(fresh_redis(ground.scratch)) for _ in sizes]
            corners = [
                {"url": server.url, "workers": workers, "pools": pools}
                for server, (workers, pools) in zip(servers, sizes, strict=True)
            ]
            seconds = max(2.0, self.seconds / ground.divisor)
            found = program(ground, "at_size", {"corners": corners, "slow": self.slow, "seconds": seconds})
        calls = sum(found["a_second"].values())
        rates, each = found["a_second"], found["each_us"]
        dearest = sorted(rates, key=lambda kind: -rates[kind] * each.get(kind, 0.0))[:_MOST_KINDS]
        said = ", ".join(f"{kind} {rates[kind]:,.0f}/s of {each.get(kind, 0.0):.0f} µs" for kind in dearest)
        return Measurement(
            value=max(found["core_percent"], 0.001),
            unit="% of Redis's core",
            note=f"reckoned for {WORKERS} × {POOLS:,}: {calls:,.0f} calls/s ({said})",
            details={
                "calls_a_second": round(calls, 1),
                "calls_a_pool_a_second": round(calls / POOLS, 4),
                **{f"{kind}_a_second": round(rate, 2) for kind, rate in sorted(rates.items())},
                **{f"{kind}_each_cpu": round(cost, 2) for kind, cost in sorted(each.items())},
                **{
                    f"measured_{corner['workers']}x{corner['pools']}": round(sum(corner["a_second"].values()), 2)
                    for corner in found["corners"]
                },
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparse(Scenario):
    """How many workers ask for one message, when all of them wait."""

    name: str = "scale-sparse"
    title: str = "Fleet, 100 workers wait for one message"
    kind: Kind = "scale"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (Budget(of=ITSELF, at_most=3),)
    messages: int = 20

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        workers, messages = max(10, ground.scaled(WORKERS)), max(5, ground.scaled(self.messages))
        before = ground.sink.deliveries()
        with fresh_redis(ground.scratch) as server:
            found = program(
                ground,
                "sparse",
                {
                    "url": server.url, "workers": workers, "messages": messages,
                    "target": ground.sink.url, "token": TOKEN,
                },
            )  # fmt: skip
        delivered = ground.sink.deliveries() - before
        problems = () if delivered == messages else (f"{delivered} deliveries of {messages} messages",)
        return Measurement(
            value=max(found["claims"], 0.001),
            unit="claims a message",
            problems=problems,
            note=f"{workers} workers, {found['calls']:.1f} exchanges in all",
            details={"workers": workers, "messages": messages, "delivered": delivered, "exchanges": found["calls"]},
        )


SCENARIOS = (
    AtSize(
        name="scale-idle",
        title="Fleet, 100 workers × 10,000 pools at rest",
        slow=False,
        workers=(4, 16),
        pools=(100, 700),
        seconds=10.0,
        budgets=(Budget(of=ITSELF, at_most=3),),
    ),
    Sparse(),
    AtSize(
        name="scale-slow",
        title="Fleet, the same, a slow delivery in each pool",
        slow=True,
        workers=(2, 10),
        pools=(50, 300),
        seconds=12.0,
        budgets=(Budget(of=ITSELF, detail="calls_a_pool_a_second", label="calls a pool", unit="a second", at_most=1),),
    ),
)
