"""The tables of the job store, and the database that they are in."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sqlalchemy import select, text

from fleet.errors import InvalidConfig, JobStoreError, JobStoreUnavailable
from fleet.jobs import schema
from fleet.jobs.database import open_engine, parse_url, reading, writing
from fleet.jobs.records import NewEvent
from fleet.jobs.store import JobStore
from tests.integration.job_store import at_once
from tests.servers.postgres import running_postgres
from tests.waiting import until

_OPENS = "import sys; from fleet.jobs.database import *; from fleet.jobs.store import JobStore; sys.stdin.read(1);"
_OPENS += "s = JobStore(open_engine(parse_url(sys.argv[1]))); s.migrate(); print(s.stats()['PENDING'])"


def test_processes_that_start_at_once_make_the_tables_one_time(database_url: str) -> None:
    command = [sys.executable, "-c", _OPENS, database_url]
    several = [subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) for _ in range(4)]
    for one in several:
        assert one.stdin is not None
        one.stdin.write("x")
        one.stdin.flush()
    ends = [one.communicate(timeout=60) for one in several]
    assert ends == [("0\n", "")] * 4
    engine = open_engine(parse_url(database_url))
    with reading(engine) as connection:
        assert connection.execute(select(schema.schema_version)).scalars().all() == [schema.VERSION]
    engine.dispose()


def test_threads_with_connections_of_their_own_make_the_tables_one_time(database_url: str) -> None:
    stores = [JobStore(open_engine(parse_url(database_url))) for _ in range(8)]
    at_once([store.migrate for store in stores])
    with reading(stores[0].engine) as connection:
        assert connection.execute(select(schema.schema_version)).scalars().all() == [schema.VERSION]
    for store in stores:
        store.close()


def test_an_older_schema_is_brought_forward_step_by_step_and_once(store: JobStore) -> None:
    after = schema.VERSION
    steps = {after + 1: ["ALTER TABLE events ADD COLUMN extra text"], after + 2: ["UPDATE events SET extra = 'seen'"]}
    store.add_events([NewEvent(type="a", payload="1")])
    at_once([lambda: schema.migrate(store.engine, version=after + 2, steps=steps)] * 3)
    with reading(store.engine) as connection:
        assert connection.execute(text("SELECT extra FROM events")).scalars().all() == ["seen"]
        assert connection.execute(select(schema.schema_version)).scalars().all() == [after + 2]


def test_a_step_that_fails_changes_nothing(store: JobStore) -> None:
    after, good = schema.VERSION + 1, "ALTER TABLE events ADD COLUMN extra text"
    with pytest.raises(Exception, match="nothing"):
        schema.migrate(store.engine, version=after, steps={after: [good, "ALTER TABLE nothing ADD COLUMN extra text"]})
    with reading(store.engine) as connection:
        assert connection.execute(select(schema.schema_version)).scalars().all() == [schema.VERSION]
    schema.migrate(store.engine, version=after, steps={after: [good]})


def test_a_store_of_the_first_version_gets_the_index_by_which_waiting_events_are_found(store: JobStore) -> None:
    with writing(store.engine) as connection:
        connection.execute(text("DROP INDEX events_to_fan_out"))
        connection.execute(text("CREATE INDEX events_to_fan_out ON events (created_ms) WHERE fanned_out = 0"))
        connection.execute(schema.schema_version.update(), {"version": 1})
    store.migrate()
    waiting = "SELECT id FROM events WHERE fanned_out <= 0 AND fanned_out = -7"
    explain = "EXPLAIN" if store.engine.dialect.name == "postgresql" else "EXPLAIN QUERY PLAN"
    with writing(store.engine) as connection:
        if store.engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        plan = " ".join(str(row) for row in connection.execute(text(f"{explain} {waiting}")))
    assert "events_to_fan_out" in plan


def test_a_newer_schema_than_ours_is_refused(store: JobStore) -> None:
    with writing(store.engine) as connection:
        connection.execute(schema.schema_version.update(), {"version": schema.VERSION + 1})
    with pytest.raises(JobStoreError, match="install a newer one"):
        store.migrate()


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://u:secret@h/d", "sqlite://", "sqlite:///:memory:", "http://:x"]
)
def test_a_url_that_names_no_database_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_url(url)
    assert "secret" not in str(refused.value)


def test_a_database_that_goes_away_is_named_and_one_that_came_back_is_used() -> None:
    with running_postgres() as first:
        store = JobStore(open_engine(parse_url(first.url())))
        store.migrate()
        first.server.kill()
        said: list[str] = []

        def is_away() -> bool:
            try:
                store.stats()
            except JobStoreUnavailable as away:
                said.append(str(away))
            return bool(said)

        # What serves a connection that was open lives on for a moment after the server was killed.
        until(is_away, 10, lambda: "it answers still")
        store.close()
    assert f"127.0.0.1:{first.port}" in said[0] and "\n" not in said[0]


def test_idle_connections_of_a_restarted_database_are_replaced(
    store: JobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.jobs.database.IDLE_S", 0.0)
    store.stats()
    if store.engine.dialect.name == "postgresql":
        other = open_engine(store.engine.url)
        with writing(other) as connection:
            connection.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                     " AND datname = current_database()")
            )  # fmt: skip
        other.dispose()
    assert store.stats()["PENDING"] == 0
