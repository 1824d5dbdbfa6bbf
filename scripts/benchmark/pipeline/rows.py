"""The pipeline: jobs to messages on one core beside DuckDB, the loop through PostgreSQL beside a poller, fan-out."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.ground import Ground
from benchmark.peers.environments import python_environment
from benchmark.pipeline.jobs import WARM_UPS, add_subscriptions, warm_up
from benchmark.pipeline.stage import Stage, around, files, measured, prepare, stage
from benchmark.scenario import Budget, Kind, Measurement, Scenario

_PROGRAMS = Path(__file__).parents[1] / "peers" / "programs"
_BACKFILL, _LOOP, _EVENTS = 1_000_000, 200_000, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Scenario):
    """One row: a program that is started, warms up, and says how long the rest took."""

    name: str
    title: str
    count: int
    timed: Callable[[Stage, str, int], Any]
    """(stage, setting, count) → what the program said."""
    prepared: Callable[[Ground], None] = prepare
    with_store: bool = True
    into_queue: bool = True
    warm_ups: int = 0
    """How many warm-ups leave their messages in the queue."""
    of_one: int = 1
    """How many are counted for each one that was added."""
    kind: Kind = "pipeline"

    def prepare(self, ground: Ground) -> None:
        self.prepared(ground)

    def attempt(self, ground: Ground, setting: str) -> Measurement:
        count = ground.scaled(self.count)
        with stage(ground, with_store=self.with_store) as on:
            said = self.timed(on, setting, count)
            problems = [] if said["sent"] == count * self.of_one else [f"{said['sent']} of {count * self.of_one} jobs"]
            if self.into_queue:
                problems += on.misplaced(count, before=self.warm_ups * warm_up(count))
        return measured(said, problems=problems)


def _backfill(on: Stage, _setting: str, count: int) -> Any:
    return on.run(on.module("driver", "backfill"), count, **files(on.ground, count))


def _duckdb(on: Stage, _setting: str, count: int) -> Any:
    command = [str(_duckdb_folder(on.ground) / "bin" / "python"), "-P", str(_PROGRAMS / "duckdb_peer.py")]
    path = os.pathsep.join([str(on.ground.repository / "scripts"), str(on.ground.repository)])
    return on.run(command, count, {"PYTHONPATH": path}, **files(on.ground, count), **around())


def _install_duckdb(ground: Ground) -> None:
    python_environment(_duckdb_folder(ground), _PROGRAMS / "duckdb.requirements.txt", ground.say)


def _duckdb_folder(ground: Ground) -> Path:
    return ground.out / "peers" / "duckdb"


def _loop(on: Stage, setting: str, count: int) -> Any:
    return on.run(on.module("driver", "loop"), count, batch_size=_most(setting, count))


def _poller(on: Stage, setting: str, count: int) -> Any:
    return on.run(on.module("poller"), count, batch_size=_most(setting, count))


def _most(setting: str, count: int) -> int:
    return count if setting == "one epoch" else int(setting.split()[0])


def _fan_out(on: Stage, _setting: str, count: int) -> Any:
    add_subscriptions(on.database_url)
    return on.run(on.module("driver", "fan-out"), count)


SCENARIOS = (
    Pipeline(
        name="duckdb",
        title="DuckDB, Parquet → plan → our Redis queue, one core",
        count=_BACKFILL,
        timed=_duckdb,
        prepared=_install_duckdb,
        with_store=False,
    ),
    Pipeline(
        name="pipeline-backfill",
        title="Fleet, Parquet → plan → our Redis queue, one core",
        count=_BACKFILL,
        timed=_backfill,
        with_store=False,
        budgets=(Budget(of="duckdb", at_least=0.6, aim=0.75),),
    ),
    Pipeline(
        name="poller",
        title="psycopg poller, PostgreSQL → claims → our Redis queue → QUEUED",
        count=_LOOP,
        timed=_poller,
        warm_ups=1,
        settings=("1000 a batch", "5000 a batch", "20000 a batch"),
    ),
    Pipeline(
        name="pipeline-loop",
        title="Fleet, PostgreSQL → ledger → our Redis queue → QUEUED",
        count=_LOOP,
        timed=_loop,
        warm_ups=WARM_UPS,
        settings=("one epoch", "100000 an epoch"),
        budgets=(Budget(of="poller", at_least=1.0),),
    ),
    Pipeline(
        name="fan-out",
        title="Fleet, events × 20 subscriptions → jobs in PostgreSQL",
        count=_EVENTS,
        timed=_fan_out,
        into_queue=False,
        of_one=2,
    ),
)
