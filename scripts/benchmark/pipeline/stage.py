"""Where the pipeline's rows take place: an empty Redis and job store, a program to be timed, what it must leave."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmark.errors import BenchError
from benchmark.ground import Ground
from benchmark.machine import child
from benchmark.machine.needs import need
from benchmark.machine.servers import RedisServer, fresh_redis
from benchmark.pipeline.jobs import ENDPOINT, KEY, NOW_MS, OF_A_GROUP, job_id, warm_up, write_parquet
from benchmark.scenario import Measurement
from fleet.config.settings import FeedSettings
from fleet.jobs.database import open_engine, parse_url
from fleet.jobs.schema import migrate
from fleet.state.keys import OwnQueueKeys
from tests.servers.local import ServerFailed
from tests.servers.postgres import running_postgres

QUEUE = "jobs"
URI = f"fleet://{QUEUE}"
TIMEOUT_S = 600.0
_GROUPS_LOOKED_AT = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    ground: Ground
    folder: Path
    server: RedisServer
    database_url: str
    """Empty where there is none."""
    servers: Mapping[str, int]

    def run(self, command: list[str], count: int, environment: Mapping[str, str] | None = None, **more: Any) -> Any:
        """What the program says at its end."""
        spec = {
            "count": count,
            "redis_url": self.server.url,
            "servers": self.servers,
            "queue": URI,
            "folder": str(self.folder),
            "database_url": self.database_url,
            **more,
        }
        output = child.call(
            [*command, json.dumps(spec)], log=self.folder / "log", timeout_s=TIMEOUT_S, environment=environment
        )
        return json.loads(output.splitlines()[-1])

    def module(self, name: str, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", f"benchmark.pipeline.{name}", *arguments]

    def misplaced(self, count: int, *, before: int) -> list[str]:
        """Whether all are in the queue, and whether some of the groups with an order are whole and in order."""
        keys = OwnQueueKeys(QUEUE)
        groups = max(1, count // OF_A_GROUP)
        ordered = [number for number in range(groups) if number % 3 != 1][:_GROUPS_LOOKED_AT]
        with self.server.client() as client:
            there = int(client.hlen(keys.bodies)) - before
            if there != count:
                return [f"{there} of {count} messages in the queue"]
            for number in ordered:
                listed = client.lrange(f"{keys.group_list}group-0-{number}", 0, -1)
                bodies = client.hmget(keys.bodies, listed) if listed else []
                found = [json.loads(str(body)[1:])["id"] for body in bodies]
                if found != [job_id(one) for one in range(number, count, groups)]:
                    return [f"group {number} is not whole, or not in order: {len(found)} messages"]
        return []


@contextmanager
def stage(ground: Ground, *, with_store: bool) -> Iterator[Stage]:
    with ExitStack() as stack:
        server = stack.enter_context(fresh_redis(ground.scratch))
        folder = Path(tempfile.mkdtemp(prefix="pipeline-", dir=ground.scratch))
        servers, url = {"redis": server.pid}, ""
        if with_store:
            try:
                store = stack.enter_context(running_postgres())
            except ServerFailed as error:
                raise BenchError(str(error)) from error
            url = store.new_database()
            servers["postgres"] = store.server.pid
            engine = open_engine(parse_url(url), connections=1)
            migrate(engine)
            engine.dispose()
        yield Stage(ground=ground, folder=folder, server=server, database_url=url, servers=servers)


def prepare(ground: Ground) -> None:
    log = ground.scratch / "need.log"
    need("java", "default-jre-headless", repository=ground.repository, log=log)


def files(ground: Ground, count: int) -> dict[str, Any]:
    """The jobs, and those of a warm-up, as Parquet. Made once a run."""
    jobs, few = ground.scratch / f"jobs-{count}.parquet", ground.scratch / "warm-up.parquet"
    for path, rows in ((jobs, count), (few, warm_up(count))):
        if not path.exists():
            write_parquet(path, rows)
    return {"jobs": str(jobs), "warm_up": str(few)}


def around() -> dict[str, Any]:
    return {"endpoint": ENDPOINT, "key": KEY, "now_ms": NOW_MS, "window": FeedSettings().window}


def measured(said: Mapping[str, Any], *, problems: list[str], note: str = "") -> Measurement:
    details = {name: value for name, value in said.items() if name != "count"}
    parts = [f"{name} {said[f'{name}_us']:.1f}" for name in ("program", "redis", "postgres") if f"{name}_us" in said]
    return Measurement(
        value=said["count"] / said["seconds"],
        unit="jobs/s",
        problems=tuple(problems),
        details={**details, "jobs": said["count"]},
        note="; ".join(filter(None, [note, f"µs of CPU a job: {', '.join(parts)}"])),
    )
