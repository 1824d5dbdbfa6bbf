"""What Fleet costs at rest: idle processes, and the memory of a queued message."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from functools import partial

import redis

from benchmark.ground import Ground
from benchmark.house.fill import BATCH, fill_pool, message_body, on_redis
from benchmark.house.house import house
from benchmark.machine.cost import command_stats, running_ns
from benchmark.rows.drain import source_depth
from benchmark.scenario import ITSELF, Better, Budget, Measurement, Scenario

_IDLE_POOLS = 1_000
_IDLE_S = 20.0
_MOMENT_S = 0.5
_HOUSEKEEPING = 20
"""Calls in a moment that a fleet at rest makes, however few its pools are: heartbeats, leads, sweeps."""
_MEMORY_COUNT = 100_000
_STEADY_S = 0.5
_STEP_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle(Scenario):
    """The share of a core that a worker takes while none of its pools has anything."""

    name: str = "idle"
    title: str = "Fleet, a worker with many idle pools"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (Budget(of=ITSELF, at_most=1.0),)

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        pools, seconds = ground.scaled(_IDLE_POOLS), max(1.0, _IDLE_S / ground.divisor)
        if ground.short:
            # This row is about the pools; only the time is cut.
            pools = _IDLE_POOLS if seconds > 1.0 else pools
        at_rest = max(pools / 20, _HOUSEKEEPING)
        with house(ground) as home, source_depth(home.queue_uri) as depth:
            depth()
            home.write_config([{"code": f"IDLE-{number}", "concurrency": 10} for number in range(pools)])
            home.client.config_resetstat()
            with home.crew(workers=1, coordinators=1, synced=True) as crew:
                # The syncer's call for each pool and the worker's first question, and another when it subscribes.
                crew.await_that("asking every pool once", lambda: _script_calls(home.client) >= 2 * pools)
                crew.await_that("coming to rest", lambda: _calls_in_a_moment(home.client) < at_rest)
                pids = {**crew.pids(), "redis": home.server.pid}
                ground.say(f"idle for {seconds:.0f} s")
                calls = _script_calls(home.client)
                before, began = {name: running_ns(pid) for name, pid in pids.items()}, time.monotonic()
                time.sleep(seconds)
                after, elapsed = {name: running_ns(pid) for name, pid in pids.items()}, time.monotonic() - began
                calls = _script_calls(home.client) - calls
        shares = {name: (after[name] - before[name]) / elapsed / 1e7 for name in pids}
        return Measurement(
            value=shares["worker 1"],
            unit="% of a core",
            note=f"{pools:,} pools; the coordinator {shares['coordinator']:.2f} %",
            details={f"{name.replace(' ', '_')}_percent": round(share, 3) for name, share in shares.items()}
            | {"pools": pools, "seconds": round(elapsed, 1), "calls_per_s": round(calls / elapsed, 1)},
        )


def _script_calls(client: redis.Redis) -> int:
    return sum(int(figures["calls"]) for name, figures in command_stats(client).items() if name in ("evalsha", "eval"))


def _calls_in_a_moment(client: redis.Redis) -> int:
    before = _script_calls(client)
    time.sleep(_MOMENT_S)
    return _script_calls(client) - before


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Scenario):
    """Bytes in Redis for each message that is tracked and waits in its pool, beside its body on the queue.

    `used_memory` (without the buffers of connections) with all messages less what it was with the first few, so
    that scripts and settings are not counted. Filled by the coordinator's own calls rather than by a coordinator:
    the embedded queue shows no second message of a group before the first is delivered.
    """

    name: str
    title: str
    groups: int
    """0: a group of its own for each message."""
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (Budget(of=ITSELF, at_most=600),)

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        count = ground.scaled(_MEMORY_COUNT)
        groups, target = self.groups or count, ground.sink.url
        with house(ground) as home:
            first = min(BATCH, count // 2)
            fill = partial(fill_pool, groups=groups, target=target, concurrency=100, capacity=2 * count)
            on_redis(home.server.url, partial(fill, count=first))
            before = steady_memory(home.client)
            on_redis(home.server.url, partial(fill, first=first, count=count))
            after = steady_memory(home.client)
            tracked, queued = home.queue_left()["tracked"], home.pool_left()
        problems = [] if tracked == queued == count else [f"{tracked} tracked and {queued} queued of {count} messages"]
        body_bytes = statistics.fmean(len(message_body(i, target=target, groups=groups)) for i in range(first, count))
        each = (after - before) / (count - first)
        return Measurement(
            value=each - body_bytes,
            unit="bytes",
            problems=tuple(problems),
            note=f"{each:.0f} in all, the body {body_bytes:.0f}",
            details={
                "messages": count,
                "groups": groups,
                "tracked": tracked,
                "bytes_in_all": round(each, 1),
                "body_bytes": round(body_bytes, 1),
            },
        )


def steady_memory(client: redis.Redis) -> int:
    """Used memory once it has not moved for a while: a hash that grows keeps its old table until all has moved."""
    seen, since = -1, time.monotonic()
    while time.monotonic() - since < _STEADY_S:
        info = client.info("memory")
        now = int(info["used_memory"]) - int(info.get("mem_clients_normal", 0))
        if abs(now - seen) > max(seen, 0) // 1000:
            seen, since = now, time.monotonic()
        time.sleep(_STEP_S)
    return seen


SCENARIOS = (
    Idle(),
    Memory(name="memory", title="Fleet, Redis per message beside its body", groups=2_000),
    Memory(name="memory-unique", title="Fleet, the same, every message its own group", groups=0),
)
