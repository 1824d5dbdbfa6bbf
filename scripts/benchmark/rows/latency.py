"""From publishing to the request's arrival, at a tenth of the rate that the whole path can drain."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from benchmark.errors import BenchError
from benchmark.ground import Ground
from benchmark.house.endpoint import read_journal, running_endpoint
from benchmark.house.house import POOL, house
from benchmark.house.stages import Stages, observed
from benchmark.machine import child
from benchmark.machine.cost import percentile
from benchmark.machine.profiler import Profiler
from benchmark.rows.drain import WHOLE_PATH, source_depth
from benchmark.scenario import ITSELF, Better, Budget, Measurement, Scenario

_SHARE = 0.1
_UNMEASURED_PER_S = 20_000
_SECONDS = 10
_CONCURRENCY = 128
_MARGIN_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency(Scenario):
    """p99 in ms, from the moment the producer asks the queue to take a message. Its commit is in it."""

    name: str = "latency"
    title: str = "Fleet, publish → request arrives, p99 at 10 % load"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (Budget(of=ITSELF, at_most=10.0),)

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        return self._attempt(ground, None)

    def profile(self, ground: Ground, profiler: Profiler) -> Measurement:
        return self._attempt(ground, profiler)

    def _attempt(self, ground: Ground, profiler: Profiler | None) -> Measurement:
        stages = Stages()
        drained_per_s = ground.measured.get(WHOLE_PATH, _UNMEASURED_PER_S)
        rate = max(100, round(drained_per_s * _SHARE, -2))
        count = ground.scaled(int(rate * _SECONDS))
        with house(ground) as home, running_endpoint(home) as endpoint, source_depth(home.queue_uri) as depth:
            home.write_config([{"code": POOL, "concurrency": _CONCURRENCY}])
            depth()  # makes the queue's file
            with home.crew(workers=2, coordinators=1, synced=True) as crew:
                # A message that goes all the way, so that every process is up.
                sent = home.folder / "sent"
                warm = max(1, int(rate / 10))
                _produce(home.queue_uri, endpoint.url, rate, warm, ground.groups, sent)
                crew.await_that("the first messages", lambda: read_journal(endpoint.journal).accepted >= warm)
                endpoint.journal.write_bytes(b"")
                ground.say(f"{rate:,.0f} messages a second for {count / rate:.1f} s")
                with observed(home.client, stages) if profiler else nullcontext():
                    noise_ms = _produce(home.queue_uri, endpoint.url, rate, count, ground.groups, sent)
                crew.await_that("an empty queue", lambda: depth() == 0)
            seen = read_journal(endpoint.journal)
        problems = [] if seen.accepted == seen.starts == count else [f"{seen.starts} requests for {count} messages"]
        late: list[float] = []
        taking: list[float] = []
        called: list[float] = []
        accepted: list[float] = []
        published: dict[str, tuple[float, float]] = {}
        for line in sent.read_text().splitlines():
            name, due_ms, called_ms, accepted_ms = line.split()
            arrived_ms = seen.started_ms.get(name)
            if arrived_ms is None:
                problems.append(f"{name} did not arrive")
                break
            published[name] = float(called_ms), float(accepted_ms)
            late.append(float(called_ms) - float(due_ms))
            taking.append(float(accepted_ms) - float(called_ms))
            called.append(arrived_ms - float(called_ms))
            accepted.append(arrived_ms - float(accepted_ms))
        if profiler:
            profiler.write("steps", stages.text(published, seen.started_ms))
        p99 = percentile(called, 0.99)
        noise = percentile(noise_ms, 0.99)
        return Measurement(
            value=p99,
            unit="ms",
            problems=tuple(problems),
            note=f"{len(called):,} at {rate:,.0f}/s, p50 {percentile(called, 0.5):.2f} ms; "
            f"an idle process woke up {noise:.2f} ms late (p99)",
            details={
                "messages": count,
                "delivered": seen.accepted,
                "rate_per_s": rate,
                "p50_ms": round(percentile(called, 0.5), 3),
                "p999_ms": round(percentile(called, 0.999), 3),
                "max_ms": round(max(called, default=0.0), 3),
                "from_accepted_p50_ms": round(percentile(accepted, 0.5), 3),
                "from_accepted_p99_ms": round(percentile(accepted, 0.99), 3),
                "publish_call_p50_ms": round(percentile(taking, 0.5), 3),
                "publish_call_p99_ms": round(percentile(taking, 0.99), 3),
                "producer_late_p99_ms": round(percentile(late, 0.99), 3),
                "idle_wakeup_p50_ms": round(percentile(noise_ms, 0.5), 3),
                "idle_wakeup_p99_ms": round(noise, 3),
            },
        )


def _produce(uri: str, target: str, rate: float, count: int, groups: int, file: Path) -> list[float]:
    """Publish in a process of its own; meanwhile, how late this idle one wakes up from sleeping 1 ms, in ms."""
    log = file.with_suffix(".log")
    command = [sys.executable, "-P", "-m", "benchmark.house.steady", uri, target, str(rate), str(count), str(groups)]
    late: list[float] = []
    deadline = time.monotonic() + count / rate + _MARGIN_S
    with child.running([*command, str(file)], log=log) as producer:
        while producer.poll() is None:
            before = time.perf_counter()
            time.sleep(0.001)
            late.append((time.perf_counter() - before) * 1e3 - 1)
            if time.monotonic() > deadline:
                raise BenchError("the producer does not end")
        if producer.returncode:
            raise BenchError(f"the producer ended ({producer.returncode}): {child.last_line(log)}")
    return late


SCENARIOS = (Latency(),)
