"""What this machine and this sink can do at most, so that the other rows can be read."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmark.errors import BenchError
from benchmark.ground import Ground
from benchmark.machine import child
from benchmark.machine.needs import need
from benchmark.machine.sink import TOKEN
from benchmark.scenario import Kind, Measurement, Scenario

_HERE = Path(__file__).parent
_SERIAL_COUNT = 60_000
_WRK_S = 3
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrk(Scenario):
    """As many requests as wrk can make over 64 connections with one thread."""

    name: str = "wrk"
    title: str = "wrk, 64 connections (the sink's limit)"
    kind: Kind = "limit"

    def prepare(self, ground: Ground) -> None:
        need("wrk", "wrk", repository=ground.repository, log=ground.scratch / "need.log")

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        seconds = 1 if ground.short else _WRK_S
        before = ground.sink.deliveries()
        output = child.call(
            ["wrk", "-t1", "-c64", f"-d{seconds}s", "-s", str(_HERE / "post.lua"), ground.sink.url, "--", TOKEN],
            log=ground.scratch / "wrk.log",
            timeout_s=_TIMEOUT_S,
        )
        delivered = ground.sink.deliveries() - before
        rate, requests = re.search(r"Requests/sec:\s+([\d.]+)", output), re.search(r"(\d+) requests in", output)
        if rate is None or requests is None:
            raise BenchError("wrk printed no rate")
        problems = [line.strip() for line in output.splitlines() if "Non-2xx" in line or "Socket errors" in line]
        # The sink may have seen a few more: wrk ends with requests on their way.
        if delivered < int(requests[1]):
            problems.append(f"wrk got {requests[1]} answers, the sink counted {delivered} requests")
        return Measurement(
            value=float(rate[1]), unit="requests/s", problems=tuple(problems), details={"delivered": delivered}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Serial(Scenario):
    """One request at a time: what a single group can do at most."""

    name: str = "serial"
    title: str = "serial loop, 1 in flight (one group's limit)"
    kind: Kind = "limit"

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        return serial_loop(ground, ground.scaled(_SERIAL_COUNT))


def serial_loop(ground: Ground, count: int, *, client: Literal["libcurl", "fleet"] = "libcurl") -> Measurement:
    """`count` requests one after the other, by a process of its own.

    To be held against one group, run this in the same attempt, just before or after: with one request in
    flight the figure depends on how fast an idle core wakes up. On one virtual machine it was 16,000 a second
    when the machine was quiet and 45,000 when other work kept its cores awake.
    """
    before = ground.sink.deliveries()
    output = child.call(
        [sys.executable, "-P", "-m", "benchmark.peers.serial", ground.sink.url, TOKEN, str(count), client],
        log=ground.scratch / "serial.log",
        timeout_s=_TIMEOUT_S,
    )
    delivered, wanted = ground.sink.deliveries() - before, count + 1  # the first one only connects
    problems = () if delivered == wanted else (f"{delivered} deliveries of {wanted} messages",)
    rate = count / float(output.split()[-1])
    return Measurement(value=rate, unit="requests/s", problems=problems, details={"delivered": delivered})


SCENARIOS = (Wrk(), Serial())
