"""Fleet's rates: from a pool, over the whole path, and one group alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import uvloop

from benchmark.drain import Workers, drain
from benchmark.ground import Ground
from benchmark.house.fill import depth_of, fill_pool, fill_queue, on_redis
from benchmark.house.house import POOL, Crew, House, house
from benchmark.house.origins import Origin, embedded
from benchmark.machine.cost import Meter, command_stats
from benchmark.machine.profiler import Profiler
from benchmark.rows.limits import serial_loop
from benchmark.scenario import ITSELF, Budget, Measurement, Scenario
from fleet.sources.base import Surroundings

WHOLE_PATH = "whole-path"
_SETTINGS = ("128 at once", "256 at once", "1000 at once")
_POOL_COUNT = 160_000
_PATH_COUNT = 100_000
_LEAST_COUNT = 500
"""Fewer would be over before their rate can be seen."""
_GROUP_COUNT = 60_000
_SERIAL_COUNT = 30_000


class Costs:
    """The observer of a drain: CPU of every process, and a profiler where one is asked for."""

    def __init__(self, home: House, profiler: Profiler | None, others: Mapping[str, int] | None = None) -> None:
        self._home = home
        self._others = others or {}
        self._profiler = profiler
        self._meter: Meter | None = None

    def warm(self, workers: Workers) -> None:
        pids = workers.pids() if isinstance(workers, Crew) else {}
        servers = {"redis": self._home.server.pid, "nginx": self._home.ground.sink.pid}
        self._meter = Meter({**pids, **servers, **self._others}, self._home.client)
        self._meter.begin()
        if self._profiler:
            self._profiler.attach({name: pid for name, pid in pids.items() if name != "syncer"})

    def over(self, messages: int) -> Mapping[str, float | int | str]:
        if self._profiler:
            self._profiler.finish()
            self._profiler.write_redis(command_stats(self._home.client), messages)
        return self._meter.end(messages) if self._meter and messages else {}


def _concurrency(setting: str) -> int:
    return int(setting.split()[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class FromPool(Scenario):
    """Messages that stand in a pool already, by worker processes alone."""

    workers: int
    name: str
    title: str
    settings: tuple[str, ...] = _SETTINGS

    def attempt(self, ground: Ground, setting: str) -> Measurement:
        return self._attempt(ground, setting, None)

    def profile(self, ground: Ground, profiler: Profiler) -> Measurement:
        return self._attempt(ground, self.settings[-1], profiler)

    def _attempt(self, ground: Ground, setting: str, profiler: Profiler | None) -> Measurement:
        return drain_pool(
            ground,
            count=ground.scaled(_POOL_COUNT),
            groups=ground.groups,
            workers=self.workers,
            concurrency=_concurrency(setting),
            profiler=profiler,
        )


def drain_pool(
    ground: Ground, *, count: int, groups: int, workers: int, concurrency: int, profiler: Profiler | None = None
) -> Measurement:
    with house(ground) as home:
        ground.say(f"filling with {count:,} messages")
        on_redis(
            home.server.url,
            lambda client: fill_pool(
                client, count=count, groups=groups, target=ground.sink.url, concurrency=concurrency
            ),
        )
        measured = drain(
            count=count,
            sink=ground.sink,
            start_workers=lambda: home.crew(workers=workers),
            left=home.pool_left,
            say=ground.say,
            observer=Costs(home, profiler),
        )
        # No coordinator applies them here, so every message's outcome must stand in its queue's settled list, once.
        settled = home.queue_left()["settled"]
        problems = [] if settled == count else [f"{settled} outcomes of {count} messages"]
    return replace(measured, problems=(*measured.problems, *problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class WholePath(Scenario):
    """Queue, coordinator, pool, two workers, endpoint, and gone from the queue."""

    name: str = WHOLE_PATH
    title: str = "Fleet, whole path from the embedded queue (2 workers)"
    origin: Callable[[House], AbstractContextManager[Origin]] = embedded
    count: int = _PATH_COUNT
    connections: int = 1
    settings: tuple[str, ...] = _SETTINGS
    budgets: tuple[Budget, ...] = (
        Budget(at_least=1.5, aim=1.8),
        Budget(of=ITSELF, detail="coordinator_us", label="coordinator", unit="µs of CPU a message", at_most=25),
    )

    def attempt(self, ground: Ground, setting: str) -> Measurement:
        return self._attempt(ground, setting, None)

    def profile(self, ground: Ground, profiler: Profiler) -> Measurement:
        return self._attempt(ground, self.settings[-1], profiler)

    def _attempt(self, ground: Ground, setting: str, profiler: Profiler | None) -> Measurement:
        count = max(ground.scaled(self.count), _LEAST_COUNT)
        with (
            house(ground) as home,
            self.origin(home) as origin,
            source_depth(origin.uri, origin.around) as depth,
        ):
            pool = {"code": POOL, "concurrency": _concurrency(setting)}
            home.write_config([pool], queue_uri=origin.uri, connections=self.connections)
            ground.say(f"publishing {count:,} messages")
            uvloop.run(
                fill_queue(origin.uri, count=count, groups=ground.groups, target=ground.sink.url, around=origin.around)
            )
            measured = drain(
                count=count,
                sink=ground.sink,
                start_workers=lambda: home.crew(workers=2, coordinators=1, synced=True, environment=origin.environment),
                left=depth,
                say=ground.say,
                until_empty=True,
                observer=Costs(home, profiler, origin.pids),
            )
            problems = [f"{number} still {what}" for what, number in home.queue_left().items() if number]
            if left := home.pool_left():
                problems.append(f"{left} still in the pool")
            if strange := home.strange_keys():
                problems.append(f"keys left: {', '.join(strange[:5])}")
        return replace(measured, problems=(*measured.problems, *problems))


@contextmanager
def source_depth(uri: str, around: Surroundings | None = None) -> Iterator[Callable[[], int]]:
    """A function that counts what a queue still holds, visible or not."""
    yield lambda: int(uvloop.run(depth_of(uri, around)))


@dataclass(frozen=True, slots=True, kw_only=True)
class OneGroup(Scenario):
    """All messages in one group: one request at a time, against a loop that has nothing else to do.

    The figure is held against a loop with the same client, on its event loop; beside it stands the ratio to bare
    libcurl in a blocking loop, which has no event loop to go through.
    """

    name: str = "one-group"
    title: str = "Fleet, one group only (1 worker)"
    budgets: tuple[Budget, ...] = (Budget(of=ITSELF, at_least=0.7),)

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        return self._attempt(ground, None)

    def profile(self, ground: Ground, profiler: Profiler) -> Measurement:
        return self._attempt(ground, profiler)

    def _attempt(self, ground: Ground, profiler: Profiler | None) -> Measurement:
        # The loops before and after: how fast an idle core wakes up changes from one minute to the next.
        count = ground.scaled(_SERIAL_COUNT)
        before, ours_before = serial_loop(ground, count), serial_loop(ground, count, client="fleet")
        measured = drain_pool(
            ground, count=ground.scaled(_GROUP_COUNT), groups=1, workers=1, concurrency=1, profiler=profiler
        )
        ours_after, after = serial_loop(ground, count, client="fleet"), serial_loop(ground, count)
        serial, ours = (before.value + after.value) / 2, (ours_before.value + ours_after.value) / 2
        loops = (before, ours_before, ours_after, after)
        speeds = sorted((before.value, after.value))
        unsteady = (
            f"; unsteady: the loop did {speeds[0]:,.0f} and {speeds[1]:,.0f}/s" if speeds[1] > 1.3 * speeds[0] else ""
        )
        return replace(
            measured,
            value=measured.value / ours,
            unit="× serial loop",
            problems=(*measured.problems, *(problem for loop in loops for problem in loop.problems)),
            note=f"{measured.value:,.0f}/s; {measured.value / serial:.2f} × bare libcurl, blocking ({serial:,.0f}/s)"
            + unsteady,
            details={
                **measured.details,
                "messages_per_s": round(measured.value),
                "serial_before_per_s": round(before.value),
                "serial_after_per_s": round(after.value),
                "own_client_before_per_s": round(ours_before.value),
                "own_client_after_per_s": round(ours_after.value),
                "times_bare_libcurl": round(measured.value / serial, 3),
            },
        )


SCENARIOS = (
    FromPool(
        workers=2,
        name="pool",
        title="Fleet, from a pool (2 workers)",
        budgets=(Budget(at_least=1.8, aim=3.0),),
    ),
    FromPool(workers=1, name="pool-1", title="Fleet, from a pool (1 worker)"),
    WholePath(),
    OneGroup(),
)
