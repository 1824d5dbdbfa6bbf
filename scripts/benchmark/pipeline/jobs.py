"""The jobs that the pipeline's rows start from: the same for Fleet and for its peers, as Parquet or in a job store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv as csv  # type: ignore[import-untyped]
import pyarrow.parquet as parquet  # type: ignore[import-untyped]

DUE_MS = 1_700_000_000_000
"""When the first of them was added: long ago, so that all are due."""
NOW_MS = DUE_MS + 1_000_000_000
"""For programs that plan from a file: they take this as the time now."""
WARM_UPS, _WARM_UP = 10, 20_000
KEY = "of the bench"
ENDPOINT = "http://127.0.0.1:9/api/dispatch/process"
OF_A_GROUP = 10
"""As many as the default window lets out at once: all of a backlog can go."""
_AT_ONCE = 250_000
_COPY = "COPY dispatch_jobs ({}) FROM STDIN (FORMAT csv, NULL '')"


def jobs(count: int, *, first: int = 0) -> pa.Table:
    """Groups of ten, each spread over the whole table. Two of three are NEXT_ON_ERROR, every third is IMMEDIATE."""
    numbers = np.arange(first, first + count)
    groups = max(1, count // OF_A_GROUP)
    group = (numbers - first) % groups
    text = [pa.array(values.astype(str)) for values in (numbers, group)]
    modes = pa.array(["NEXT_ON_ERROR", "IMMEDIATE", "NEXT_ON_ERROR"]).take(pa.array(group % 3))
    return pa.table(
        {
            "id": pc.binary_join_element_wise("01JBENCH", pc.utf8_lpad(text[0], 18, "0"), ""),
            "msg_group": pc.binary_join_element_wise(f"group-{first}", text[1], "-"),
            "mode": modes,
            "status": pa.array(["PENDING"] * count),
            "sequence": pa.array(np.full(count, 99, np.int32)),
            "created_ms": pa.array(DUE_MS + numbers),
            "scheduled_ms": pa.nulls(count, pa.int64()),
            "expires_ms": pa.nulls(count, pa.int64()),
            "attempt": pa.array(np.ones(count, np.int32)),
            "tried": pa.array(np.zeros(count, np.int32)),
            "pool": pa.array(["BENCH"] * count),
        }
    )


def warm_up(count: int) -> int:
    """How many jobs a program does before those that count, `WARM_UPS` times."""
    return min(_WARM_UP, count)


def job_id(number: int) -> str:
    return f"01JBENCH{number:018d}"


def write_parquet(path: Path, count: int) -> None:
    parquet.write_table(jobs(count), path, row_group_size=_AT_ONCE)


def add_to_store(url: str, count: int, *, first: int = 0) -> None:
    """By COPY: adding them is not part of what is measured."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        # The plan has this column, the store does not: there, `last_error` says it.
        for part in _parts(jobs(count, first=first).drop_columns(["tried"])):
            columns = list(part.column_names)
            filled = part.append_column("target_url", pa.array(["http://127.0.0.1:9/target"] * len(part)))
            filled = filled.append_column("payload", pa.array(['{"of":"the bench"}'] * len(part)))
            sink = pa.BufferOutputStream()
            csv.write_csv(filled, sink, csv.WriteOptions(include_header=False))
            with cursor.copy(_COPY.format(", ".join([*columns, "target_url", "payload"]))) as copy:
                copy.write(sink.getvalue().to_pybytes())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE dispatch_jobs")


def add_subscriptions(url: str) -> None:
    """Twenty, of which two hear our events."""
    with psycopg.connect(url) as connection:
        for number in range(20):
            pattern = ("bench:*:made", "bench:order:*")[number] if number < 2 else f"bench:other-{number}:*"
            connection.execute(
                "INSERT INTO subscriptions (name, pattern, target_url, mode, pool, created_ms) "
                "VALUES (%s, %s, 'http://127.0.0.1:9/target', 'NEXT_ON_ERROR', 'BENCH', 0)",
                (f"s{number}", pattern),
            )


def add_events(url: str, count: int, *, first: int = 0) -> None:
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        with cursor.copy("COPY events (id, type, msg_group, payload, created_ms) FROM STDIN") as copy:
            for number in range(first, first + count):
                group = f"order-{number % max(1, count // OF_A_GROUP)}"
                event = (f"01EVENT{number:018d}", "bench:order:made", group, '{"of":"the bench"}', DUE_MS + number)
                copy.write_row(event)
        connection.execute("ANALYZE events")


def _parts(table: pa.Table) -> Iterator[pa.Table]:
    for first in range(0, len(table), _AT_ONCE):
        yield table.slice(first, _AT_ONCE)
