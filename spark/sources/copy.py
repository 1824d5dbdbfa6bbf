"""Many rows in and out of the job store as Arrow tables. In PostgreSQL by COPY, several times as fast as row by row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import csv
from sqlalchemy import Column, Connection, Insert, MetaData, Select, Table, TableClause, column, exc, insert, select
from sqlalchemy import table as table_clause
from sqlalchemy.dialects import postgresql, sqlite

BATCH = 10_000
BATCH_BYTES = 16 * 1024 * 1024
_FEW = 16
"""Rows that are read before it is known how large they are: payloads have up to 1 MiB each."""


def select_rows(connection: Connection, statement: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The answer in parts, its columns in the schema's order, whatever their names."""
    if connection.dialect.name == "postgresql":
        yield from _copied_out(connection, statement, schema)
        return
    rows, most = connection.execution_options(stream_results=True).execute(statement), min(_FEW, BATCH)
    while part := rows.fetchmany(most):
        columns = zip(*part, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        most = min(BATCH, max(_FEW, BATCH_BYTES * len(part) // max(batch.nbytes, 1)))
        yield batch


def insert_rows(connection: Connection, table: Table, rows: pa.Table) -> None:
    """`rows` has the table's columns, or some of them."""
    if connection.dialect.name == "postgresql":
        _copy_into(connection, table.name, rows)
    else:
        _insert_into(connection, insert(_only(table, rows)), rows)


def insert_new_rows(connection: Connection, table: Table, rows: pa.Table) -> int:
    """Insert the rows whose keys are not there yet; returns how many."""
    if connection.dialect.name != "postgresql":
        return _insert_into(connection, sqlite.insert(_only(table, rows)).on_conflict_do_nothing(), rows)
    # COPY cannot skip conflicts, so the rows go through a table of this transaction's own.
    columns = [Column(name, table.c[name].type) for name in rows.column_names]
    arriving = Table("arriving", MetaData(), *columns, prefixes=["TEMPORARY"], postgresql_on_commit="DROP")
    arriving.create(connection, checkfirst=False)
    _copy_into(connection, arriving.name, rows)
    taken_over = postgresql.insert(_only(table, rows)).from_select(rows.column_names, select(arriving))
    counted = taken_over.on_conflict_do_nothing().execution_options(preserve_rowcount=True)
    return connection.execute(counted).rowcount


def _only(table: Table, rows: pa.Table) -> TableClause:
    """The table with only the columns of the rows; the database fills in the rest."""
    return table_clause(table.name, *(column(name) for name in rows.column_names))


def _copy_into(connection: Connection, name: str, rows: pa.Table) -> None:
    question = f"COPY {name} ({', '.join(rows.column_names)}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
    with _copying(connection, question) as copy:
        for part in rows.to_batches(BATCH):
            copy.write(_as_csv(part))


def _insert_into(connection: Connection, statement: Insert, rows: pa.Table) -> int:
    compiled: Any = statement.compile(dialect=connection.dialect, column_keys=rows.column_names)
    changed = 0
    for part in rows.select(compiled.positiontup).to_batches(BATCH):
        values = zip(*(column.to_pylist() for column in part.columns), strict=True)
        changed += connection.exec_driver_sql(str(compiled), list(values)).rowcount
    return changed


def _copied_out(connection: Connection, statement: Select[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    # COPY takes no parameters.
    question = statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})
    with _copying(connection, f"COPY ({question}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')") as copy:
        rows: list[bytes] = []
        size_bytes = 0
        # PostgreSQL promises one row in each message.
        for row in copy:
            rows.append(bytes(row))
            size_bytes += len(row)
            if len(rows) == BATCH or size_bytes >= BATCH_BYTES:
                yield _from_csv(b"".join(rows), schema)
                rows, size_bytes = [], 0
        if rows:
            yield _from_csv(b"".join(rows), schema)


@contextmanager
def _copying(connection: Connection, statement: str) -> Iterator[psycopg.Copy]:
    """Goes past SQLAlchemy, but raises its errors."""
    cursor: Any = connection.connection.cursor()
    try:
        with cursor, cursor.copy(statement) as copy:
            yield copy
    except psycopg.Error as error:
        kind = exc.OperationalError if isinstance(error, psycopg.OperationalError) else exc.DBAPIError
        raise kind("COPY", None, error) from error


def _from_csv(text: bytes, schema: pa.Schema) -> pa.RecordBatch:
    table = csv.read_csv(
        pa.BufferReader(text),
        # One block: a value may be as long as a payload.
        csv.ReadOptions(column_names=schema.names, block_size=len(text) + 1, use_threads=False),
        csv.ParseOptions(newlines_in_values=True),
        # Null is nothing, an empty text is a pair of quotes. The same holds on the way in.
        csv.ConvertOptions(
            column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    return table.cast(schema).combine_chunks().to_batches()[0]


def _as_csv(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    csv.write_csv(rows, sink, csv.WriteOptions(include_header=False))
    text: bytes = sink.getvalue().to_pybytes()
    return text
