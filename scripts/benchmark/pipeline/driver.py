"""The pipeline's own part in its rows, as a program: `python -m benchmark.pipeline.driver WHAT SPEC` (JSON)."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import functions as F  # noqa: N812

from benchmark.machine.timing import Stretch, one_core, stay_on
from benchmark.pipeline.jobs import ENDPOINT, KEY, NOW_MS, WARM_UPS, add_events, add_to_store, warm_up
from benchmark.pipeline.parts import parts
from fleet.config.settings import DatabaseSettings, FeedSettings, RedisSettings, Settings
from spark import schemas
from spark.feed import Feed, destination, opened
from spark.session import Spark
from spark.sources.publish import batch_publisher
from spark.sources.send import Destination
from spark.steps import fan_out
from spark.transforms.plan import Limits, plan

_MASTER, _LOCAL = "local[1]", "local[2]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    count: int
    redis_url: str
    servers: dict[str, int]
    queue: str
    folder: str
    jobs: str = ""
    warm_up: str = ""
    """Parquet files."""
    database_url: str = ""
    batch_size: int = 0


def backfill(spec: Spec) -> None:
    """Plan and publish from a file, as from any table that Spark reads, on one core."""
    stay_on(one_core())
    spark = Spark(master=_MASTER, shards=1)
    try:
        # The JVM compiles what runs often: a session that has just begun says little of one that has run a while.
        for _ in range(WARM_UPS):
            _publish(spark, spec.warm_up, _to(spec, "fleet://warm-up"))
        stretch = Stretch(spec.servers)
        stretch.begin()
        with parts(spec.count) as where:
            sent = _publish(spark, spec.jobs, _to(spec, spec.queue))
        stretch.end(spec.count, sent=sent, **where)
    finally:
        spark.close()


def _publish(spark: Spark, path: str, to: Destination) -> int:
    limits = Limits(window=FeedSettings().window, room=None, shards=1)
    jobs = spark.session.read.schema(schemas.TO_PLAN).parquet(path)
    going = plan(jobs.withColumn("read_ms", F.lit(NOW_MS)), limits=limits)
    said = going.mapInArrow(batch_publisher(to), schemas.PUBLISHED).collect()
    if trouble := [row.trouble for row in said if row.trouble]:
        raise SystemExit(trouble[0])
    return sum(row.sent for row in said)


def _to(spec: Spec, queue: str) -> Destination:
    return dataclasses.replace(destination(_settings(spec)), uri=queue, fence=1)


def loop(spec: Spec) -> None:
    """PENDING in PostgreSQL → ledger → queue → QUEUED in PostgreSQL, epoch by epoch until nothing is left."""
    with _feed(spec) as feed:
        few = warm_up(spec.count)
        for number in range(WARM_UPS):
            add_to_store(spec.database_url, few, first=spec.count + number * few)
            feed.once()
        add_to_store(spec.database_url, spec.count)
        epochs, queued = feed.totals.epochs, feed.totals.queued
        stretch = Stretch(spec.servers)
        stretch.begin()
        with parts(spec.count) as where:
            feed.once()
        stretch.end(spec.count, sent=feed.totals.queued - queued, epochs=feed.totals.epochs - epochs, **where)


def fanned_out(spec: Spec) -> None:
    """Events → jobs in PostgreSQL."""
    with _feed(spec) as feed:
        few = warm_up(spec.count)
        for number in range(WARM_UPS):
            add_events(spec.database_url, few, first=spec.count + number * few)
            _fan_out(feed)
        add_events(spec.database_url, spec.count)
        stretch = Stretch(spec.servers)
        stretch.begin()
        made = _fan_out(feed)
        stretch.end(made, sent=made)


def _fan_out(feed: Feed) -> int:
    made = 0
    while fan_out.waiting(feed.setup.engine):
        made += fan_out.fan_out(feed.setup)[1]
    return made


@contextmanager
def _feed(spec: Spec) -> Iterator[Feed]:
    with opened(_settings(spec), master=_LOCAL, say=_say) as feed:
        feed.setup.lead.lead()
        feed.begin()
        yield feed


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _settings(spec: Spec) -> Settings:
    return Settings(
        data_dir=Path(spec.folder),
        redis=RedisSettings(url=spec.redis_url),
        database=DatabaseSettings(url=spec.database_url, app_key=KEY),
        feed=FeedSettings(
            queue_url=spec.queue,
            processing_endpoint=ENDPOINT,
            max_depth=10 * spec.count,
            batch_size=spec.batch_size or spec.count,
        ),
    )


if __name__ == "__main__":
    what = {"backfill": backfill, "loop": loop, "fan-out": fanned_out}[sys.argv[1]]
    what(Spec(**json.loads(sys.argv[2])))
