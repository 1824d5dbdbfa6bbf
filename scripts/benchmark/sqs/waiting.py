"""Receives that wait, by the thousand: what they cost while nothing comes, and how soon a message reaches one.

`python -m benchmark.sqs.waiting URL WAITERS QUEUES SECONDS NAME=PID …`: the last line holds the figures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import uvloop

from benchmark.machine.cost import percentile, running_ns
from benchmark.sqs.wire import Client, Line, decode

_WAIT_S = 20
_A_SECOND = 200
_SETTLE_S = 2.0


@dataclass
class Wakes:
    ms: list[float] = field(default_factory=list)
    asked: int = 0
    failure: str = ""


class Waiter:
    """One connection that always waits at its queue; a body is the moment when it was sent."""

    def __init__(self, client: Client, queue: str, wakes: Wakes) -> None:
        self._wakes = wakes
        self._line = Line(client.host, client.port, self._on_answer)
        parameters = {"QueueUrl": queue, "WaitTimeSeconds": _WAIT_S, "MaxNumberOfMessages": 1}
        self._receive = client.request("ReceiveMessage", parameters)
        self.ask()

    def ask(self) -> None:
        self._wakes.asked += 1
        self._line.ask(self._receive)

    def _on_answer(self, status: int, body: bytes) -> None:
        now_s = time.perf_counter()
        if status != 200:
            self._wakes.failure = f"{status}: {body[:200].decode(errors='replace')}"
            return
        for message in decode(body).get("Messages", ()):
            self._wakes.ms.append((now_s - float(message["Body"])) * 1000)
        self.ask()


async def run(url: str, waiters: int, queues: int, seconds: float, servers: Mapping[str, int]) -> dict[str, float]:
    client, wakes = Client(url), Wakes()
    urls = [(await client.call("CreateQueue", QueueName=f"waiting-{n}"))["QueueUrl"] for n in range(queues)]
    for number in range(waiters):
        Waiter(client, urls[number % queues], wakes)
        if number % 50 == 0:
            await asyncio.sleep(0.01)  # within what a listening socket keeps for its server
    await asyncio.sleep(_SETTLE_S)
    idle = await _idle(servers, seconds)
    sent, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        await client.call("SendMessage", QueueUrl=urls[sent % queues], MessageBody=repr(time.perf_counter()))
        sent += 1
        await asyncio.sleep(max(0.0, began + sent / _A_SECOND - time.perf_counter()))
    await asyncio.sleep(_SETTLE_S)
    if wakes.failure:
        raise SystemExit(wakes.failure)
    return {
        "sent": sent,
        "woken": len(wakes.ms),
        "waiters": waiters,
        "queues": queues,
        "p50_ms": round(percentile(wakes.ms, 0.5), 2),
        "p99_ms": round(percentile(wakes.ms, 0.99), 2),
        "most_ms": round(max(wakes.ms, default=0.0), 2),
        **{f"{name}_idle_percent": round(share, 3) for name, share in idle.items()},
    }


async def _idle(servers: Mapping[str, int], seconds: float) -> dict[str, float]:
    """The share of a core that each takes while all wait and nothing comes."""
    before, began = {name: running_ns(pid) for name, pid in servers.items()}, time.perf_counter()
    await asyncio.sleep(seconds)
    took_s = time.perf_counter() - began
    return {name: (running_ns(pid) - before[name]) / took_s / 1e7 for name, pid in servers.items()}


if __name__ == "__main__":
    url, waiters, queues, seconds, *named = sys.argv[1:]
    pids = {name: int(pid) for name, _, pid in (one.partition("=") for one in named)}
    found = uvloop.run(run(url, int(waiters), int(queues), float(seconds), pids))
    sys.stdout.write(json.dumps(found) + "\n")
