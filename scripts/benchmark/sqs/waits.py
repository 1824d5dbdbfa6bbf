"""2,000 receives that wait at the door: how soon a message reaches one, and what they cost meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.ground import Ground
from benchmark.scenario import ITSELF, Better, Budget, Kind, Measurement, Scenario
from benchmark.sqs.rates import run_program
from benchmark.sqs.servers import door

_WAITERS = 2_000
_QUEUES = 100
_SECONDS = 10.0
_LEAST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits(Scenario):
    name: str = "sqs-waits"
    title: str = "Fleet's SQS door, 2,000 receives that wait: p99 until one is woken"
    kind: Kind = "sqs"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (
        Budget(of=ITSELF, at_most=20),
        Budget(of=ITSELF, detail="server_idle_percent", label="idle", unit="% of a core", at_most=1),
    )

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        seconds = max(_LEAST_S, _SECONDS / ground.divisor)
        with door(ground) as server:
            named = [f"{name}={pid}" for name, pid in server.pids.items()]
            waiters, queues = ground.scaled(_WAITERS), ground.scaled(_QUEUES)
            said = run_program(ground, "waiting", server.url, str(waiters), str(queues), str(seconds), *named)
        missing, redis_percent = said["sent"] - said["woken"], said["redis_idle_percent"]
        return Measurement(
            value=said["p99_ms"],
            unit="ms",
            problems=(f"{missing} of {said['sent']} messages reached nobody",) if missing else (),
            note=f"{waiters:,} at {queues} queues; p50 {said['p50_ms']:.1f} ms, Redis {redis_percent:.2f} %",
            details=said,
        )


SCENARIOS = (Waits(),)
