"""The peer of the loop: one process that polls PostgreSQL with psycopg, batch by batch. `… SPEC` (JSON).

It does for each job what our ledger does: it claims in a transaction of its own before anything is sent, calls the same
script of our queue with the same dedup ids, and marks what is still PENDING. It does not hold a job back for its group.
No job of these rows is held, so that makes no difference.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import psycopg

from benchmark.machine.timing import Stretch
from benchmark.pipeline.jobs import ENDPOINT, KEY, add_to_store, warm_up
from spark.sources.send import BATCH, Destination, Row, Sender

_CLAIM = """
WITH due AS (
  SELECT id, attempt, msg_group, mode, pool, row_number() OVER (ORDER BY created_ms, id) AS seq FROM (
    SELECT * FROM dispatch_jobs
    WHERE status = 'PENDING' AND coalesce(scheduled_ms, 0) <= %(now)s AND coalesce(expires_ms, %(now)s + 1) > %(now)s
    ORDER BY created_ms, id LIMIT %(most)s
  ) AS first
), claimed AS (
  INSERT INTO claims (epoch, shard, seq, job_id, attempt, msg_group)
  SELECT %(epoch)s, 0, seq, id, attempt, msg_group FROM due
)
SELECT id, attempt, msg_group, mode, pool FROM due ORDER BY seq
"""
_EPOCH = "INSERT INTO epochs (epoch, fence, state, jobs, created_ms) VALUES (%s, 1, 'frozen', %s, %s)"
_PUBLISHED = "UPDATE epochs SET state = 'published' WHERE epoch = %s"
_MARK = """
UPDATE dispatch_jobs AS job SET status = 'QUEUED', queued_ms = %(now)s, queued_epoch = %(epoch)s FROM claims
WHERE claims.epoch = %(epoch)s AND claims.job_id = job.id AND claims.attempt = job.attempt AND job.status = 'PENDING'
"""
_MARKED = "UPDATE epochs SET state = 'marked', marked_ms = %s WHERE epoch = %s"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class Poller:
    def __init__(self, connection: psycopg.Connection[Any], sender: Sender, *, most: int) -> None:
        self._connection = connection
        self._sender = sender
        self._most = most
        self._epoch = 0
        self.marked = 0

    async def once(self) -> None:
        """Everything that is due."""
        while await self._batch():
            continue

    async def _batch(self) -> bool:
        self._epoch += 1
        with self._connection.transaction():
            (now,) = self._connection.execute(_NOW).fetchone() or (0,)
            asked = {"epoch": self._epoch, "most": self._most, "now": now}
            rows = [Row._make(row) for row in self._connection.execute(_CLAIM, asked)]
            if not rows:
                return False
            self._connection.execute(_EPOCH, (self._epoch, len(rows), now))
        for first in range(0, len(rows), BATCH):
            done = await self._sender.send(rows[first : first + BATCH])
            if done.refused:
                raise SystemExit(f"refused: {done.refused[0][1]}")
        with self._connection.transaction():
            self._connection.execute(_PUBLISHED, (self._epoch,))
        with self._connection.transaction():
            self.marked += self._connection.execute(_MARK, asked).rowcount
            self._connection.execute(_MARKED, (now, self._epoch))
        return True


async def poll(spec: dict[str, Any]) -> None:
    to = Destination(
        uri=spec["queue"], redis_url=spec["redis_url"], sqs_endpoint="", endpoint=ENDPOINT,
        key=KEY.encode(), fence=1, dedup_ms=3_600_000,
    )  # fmt: skip
    sender, count = Sender(to), int(spec["count"])
    await sender.open()
    with psycopg.connect(spec["database_url"], autocommit=True) as connection:
        poller = Poller(connection, sender, most=int(spec["batch_size"]))
        add_to_store(spec["database_url"], warm_up(count), first=count)
        await poller.once()
        add_to_store(spec["database_url"], count)
        before = poller.marked
        stretch = Stretch(spec["servers"])
        stretch.begin()
        await poller.once()
        stretch.end(count, sent=poller.marked - before)
    await sender.close()


if __name__ == "__main__":
    asyncio.run(poll(json.loads(sys.argv[1])))
