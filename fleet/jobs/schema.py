"""The tables of the job store, the same in PostgreSQL and SQLite, and how an older database becomes a newer one.

Times are milliseconds since 1970 in UTC, as integers: both databases and Spark compare them alike. Names compare by
their bytes: a database's own collation would put a group's jobs in another order than Spark and SQLite do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    inspect,
    literal_column,
    text,
)

from fleet.errors import JobStoreError
from fleet.jobs.records import MODES, STATUSES

VERSION = 2
STEPS: Mapping[int, Sequence[str]] = {
    2: (
        "DROP INDEX events_to_fan_out",
        "CREATE INDEX events_to_fan_out ON events (fanned_out, created_ms) WHERE fanned_out <= 0",
    ),
}
"""Version → the statements that lead to it from the one before. A new database gets the tables as they are here."""

_LOCK = 0x464C4A31
_NAME = Text().with_variant(Text(collation="C"), "postgresql")

metadata = MetaData()


def _one_of(column: str, values: Sequence[str]) -> CheckConstraint:
    return CheckConstraint(f"{column} IN ({', '.join(repr(value) for value in values)})", name=f"known_{column}")


events = Table(
    "events",
    metadata,
    Column("id", _NAME, primary_key=True),
    Column("type", _NAME, nullable=False),
    Column("msg_group", _NAME),
    Column("payload", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("fanned_out", Integer, nullable=False, default=0, server_default="0"),
)

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("name", _NAME, primary_key=True),
    Column("pattern", _NAME, nullable=False),
    Column("target_url", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("pool", _NAME, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("enabled", Integer, nullable=False, default=1, server_default="1"),
    _one_of("mode", MODES),
)

dispatch_jobs = Table(
    "dispatch_jobs",
    metadata,
    Column("id", _NAME, primary_key=True),
    Column("source", Text),
    Column("kind", Text),
    Column("code", Text),
    Column("subject", Text),
    Column("event_id", _NAME),
    Column("subscription", _NAME),
    Column("target_url", Text, nullable=False),
    Column("payload", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("pool", _NAME, nullable=False),
    Column("msg_group", _NAME),
    Column("sequence", Integer, nullable=False, default=99, server_default="99"),
    Column("timeout_seconds", Integer, nullable=False, default=30, server_default="30"),
    Column("max_retries", Integer, nullable=False, default=3, server_default="3"),
    Column("scheduled_ms", BigInteger),
    Column("expires_ms", BigInteger),
    Column("status", Text, nullable=False, default="PENDING", server_default="PENDING"),
    Column("attempt", Integer, nullable=False, default=1, server_default="1"),
    Column("claimed_until_ms", BigInteger),
    Column("created_ms", BigInteger, nullable=False),
    Column("queued_ms", BigInteger),
    Column("queued_epoch", BigInteger),
    Column("completed_ms", BigInteger),
    Column("last_error", Text),
    Column("idempotency_key", _NAME, unique=True),
    _one_of("status", STATUSES),
    _one_of("mode", MODES),
)

dispatch_attempts = Table(
    "dispatch_attempts",
    metadata,
    Column("job_id", _NAME, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("ended_ms", BigInteger, nullable=False),
    Column("status_code", Integer),
    Column("outcome", Text, nullable=False),
    Column("error", Text),
    Column("target_url", Text, nullable=False),
    Column("msg_group", _NAME),
    Column("pool", _NAME, nullable=False),
    PrimaryKeyConstraint("job_id", "attempt", "started_ms"),
)

epochs = Table(
    "epochs",
    metadata,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("fence", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("jobs", Integer, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("marked_ms", BigInteger),
    _one_of("state", ("frozen", "published", "marked")),
)

claims = Table(
    "claims",
    metadata,
    Column("epoch", BigInteger, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("job_id", _NAME, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("msg_group", _NAME),
    PrimaryKeyConstraint("epoch", "job_id"),
)

schema_version = Table("schema_version", MetaData(), Column("version", Integer, nullable=False))

TO_FAN_OUT = events.c.fanned_out <= literal_column("0")
"""New, or taken by a driver. Each question about them must say exactly this: otherwise no database uses the index."""
Index("events_to_fan_out", events.c.fanned_out, events.c.created_ms, postgresql_where=TO_FAN_OUT,
      sqlite_where=TO_FAN_OUT)  # fmt: skip
Index("jobs_by_status", dispatch_jobs.c.status, dispatch_jobs.c.created_ms)
# The order of a group. Most of its jobs are finished, and their order is never asked for.
_UNFINISHED = dispatch_jobs.c.status.not_in(("COMPLETED", "EXPIRED", "CANCELLED"))
Index("jobs_of_group", dispatch_jobs.c.msg_group, dispatch_jobs.c.sequence, dispatch_jobs.c.created_ms,
      dispatch_jobs.c.id, postgresql_where=_UNFINISHED, sqlite_where=_UNFINISHED)  # fmt: skip
Index("attempts_by_end", dispatch_attempts.c.ended_ms)


def migrate(engine: Engine, *, version: int = VERSION, steps: Mapping[int, Sequence[str]] = STEPS) -> None:
    """Make the tables as they have to be. Any number of processes may try at once: one does it, the others wait."""
    with engine.connect() as connection:
        if _version(connection) == version:
            return
    with engine.connect().execution_options(fleet_writes=True) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            # Held to the end of the transaction. In SQLite, the transaction itself began with the write lock.
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        found = _version(connection)
        if found is None:
            metadata.create_all(connection)
            schema_version.create(connection, checkfirst=True)
            connection.execute(schema_version.insert(), {"version": version})
            return
        if found > version:
            raise JobStoreError(f"the job store has schema {found}, this Fleet knows {version}: install a newer one")
        for number in range(found + 1, version + 1):
            for statement in steps[number]:
                connection.execute(text(statement))
        connection.execute(schema_version.update(), {"version": version})


def _version(connection: Connection) -> int | None:
    """None: there is nothing yet."""
    if not inspect(connection).has_table("schema_version"):
        return None
    return connection.execute(schema_version.select()).scalar()
