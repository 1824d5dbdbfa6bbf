"""Rows go into each kind of database and come out of it as they are, whatever is in their text."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from sqlalchemy import select, text

from fleet.errors import JobStoreError
from fleet.jobs.database import open_engine, parse_url, reading_in_parts, writing
from fleet.jobs.schema import claims, migrate
from spark.sources import copy
from spark.sources.copy import insert_new_rows, insert_rows, select_rows

HARD = [
    None,
    "",
    "NULL",
    "\\N",
    "\\.",
    "a,b",
    'say "hi"',
    "two\nlines",
    "cr\r\nlf",
    " blank ",
    "Ω–%s %% 'q'",
    "\t",
    "x" * 2**20,
]
COLUMNS = ("epoch", "shard", "seq", "job_id", "attempt", "msg_group")


def table(groups: list[str | None]) -> pa.Table:
    count = len(groups)
    values = [[1] * count, [0] * count, list(range(count)), [f"job-{n}" for n in range(count)], [7] * count, groups]
    return pa.table(dict(zip(COLUMNS, values, strict=True)))


def test_what_went_in_comes_out(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "BATCH", 5)
    rows = table(HARD)
    engine = open_engine(parse_url(database_url), connections=1)
    migrate(engine)
    with writing(engine) as connection:
        insert_rows(connection, claims, rows)
    question = select(*(claims.c[name] for name in COLUMNS)).where(claims.c.epoch == 1).order_by(claims.c.seq)
    with reading_in_parts(engine) as connection:
        parts = list(select_rows(connection, question, rows.schema))
        assert (
            list(select_rows(connection, question.where(claims.c.job_id == "it's 100 % not there"), rows.schema)) == []
        )
    engine.dispose()
    assert len(parts) == -(-len(HARD) // 5)
    assert pa.Table.from_batches(parts).to_pylist() == rows.to_pylist()


def test_what_the_database_refuses_is_said_in_our_words(database_url: str) -> None:
    engine = open_engine(parse_url(database_url), connections=1)
    migrate(engine)
    with pytest.raises(JobStoreError), writing(engine) as connection:
        insert_rows(connection, claims, pa.concat_tables([table(["a"]), table(["b"])]))
    with pytest.raises(JobStoreError), reading_in_parts(engine) as connection:
        schema = pa.schema([("id", pa.string())])
        list(select_rows(connection, select(text("id")).select_from(text("nowhere")), schema))
    engine.dispose()


def test_only_what_is_new_goes_in_and_is_counted(database_url: str) -> None:
    engine = open_engine(parse_url(database_url), connections=1)
    migrate(engine)
    first, both = table(HARD[:4]), table(HARD)
    for rows, new in ((first, 4), (first, 0), (both, len(HARD) - 4), (both, 0)):
        with writing(engine) as connection:
            assert insert_new_rows(connection, claims, rows) == new
    with engine.connect() as connection:
        found = connection.execute(select(claims.c.msg_group).order_by(claims.c.seq)).scalars().all()
    engine.dispose()
    assert found == HARD
