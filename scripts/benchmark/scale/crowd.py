"""Many workers in one process: the workers' own code, each with its own connections, heartbeat and HTTP client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from benchmark.house.house import QUEUE
from benchmark.scale.calls import Calls
from fleet.clock import SystemClock
from fleet.config.settings import HttpSettings, LeaseSettings, RedisSettings, Settings, WorkerSettings
from fleet.delivery.client import HttpClient
from fleet.process import Identity, Life
from fleet.state.connect import Client, connected
from fleet.state.entry import Entry
from fleet.state.pool import Pool
from workers.worker import Worker

TTL_MS = 10_000
_TIMEOUT_MS = 900_000
_MAX_IN_FLIGHT = 20_000
_STOP_WITHIN_S = 0.2
_STEP_S = 0.02


@dataclass(slots=True)
class Member:
    worker: Worker
    life: Life
    client: Client
    http: HttpClient


@dataclass(slots=True)
class Crowd:
    url: str
    calls: Calls = field(default_factory=Calls)
    members: list[Member] = field(default_factory=list)

    def delivered(self) -> int:
        return sum(one.worker.account.outcomes["SUCCESS"] for one in self.members)

    def in_flight(self) -> int:
        return sum(int(one.worker.describe()["inFlight"]) for one in self.members)

    def check(self) -> None:
        """A worker that ended would make every count too small."""
        for one in self.members:
            if one.life.crash is not None:
                raise one.life.crash


@asynccontextmanager
async def crowd(url: str, workers: int, *, spread_s: float = 1.0) -> AsyncIterator[Crowd]:
    """That many workers, started over that time; stopped in the end, and what is under way is left to lapse."""
    found = Crowd(url)
    begin = asyncio.get_running_loop().create_task
    tasks = [begin(_serve(found, spread_s * number / workers)) for number in range(workers)]
    try:
        while len(found.members) < workers:
            await asyncio.sleep(_STEP_S)
            for task in tasks:
                if task.done():
                    task.result()
        yield found
        found.check()
    finally:
        for one in found.members:
            one.life.end()
        await asyncio.gather(*tasks)


async def _serve(found: Crowd, after_s: float) -> None:
    await asyncio.sleep(after_s)
    async with connected(found.url) as client:
        found.calls.watch(client)
        one = _member(found.url, client)
        found.members.append(one)
        await one.worker.run()
        one.http.close()


def _member(url: str, client: Client) -> Member:
    life, http = Life(), HttpClient(http_version="HTTP_1_1")
    worker = Worker(
        identity=Identity.new("worker"),
        client=client,
        http=http,
        clock=SystemClock(),
        life=life,
        settings=Settings(
            redis=RedisSettings(url=url),
            lease=LeaseSettings(ttl_ms=TTL_MS),
            http=HttpSettings(timeout_ms=_TIMEOUT_MS),
            worker=WorkerSettings(max_in_flight=_MAX_IN_FLIGHT, stop_within_s=_STOP_WITHIN_S),
        ),
        forbids_url=lambda _: False,
    )
    return Member(worker, life, client, http)


async def put(
    client: Client, code: str, number: int, target: str, auth: str, *, epoch: str = "1", number_tracked: int = 1
) -> None:
    """One message into a pool, in a group of its own, as a coordinator would submit it."""
    name, now_ms = f"01JBENCH{number:018d}", time.time_ns() // 1_000_000
    entry = Entry(QUEUE, name, str(number_tracked), f"{number:016d}", name, name, now_ms, name, target, auth, True)
    answer = await Pool(client, code).submit(QUEUE, epoch, [entry])
    if answer.tag != "ok" or answer.accepted != 1:
        raise SystemExit(f"pool {code} did not take a message ({answer.tag})")
