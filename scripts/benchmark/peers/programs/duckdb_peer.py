"""DuckDB: plan the jobs of a Parquet file by the same rules, and send them with the same sender. `… SPEC` (JSON).

One core, one thread. Messages are made and sent by Fleet's own code: what is compared is what brings the rows there.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import duckdb  # type: ignore[import-not-found]
from benchmark.machine.timing import Stretch, one_core, stay_on

from spark.sources.send import BATCH, Destination, Row, Sender

PLAN = """
WITH judged AS (
  SELECT *,
    status = 'PENDING' AND coalesce(scheduled_ms, 0) <= $now AS due,
    status = 'PENDING' AND coalesce(scheduled_ms, 0) > $now AND tried = 0 AS early,
    status = 'PENDING' AND coalesce(scheduled_ms, 0) > $now AND tried <> 0 AS retrying,
    status IN ('QUEUED', 'IN_PROGRESS') AS is_out
  FROM read_parquet($path) WHERE NOT (status = 'PENDING' AND coalesce(expires_ms, $now + 1) <= $now)
), around AS (
  SELECT *,
    coalesce(bool_or(early AND mode <> 'IMMEDIATE' OR is_out AND mode = 'BLOCK_ON_ERROR') OVER earlier, false)
      OR coalesce(first_value(CASE WHEN status = 'ERROR' OR retrying THEN false
                                   WHEN mode = 'BLOCK_ON_ERROR' AND due THEN true END IGNORE NULLS) OVER earlier, false)
      AS wall_before,
    coalesce(bool_or(NOT (early AND mode = 'IMMEDIATE' AND attempt = 1)) OVER earlier, false) AS any_before,
    bool_or(is_out AND mode = 'BLOCK_ON_ERROR') OVER whole AS block_out,
    count(*) FILTER (is_out AND mode = 'NEXT_ON_ERROR') OVER whole AS next_out,
    count(*) FILTER (due AND mode = 'NEXT_ON_ERROR') OVER so_far AS place
  FROM judged WHERE msg_group IS NOT NULL
  WINDOW whole AS (PARTITION BY msg_group),
    so_far AS (PARTITION BY msg_group ORDER BY sequence, created_ms, id ROWS UNBOUNDED PRECEDING),
    earlier AS (PARTITION BY msg_group ORDER BY sequence, created_ms, id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), going AS (
  SELECT * EXCLUDE (wall_before, any_before, block_out, next_out, place)
  FROM around WHERE due AND CASE mode WHEN 'IMMEDIATE' THEN true
    WHEN 'NEXT_ON_ERROR' THEN NOT wall_before AND place <= $window_size - next_out
    ELSE NOT any_before AND NOT block_out END
)
SELECT id, attempt, msg_group, mode, pool FROM (
  SELECT * FROM going UNION ALL SELECT * FROM judged WHERE msg_group IS NULL AND due
) ORDER BY sequence, created_ms, id
"""
_AT_ONCE = 10_000


async def publish(path: str, spec: dict[str, Any], queue: str) -> int:
    to = Destination(
        uri=queue, redis_url=spec["redis_url"], sqs_endpoint="", endpoint=spec["endpoint"], key=spec["key"].encode(),
        fence=1, dedup_ms=3_600_000,
    )  # fmt: skip
    sender, sent = Sender(to), 0
    await sender.open()
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        asked = {"now": spec["now_ms"], "path": path, "window_size": spec["window"]}
        for part in connection.sql(PLAN, params=asked).to_arrow_reader(_AT_ONCE):
            rows = list(map(Row._make, zip(*(column.to_pylist() for column in part.columns), strict=True)))
            for first in range(0, len(rows), BATCH):
                sent += (await sender.send(rows[first : first + BATCH])).sent
    await sender.close()
    return sent


async def main(spec: dict[str, Any]) -> None:
    stay_on(one_core())
    await publish(spec["warm_up"], spec, "fleet://warm-up")
    stretch = Stretch(spec["servers"])
    stretch.begin()
    sent = await publish(spec["jobs"], spec, spec["queue"])
    stretch.end(spec["count"], sent=sent)


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
