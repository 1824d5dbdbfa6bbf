"""For applications: an event in the transaction of the change that it tells of, so that both are there or neither.

    with engine.begin() as connection:                    # your own transaction, in the database of the job store
        connection.execute(…your change…)
        insert_event(connection, type="order:created", payload={"order": 17}, group="order-17")

Nothing is committed here. The job store's tables have to be there: `fleet jobs stats` makes them.
"""

from __future__ import annotations

import sqlite3
import time
from inspect import iscoroutinefunction
from typing import Any, Protocol

import msgspec
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from fleet.errors import InvalidJob
from fleet.jobs.read import read_event
from fleet.jobs.rising import Rising, begins_its_jobs
from fleet.jobs.schema import events
from fleet.sources import ulid


class Cursor(Protocol):
    """A cursor of psycopg or sqlite3; their connections will do too."""

    def execute(self, statement: str, parameters: Any, /) -> Any: ...


_rising = Rising()
_COLUMNS = ("id", "type", "msg_group", "payload", "created_ms")


def insert_event(
    connection: Connection | Session | Cursor,
    *,
    type: str,  # noqa: A002
    payload: Any,
    group: str | None = None,
    id: str | None = None,  # noqa: A002
) -> str:
    """Returns its id. `payload` is anything that JSON can hold. InvalidJob where `fleet events add` would refuse it.

    An asynchronous connection is refused; SQLAlchemy's has `run_sync`.
    """
    if iscoroutinefunction(getattr(connection, "execute", None)):
        raise TypeError("insert_event takes no asynchronous connection: it would add nothing")
    now_ms = time.time_ns() // 1_000_000
    try:
        line = msgspec.json.encode({"id": id, "type": type, "group": group, "payload": payload})
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidJob(f"payload: {error}") from None
    event = read_event(line)
    event_id = event.id or ulid.take(1, now_ms)[0]
    created_ms = _rising.at(event.msg_group, begins_its_jobs(event_id), now_ms)
    values = (event_id, event.type, event.msg_group, event.payload, created_ms)
    if isinstance(connection, Connection | Session):
        connection.execute(events.insert(), dict(zip(_COLUMNS, values, strict=True)))
    else:
        # The drivers differ in how a value is marked.
        mark = "?" if isinstance(connection, sqlite3.Connection | sqlite3.Cursor) else "%s"
        marks = ", ".join([mark] * len(_COLUMNS))
        connection.execute(f"INSERT INTO events ({', '.join(_COLUMNS)}) VALUES ({marks})", values)  # noqa: S608
    return values[0]
