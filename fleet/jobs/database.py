"""Connections to the job store: which database, how it is opened, and its errors in our words."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url, text

from fleet.config.settings import Settings
from fleet.errors import InvalidConfig, JobStoreError, JobStoreUnavailable

FILE = "jobs.db"
BUSY_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10
IDLE_S = 1.0
ASLEEP_MS = 30_000
"""The database ends a transaction in which nothing was said for so long."""
_DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "sqlite": "sqlite",
}


def database_url(settings: Settings) -> URL:
    """The database that is set, else a file in `data_dir`."""
    if not settings.database.url:
        return URL.create("sqlite", database=str(settings.data_dir.absolute() / FILE))
    return parse_url(settings.database.url)


def parse_url(given: str) -> URL:
    """InvalidConfig does not quote it: it may hold a password."""
    try:
        url = make_url(given)
    except (exc.ArgumentError, ValueError):
        raise InvalidConfig(
            "the database URL cannot be read: write postgresql://USER@HOST/NAME or sqlite:///FILE"
        ) from None
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        raise InvalidConfig(f"unknown kind of database {url.drivername[:40]}: write postgresql:// or sqlite:///FILE")
    if driver == "sqlite" and (url.host or not url.database or url.database == ":memory:"):
        raise InvalidConfig("the database URL names no file: write sqlite:///FILE")
    return url.set(drivername=driver)


def open_engine(url: URL, *, connections: int = 8, durable: bool = True) -> Engine:
    """Opens nothing yet. `connections`: how many threads may use it at once.

    Not `durable`: SQLite does not wait for the disk at each commit. That is for claims and outcomes: if one is lost
    with the machine's power, its job is delivered again. What was added with `durable` is on disk all the same.
    """
    if url.drivername != "sqlite":
        engine = create_engine(
            url,
            pool_size=connections,
            max_overflow=0,
            pool_timeout=BUSY_TIMEOUT_S,
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "fleet"},
        )
        event.listen(engine, "connect", partial(_let_go_of_sleepers, ASLEEP_MS))
        event.listen(engine, "checkin", _note_use)
        event.listen(engine, "checkout", _ask_if_idle)
        return engine
    engine = create_engine(
        url,
        pool_size=connections,
        max_overflow=0,
        pool_timeout=BUSY_TIMEOUT_S,
        # The driver begins transactions where it thinks fit; `_begin` does it instead.
        connect_args={"timeout": BUSY_TIMEOUT_S, "isolation_level": None},
    )
    event.listen(engine, "do_connect", _make_folder)
    event.listen(engine, "connect", partial(_prepare, "FULL" if durable else "NORMAL"))
    event.listen(engine, "begin", _begin)
    return engine


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    # In PostgreSQL each statement stands by itself: a transaction around it would be two more round trips.
    options = {} if engine.url.drivername == "sqlite" else {"isolation_level": "AUTOCOMMIT"}
    with translated(engine), engine.connect().execution_options(**options) as connection:
        yield connection


@contextlib.contextmanager
def reading_in_parts(engine: Engine) -> Iterator[Connection]:
    """For answers that are too large for memory: PostgreSQL has cursors only in a transaction."""
    with translated(engine), engine.connect() as connection, connection.begin():
        if engine.url.drivername != "sqlite":
            # The reader decides when to read on, and nothing waits for a reader.
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield connection


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """One transaction: all of it, or nothing."""
    with (
        translated(engine),
        _turn(engine),
        engine.connect().execution_options(fleet_writes=True) as connection,
        connection.begin(),
    ):
        yield connection


_turns: WeakKeyDictionary[Engine, threading.Lock] = WeakKeyDictionary()


def _turn(engine: Engine) -> contextlib.AbstractContextManager[object]:
    """SQLite has one writer at a time, and others sleep for up to 100 ms while they wait. Our own threads wait here."""
    if engine.url.drivername != "sqlite":
        return contextlib.nullcontext()
    return _turns.setdefault(engine, threading.Lock())


@contextlib.contextmanager
def translated(engine: Engine) -> Iterator[None]:
    try:
        yield
    except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as error:
        raise JobStoreUnavailable(f"job store {place(engine.url)}: {_words(error)}") from error
    except exc.DBAPIError as error:
        kind = JobStoreUnavailable if error.connection_invalidated else JobStoreError
        raise kind(f"job store {place(engine.url)}: {_words(error)}") from error
    except OSError as error:
        raise JobStoreUnavailable(f"job store {place(engine.url)}: {error.strerror or error}") from error


def place(url: URL) -> str:
    """For people: without user and password."""
    if url.drivername == "sqlite":
        return str(url.database)
    port = f":{url.port}" if url.port else ""
    return f"{url.host or 'localhost'}{port}/{url.database or ''}"


def _words(error: exc.SQLAlchemyError) -> str:
    """The database's own words, in one line, without the statement and its values."""
    original = getattr(error, "orig", None)
    lines = [line.strip() for line in str(original or error).splitlines() if line.strip()]
    return "; ".join(lines[:3]) or type(error).__name__


def _let_go_of_sleepers(asleep_ms: int, connection: Any, _record: object) -> None:
    """A client that is stopped in the middle of a transaction, or whose machine is gone, soon loses its locks."""
    connection.execute(f"SET idle_in_transaction_session_timeout = {asleep_ms}")
    for name, value in (("idle", 30), ("interval", 10), ("count", 3)):
        connection.execute(f"SET tcp_keepalives_{name} = {value}")
    connection.commit()


def _make_folder(_dialect: Any, _record: Any, arguments: Any, _named: Any) -> None:
    Path(arguments[0]).parent.mkdir(parents=True, exist_ok=True)


def _prepare(synchronous: str, connection: Any, _record: Any) -> None:
    db: sqlite3.Connection = connection
    for pragma in (f"synchronous = {synchronous}", "temp_store = MEMORY", "trusted_schema = OFF"):
        db.execute(f"PRAGMA {pragma}")
    # Two processes that open a new file at once collide here, and SQLite does not wait for this lock.
    give_up = time.monotonic() + BUSY_TIMEOUT_S
    while db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            db.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _note_use(_connection: Any, record: Any) -> None:
    record.info["used_s"] = time.monotonic()


def _ask_if_idle(connection: Any, record: Any, _proxy: Any) -> None:
    """After a restart of the database, this costs a question, not a failed call. A busy connection is not asked."""
    if time.monotonic() - record.info.get("used_s", time.monotonic()) < IDLE_S:
        return
    try:
        connection.execute("SELECT 1")
        connection.rollback()
    except psycopg.Error as error:
        raise exc.DisconnectionError(str(error)) from error


def _begin(connection: Connection) -> None:
    # A write takes the lock from the start: a transaction that reads first could not be sure to get it later.
    writes = connection.get_execution_options().get("fleet_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
