"""What the rows of `scale` run in a process of its own: `python -m benchmark.scale.program ROW JSON`. Prints JSON."""

# ruff: noqa: T201 (its output is its answer)

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import uvloop

from benchmark.house.fill import add_pools
from benchmark.house.house import QUEUE
from benchmark.scale.calls import Calls, Corner, cpu_us, reckon
from benchmark.scale.crowd import Crowd, Member, crowd, put
from benchmark.scale.stalls import stalls
from coordinator.takeover import take_over
from fleet.clock import SystemClock
from fleet.lease import Lease
from fleet.operate.status import status
from fleet.process import tame_collector
from fleet.server.aside import Aside
from fleet.server.breakers import BreakerBoard
from fleet.server.depths import Depths
from fleet.server.metrics import exposition
from fleet.state.connect import Client, connected
from fleet.state.keys import CHANGED_CHANNEL, FleetKeys, QueueKeys
from fleet.state.queue import Queue
from fleet.state.registry import Registry

MANY_WORKERS, MANY_POOLS = 100, 10_000
_CALM_S, _CALM_WITHIN_S = 1.0, 30.0
_SPREAD_OF_WORKERS_S, _SPREAD_OF_MESSAGES_S = 5.0, 10.0
"""So that what each does every so often is spread evenly. Shorter in a run that is too short to be trusted anyway."""
_SPARSE_POOLS = 20
_QUIET_S = 0.25
_REACTS_S = 3.0
_LEASES_GIVEN_BACK = 10
_BEATS = 10


def codes(count: int) -> list[str]:
    return [f"SCALE-{number}" for number in range(count)]


async def _calm(found: Crowd) -> None:
    """Wait until there are no more calls than at rest: all pools were asked once, and what that began is over."""
    until = time.monotonic() + _CALM_WITHIN_S
    rates = [sys.maxsize]
    while time.monotonic() < until:
        before = found.calls.counts.total()
        await asyncio.sleep(_CALM_S)
        rates.append(found.calls.counts.total() - before)
        if len(rates) > 2 and rates[-1] >= 0.8 * rates[-2] >= 0.64 * rates[-3]:
            return


async def _count(found: Crowd, seconds: float) -> dict[str, float]:
    before, began = found.calls.counts.copy(), time.monotonic()
    await asyncio.sleep(seconds)
    found.check()
    took_s = time.monotonic() - began
    return {kind: count / took_s for kind, count in (found.calls.counts - before).items()}


class _Silent:
    """An endpoint that takes every request and answers none."""

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0, backlog=4096)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/"

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.read(65536):
                continue
        except OSError:
            return
        finally:
            writer.close()

    async def __aexit__(self, *_: object) -> None:
        self._server.close()


async def _corner(spec: dict[str, Any], target: str, seconds: float) -> tuple[Corner, dict[str, tuple[Any, ...]]]:
    """A fleet at rest or, with a `target`, one with a delivery in each pool that never ends."""
    workers, pools = int(spec["workers"]), int(spec["pools"])
    async with connected(spec["url"]) as client:
        await add_pools(client, codes(pools), concurrency=10, capacity=200)
        async with crowd(spec["url"], workers, spread_s=min(_SPREAD_OF_WORKERS_S, seconds)) as found:
            await _calm(found)
            if target:
                for number, code in enumerate(codes(pools)):
                    await put(client, code, number, target, "t")
                    await asyncio.sleep(min(_SPREAD_OF_MESSAGES_S, seconds) / pools)
                await asyncio.sleep(_CALM_S)
                if found.in_flight() != pools:
                    raise SystemExit(f"{found.in_flight()} deliveries under way instead of {pools}")
            a_second = await _count(found, seconds)
    return Corner(workers, pools, a_second), found.calls.examples


async def at_size(corners: list[dict[str, Any]], *, slow: bool, seconds: float) -> dict[str, Any]:
    """Calls and CPU of Redis for a hundred workers and ten thousand pools, reckoned from four sizes at once."""
    async with _Silent() as silent:
        measured = await asyncio.gather(*(_corner(spec, silent if slow else "", seconds) for spec in corners))
    largest = max(range(len(corners)), key=lambda i: corners[i]["workers"] * corners[i]["pools"])
    url = corners[largest]["url"]
    async with connected(url) as client:
        # What a call costs may depend on how many pools and processes there are.
        known = int(corners[largest]["pools"])
        await add_pools(client, codes(MANY_POOLS)[known:], concurrency=10, capacity=200)
        for number in range(MANY_WORKERS):
            await Registry(client).beat(f"worker-of-others-{number}", {"role": "worker", "name": "x"}, ttl_ms=60_000)
    each_us = await cpu_us(url, measured[largest][1])
    at_large = reckon([corner for corner, _ in measured], workers=MANY_WORKERS, pools=MANY_POOLS)
    return {
        "corners": [{"workers": c.workers, "pools": c.pools, "a_second": dict(c.a_second)} for c, _ in measured],
        "a_second": at_large,
        "each_us": each_us,
        "core_percent": sum(rate * each_us.get(kind, 0.0) for kind, rate in at_large.items()) / 1e4,
    }


async def sparse(url: str, *, workers: int, messages: int, target: str, token: str) -> dict[str, Any]:
    """One message at a time for workers that all wait: the calls for each, beyond those of a fleet at rest."""
    dice = random.Random(1)
    async with connected(url) as client:
        await add_pools(client, codes(_SPARSE_POOLS), concurrency=10, capacity=200)
        async with crowd(url, workers) as found:
            await _calm(found)
            claims, calls, busy_s, began = found.calls.wanting, found.calls.counts["exchange"], 0.0, time.monotonic()
            for number in range(messages):
                await put(client, dice.choice(codes(_SPARSE_POOLS)), number, target, token)
                while found.delivered() <= number:
                    await asyncio.sleep(0.002)
                    found.check()
                await asyncio.sleep(_QUIET_S)
            claims, calls = found.calls.wanting - claims, found.calls.counts["exchange"] - calls
            busy_s = time.monotonic() - began
            at_rest = (await _count(found, busy_s)).get("exchange", 0.0) * busy_s
    return {
        "claims": (claims - at_rest) / messages,
        "calls": (calls - at_rest) / messages,
        "delivered": found.delivered(),
    }


async def _deliver_one_each(found: Crowd, client: Client, pools: int, target: str, token: str) -> None:
    """A message through every pool, until all are delivered and the fleet is at rest again."""
    for number, code in enumerate(codes(pools)):
        await put(client, code, number, target, token)
    while found.delivered() < pools:
        await asyncio.sleep(0.02)
        found.check()
    await _calm(found)


async def process(url: str, *, pools: int, target: str, token: str) -> dict[str, Any]:
    """One worker that serves every pool: for how long its loop is kept busy in one go, and what its heartbeat takes."""
    figures: dict[str, float] = {}
    async with connected(url) as client:
        registry = Registry(client)
        await registry.publish_config(b"{}")
        await add_pools(client, codes(pools), concurrency=10, capacity=200)
        async with stalls() as starting, crowd(url, 1, spread_s=0) as found:
            await _calm(found)
            figures["start_stall_ms"] = starting.longest_ms
            one = found.members[0]
            await _deliver_one_each(found, client, pools, target, token)
            for code in codes(pools):
                # So that each heartbeat has as much to tell as it can.
                one.worker.account.counters.observe("wait", code, 0.001)
            figures["heartbeat_ms"], figures["heartbeat_stall_ms"] = await _beats(one)
            async with stalls() as revising:
                await registry.publish_config(b'{"queues": []}')
                await registry.announce_config()
                await asyncio.sleep(_REACTS_S)
            figures["revision_stall_ms"] = revising.longest_ms
            before = found.calls.counts.copy()
            for _ in range(_LEASES_GIVEN_BACK):
                await client.publish(CHANGED_CHANNEL, "lease")
                await asyncio.sleep(0.1)
            looked = found.calls.counts - before
            figures["reads_of_all_pools_by_leases"] = looked["SMEMBERS"] + looked["SSCAN"]
            async with stalls() as subscribing:
                await client.execute_command("CLIENT KILL TYPE pubsub")
                await _calm(found)
            figures["subscribe_stall_ms"] = subscribing.longest_ms
            figures["record_bytes"] = await client.hstrlen(FleetKeys.processes, one.worker.name)
            figures["tallied_bytes"] = int(await client.memory_usage(FleetKeys.tallied + one.worker.name) or 0)
    return {**figures, "delivered": found.delivered()}


async def _beats(one: Member) -> tuple[float, float]:
    """CPU of the loop for a heartbeat, and its longest stretch: the worst of some."""
    cpu_ms, stall_ms = 0.0, 0.0
    for _ in range(_BEATS):
        async with stalls() as beating:
            await one.worker.heartbeat.beat()
        cpu_ms, stall_ms = max(cpu_ms, beating.cpu_ms), max(stall_ms, beating.longest_ms)
    return cpu_ms, stall_ms


async def look(url: str, *, pools: int, workers: int, target: str, token: str) -> dict[str, Any]:
    """What `fleet status` and `/metrics` take once every pool has delivered something. Other processes are copies."""
    async with connected(url) as client:
        await Registry(client).publish_config(b"{}")
        await add_pools(client, codes(pools), concurrency=10, capacity=200)
        async with crowd(url, 1, spread_s=0) as found:
            await _deliver_one_each(found, client, pools, target, token)
            record = json.loads(await client.hget(FleetKeys.processes, found.members[0].worker.name))
        for number in range(workers):
            name = f"worker-of-others-{number}"
            await Registry(client).beat(name, {**record, "name": name}, ttl_ms=600_000)
        calls = Calls()
        calls.watch(client)
        sent = await _sent_bytes(client)
        began = time.perf_counter()
        now = await status(client)
        status_s = time.perf_counter() - began
        status_bytes, status_calls = await _sent_bytes(client) - sent, calls.counts.total()
        # As a server does it; the first question makes the thread and its connection.
        aside = Aside(url)
        await aside.ask(lambda other: other.ping())
        ask = partial(exposition, aside, depths=Depths(clock=SystemClock()), breakers=BreakerBoard(client), due=None)
        began, cpu = time.perf_counter(), time.process_time()
        page = await ask()
        metrics_s, metrics_cpu_s = time.perf_counter() - began, time.process_time() - cpu
        # Once more: a look at each turn of the loop takes the interpreter from the thread.
        async with stalls() as scraping:
            await ask()
        await aside.close()
    return {
        "pools": len(now.pools),
        "processes": len(now.records),
        "status_s": status_s,
        "status_bytes": status_bytes,
        "status_calls": status_calls,
        "metrics_s": metrics_s,
        "metrics_cpu_s": metrics_cpu_s,
        "metrics_stall_ms": scraping.longest_ms,
        "metrics_mb": len(page) / 1e6,
    }


async def _sent_bytes(client: Client) -> int:
    return int((await client.info("stats"))["total_net_output_bytes"])


class _NoSource:
    """Nothing is lost in a takeover here, so nothing is given back."""

    async def nack(self, held: list[Any]) -> list[bool]:
        return [True] * len(held)


async def takeover(url: str, *, pools: int, holding: int) -> dict[str, Any]:
    """A queue whose owner died while a few of many pools held something of it."""
    async with connected(url) as client:
        await add_pools(client, codes(pools), concurrency=10, capacity=200)
        before, after = (_owner(client, name) for name in ("before", "after"))
        await before.acquire()
        queue = Queue(client, QUEUE, epoch=before.epoch)
        for number, code in enumerate(random.Random(1).sample(codes(pools), holding)):
            name = f"01JBENCH{number:018d}"
            (tracking,) = await queue.track([(name, name, code, name, f"{number}-1")], targets=["http://t/"])
            await put(client, code, number, "http://t/", "t", epoch=before.epoch, number_tracked=int(tracking.token))
        await before.release()
        await after.acquire()
        calls = Calls()
        calls.watch(client)
        async with stalls() as taking:
            lost, _ = await take_over(
                client=client,
                queue=Queue(client, QUEUE, epoch=after.epoch),
                source=_NoSource(),  # type: ignore[arg-type]
            )
    return {"ms": taking.wall_ms, "calls": calls.counts.total(), "lost": lost}


def _owner(client: Client, name: str) -> Lease:
    return Lease(client=client, key=QueueKeys(QUEUE).owner, owner=name, ttl_ms=600_000, clock=SystemClock())


_Row = Callable[..., Coroutine[Any, Any, dict[str, Any]]]
_ROWS: dict[str, _Row] = {
    "at_size": at_size, "sparse": sparse, "process": process, "look": look, "takeover": takeover
}  # fmt: skip


def main() -> None:
    row, spec = sys.argv[1], json.loads(sys.argv[2])
    tame_collector()
    print(json.dumps(uvloop.run(_ROWS[row](**spec))))


if __name__ == "__main__":
    main()
