"""How long a job is PENDING: `fleet feed run`, and jobs that come in at a steady rate."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmark.errors import BenchError
from benchmark.ground import Ground
from benchmark.machine import child
from benchmark.machine.cost import percentile
from benchmark.machine.timing import tree_s
from benchmark.pipeline.jobs import ENDPOINT, KEY, job_id
from benchmark.pipeline.stage import QUEUE, URI, Stage, prepare, stage
from benchmark.scenario import ITSELF, Better, Budget, Kind, Measurement, Scenario
from fleet.state.keys import OwnQueueKeys

_RATE = 5_000
_STEP_S = 0.05
_FIRST, _WARM_UP_S, _COUNT = 1_000, 15, 150_000
_GROUPS = 20_000
_START_S, _DRAIN_S = 60.0, 180.0
_LOOK_S = 0.05
_COPY = "COPY dispatch_jobs (id, target_url, payload, mode, pool, msg_group, created_ms) FROM STDIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLatency(Scenario):
    name: str = "pipeline-latency"
    title: str = f"Fleet, PENDING → our Redis queue at {_RATE:,}/s, p95"
    kind: Kind = "pipeline"
    better: Better = "lower"
    budgets: tuple[Budget, ...] = (Budget(of=ITSELF, at_most=2_000),)

    def prepare(self, ground: Ground) -> None:
        prepare(ground)

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        count, warm_up = ground.scaled(_COUNT), ground.scaled(_WARM_UP_S * _RATE)
        with stage(ground, with_store=True) as on, _feeding(on) as feed_pid:
            # Spark is opened for the first job that falls due.
            _add(on.database_url, _FIRST, first=0)
            if _await_all(on, _FIRST):
                raise BenchError(f"fleet feed run published nothing within {_DRAIN_S:.0f} s")
            began_cpu_s = tree_s(feed_pid)
            added_ms, seconds = _add(on.database_url, warm_up + count, first=_FIRST)
            missing = _await_all(on, _FIRST + warm_up + count)
            cpu_us = (tree_s(feed_pid) - began_cpu_s) * 1e6 / (warm_up + count)
            arrived_ms = _arrivals(on)
        waits = sorted(
            float(arrived_ms[name] - since) for name, since in list(added_ms.items())[warm_up:] if name in arrived_ms
        )
        p50, p95, p99 = (percentile(waits, share) for share in (0.50, 0.95, 0.99))
        return Measurement(
            value=p95,
            unit="ms",
            problems=(f"{missing} of {_FIRST + warm_up + count} jobs not in the queue",) if missing else (),
            note=f"{count:,} jobs at {(warm_up + count) / seconds:,.0f}/s, p50 {p50:,.0f} ms, p99 {p99:,.0f} ms",
            details={"jobs": count, "p50_ms": p50, "p99_ms": p99, "feed_us": round(cpu_us, 1)},
        )


@contextmanager
def _feeding(on: Stage) -> Iterator[int]:
    log = on.folder / "feed.log"
    environment = {
        "FLEET_REDIS_URL": on.server.url,
        "FLEET_DATABASE_URL": on.database_url,
        "FLEET_DATABASE_APP_KEY": KEY,
        "FLEET_DATA_DIR": str(on.folder),
        "FLEET_FEED_MAX_DEPTH": "10000000",
        "FLEET_FEED_QUEUE_URL": URI,
        "FLEET_FEED_PROCESSING_ENDPOINT": ENDPOINT,
    }
    command = [str(Path(sys.executable).with_name("fleet")), "feed", "run"]
    process = child.start(command, log=log, cwd=on.folder, environment=environment)
    try:
        deadline = time.monotonic() + _START_S
        while "leading" not in log.read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"fleet feed run does not lead: {child.last_line(log)}")
            time.sleep(_LOOK_S)
        yield process.pid
    finally:
        child.stop([process])


def _add(url: str, count: int, *, first: int) -> tuple[dict[str, int], float]:
    """Id → when it was handed to the database; and the seconds it all took."""
    added_ms: dict[str, int] = {}
    began = time.monotonic()
    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        while len(added_ms) < count:
            due = min(count, int((time.monotonic() - began) * _RATE))
            now_ms = time.time_ns() // 1_000_000
            with cursor.copy(_COPY) as copy:
                for number in range(first + len(added_ms), first + due):
                    mode = "IMMEDIATE" if number % 3 == 1 else "NEXT_ON_ERROR"
                    group = f"group-{number % _GROUPS}"
                    copy.write_row((job_id(number), "http://127.0.0.1:9/", "{}", mode, "BENCH", group, now_ms))
            added_ms.update((job_id(number), now_ms) for number in range(first + len(added_ms), first + due))
            time.sleep(_STEP_S)
    return added_ms, time.monotonic() - began


def _await_all(on: Stage, count: int) -> int:
    """How many are missing in the end."""
    keys = OwnQueueKeys(QUEUE)
    with on.server.client() as client:
        deadline = time.monotonic() + _DRAIN_S
        while (missing := count - int(client.hlen(keys.bodies))) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
    return missing


def _arrivals(on: Stage) -> dict[str, int]:
    """Id → when it was appended: a message's number is that time in microseconds, by the clock of Redis."""
    with on.server.client() as client:
        bodies = client.hscan_iter(OwnQueueKeys(QUEUE).bodies, count=5_000)
        return {json.loads(body[1:])["id"]: int(number) // 1_000 for number, body in bodies}


SCENARIOS = (PipelineLatency(),)
