"""How much an SQS server does: many connections that send, receive and delete, one message at a time or ten."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from benchmark.ground import Ground
from benchmark.machine import child
from benchmark.machine.profiler import Profiler
from benchmark.peers.environments import python_environment
from benchmark.scenario import ITSELF, Budget, Kind, Measurement, Scenario
from benchmark.sqs.servers import PROGRAMS, Answering, door, folder, ministack, moto

_CONNECTIONS = 64
_SECONDS = 8.0
_LEAST_S = 1.0
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(Scenario):
    """Requests a second, or messages a second through all three calls where they come in tens."""

    name: str
    title: str
    serve: Callable[[Ground], AbstractContextManager[Answering]]
    batch: int
    fifo: bool = False
    pins: str = ""
    """Whose environment it needs; ours is there."""
    kind: Kind = "sqs"

    def prepare(self, ground: Ground) -> None:
        if self.pins:
            python_environment(folder(ground, self.pins), PROGRAMS / f"{self.pins}.requirements.txt", ground.say)

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        with self.serve(ground) as server:
            return self._measure(ground, server)

    def profile(self, ground: Ground, profiler: Profiler) -> Measurement:
        with self.serve(ground) as server:
            profiler.attach({"server": server.pids["server"]})
            try:
                return self._measure(ground, server)
            finally:
                profiler.finish()

    def _measure(self, ground: Ground, server: Answering) -> Measurement:
        seconds = max(_LEAST_S, _SECONDS / ground.divisor)
        kind = "fifo" if self.fifo else "standard"
        named = [f"{name}={pid}" for name, pid in server.pids.items()]
        said = run_program(ground, "load", server.url, str(_CONNECTIONS), str(seconds), str(self.batch), kind, *named)
        problems = [f"{said['lost']} messages lost"] if said["lost"] else []
        # A standard queue may show a message twice, and moto does. Ours has no reason to here.
        if said["again"] and not self.pins:
            problems.append(f"{said['again']} messages shown twice")
        singly = self.batch == 1
        return Measurement(
            value=said["requests_per_s"] if singly else said["messages_per_s"],
            unit="requests/s" if singly else "messages/s",
            problems=tuple(problems),
            note=f"{said['server_us']:.0f} µs of the server a request, {said['server_share']:.0%} of its core",
            details=said,
        )


def run_program(ground: Ground, name: str, *arguments: str) -> dict[str, Any]:
    """One of the programs beside this file, and the figures in its last line."""
    log = ground.scratch / f"sqs-{name}.log"
    command = [sys.executable, "-P", "-m", f"benchmark.sqs.{name}", *arguments]
    path = os.pathsep.join([str(ground.repository / "scripts"), str(ground.repository)])
    output = child.call(command, log=log, timeout_s=_TIMEOUT_S, environment={"PYTHONPATH": path})
    found: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
    return found


SCENARIOS = (
    Rate(name="sqs-moto", title="moto's server, one at a time", serve=moto, batch=1, pins="moto"),
    Rate(name="sqs-moto-tens", title="moto's server, in tens", serve=moto, batch=10, pins="moto"),
    Rate(name="sqs-ministack", title="ministack, one at a time", serve=ministack, batch=1, pins="ministack"),
    Rate(name="sqs-ministack-tens", title="ministack, in tens", serve=ministack, batch=10, pins="ministack"),
    Rate(
        name="sqs-door",
        title="Fleet's SQS door, one at a time",
        serve=door,
        batch=1,
        budgets=(
            Budget(of=ITSELF, at_least=15_000),
            Budget(of="sqs-moto", at_least=25),
            Budget(of="sqs-ministack", at_least=3.5, aim=5),
        ),
    ),
    Rate(
        name="sqs-door-tens",
        title="Fleet's SQS door, in tens",
        serve=door,
        batch=10,
        budgets=(
            Budget(of=ITSELF, at_least=40_000),
            Budget(of="sqs-moto-tens", at_least=25),
            Budget(of="sqs-ministack-tens", at_least=3.5, aim=5),
        ),
    ),
    Rate(name="sqs-door-fifo", title="Fleet's SQS door, FIFO in tens", serve=door, batch=10, fifo=True),
)
