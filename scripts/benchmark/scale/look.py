"""What ten thousand pools cost the processes that serve, show and take over: one of each."""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.ground import Ground
from benchmark.machine.servers import fresh_redis
from benchmark.machine.sink import TOKEN
from benchmark.scale.rows import POOLS, WORKERS, program
from benchmark.scenario import ITSELF, Better, Budget, Kind, Measurement, Scenario

_TAKEOVER_POOLS, _HOLDING = 5_000, 10
_STALL_MS = 20


def _stall(detail: str, label: str) -> Budget:
    return Budget(of=ITSELF, detail=detail, label=label, unit="ms", at_most=_STALL_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process(Scenario):
    """CPU of a worker's event loop for a heartbeat, when it has served every pool; and the loop's longest stretches."""

    name: str = "scale-process"
    title: str = "Fleet, heartbeat of a worker that served 10,000 pools"
    kind: Kind = "scale"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (
        Budget(of=ITSELF, at_most=2),
        _stall("start_stall_ms", "longest stall at the start"),
        _stall("heartbeat_stall_ms", "in a heartbeat"),
        _stall("revision_stall_ms", "at a new revision"),
        _stall("subscribe_stall_ms", "subscribed anew"),
        Budget(of=ITSELF, detail="reads_of_all_pools_by_leases", label="reads of all pools for 10 leases", at_most=1),
    )

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        pools, before = ground.scaled(POOLS), ground.sink.deliveries()
        with fresh_redis(ground.scratch) as server:
            spec = {"url": server.url, "pools": pools, "target": ground.sink.url, "token": TOKEN}
            found = program(ground, "process", spec)
        delivered = ground.sink.deliveries() - before
        return Measurement(
            value=found["heartbeat_ms"],
            unit="ms of CPU",
            problems=() if delivered == pools else (f"{delivered} deliveries of {pools} messages",),
            note=f"{pools:,} pools; its record {found['record_bytes'] / 1000:,.1f} KB, "
            f"what is kept of it for the totals {found['tallied_bytes'] / 1000:,.1f} KB",
            details={"pools": pools, **{name: round(value, 3) for name, value in found.items()}},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Scenario):
    """`/metrics` and `fleet status` of a fleet in which every pool has delivered something."""

    name: str = "scale-look"
    title: str = "Fleet, /metrics of 10,000 pools"
    kind: Kind = "scale"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (
        Budget(of=ITSELF, at_most=0.3),
        _stall("metrics_stall_ms", "longest stall of the server's loop"),
    )

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        pools, workers = ground.scaled(POOLS), ground.scaled(WORKERS)
        with fresh_redis(ground.scratch) as server:
            spec = {"url": server.url, "pools": pools, "workers": workers, "target": ground.sink.url, "token": TOKEN}
            found = program(ground, "look", spec)
        problems = () if found["pools"] == pools else (f"{found['pools']} of {pools} pools are shown",)
        return Measurement(
            value=found["metrics_cpu_s"],
            unit="s of CPU",
            problems=problems,
            note=f"{found['metrics_s']:.2f} s by the clock, {found['metrics_mb']:.1f} MB; "
            f"status of {found['processes']} processes {found['status_s']:.2f} s, "
            f"{found['status_calls']:,} calls, {found['status_bytes'] / 1e6:.1f} MB",
            details={name: round(value, 3) for name, value in found.items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover(Scenario):
    """How long the new owner of a queue takes until it may poll, where few of many pools hold something of it."""

    name: str = "scale-takeover"
    title: str = "Fleet, takeover of a queue among 5,000 pools"
    kind: Kind = "scale"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (
        Budget(of=ITSELF, detail="calls", label="calls", unit=f"for {_HOLDING} pools that hold of it", at_most=100),
    )

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        pools = max(_HOLDING, ground.scaled(_TAKEOVER_POOLS))
        with fresh_redis(ground.scratch) as server:
            found = program(ground, "takeover", {"url": server.url, "pools": pools, "holding": _HOLDING})
        problems = () if found["lost"] == 0 else (f"{found['lost']} messages taken for lost",)
        return Measurement(
            value=found["ms"],
            unit="ms",
            problems=problems,
            note=f"{pools:,} pools, {_HOLDING} hold something of the queue",
            details={"pools": pools, "calls": found["calls"]},
        )


SCENARIOS = (Process(), Look(), Takeover())
