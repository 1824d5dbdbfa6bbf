"""An application's event stands and falls with the application's own transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from fleet.errors import InvalidJob
from fleet.jobs.database import open_engine
from fleet.jobs.outbox import insert_event
from fleet.jobs.store import JobStore


@pytest.fixture
def connection(store: JobStore, database_url: str) -> Iterator[Any]:
    """The driver's own, as an application has it."""
    if database_url.startswith("sqlite"):
        driver: Any = sqlite3.connect(str(store.engine.url.database))
    else:
        driver = psycopg.connect(database_url)
    driver.execute("CREATE TABLE orders (id integer)")
    driver.commit()
    yield driver
    driver.close()


def test_the_event_is_there_when_the_change_is_and_not_when_it_is_not(store: JobStore, connection: Any) -> None:
    for through in (connection, connection.cursor()):
        through.execute("INSERT INTO orders VALUES (1)")
        insert_event(through, type="order:created", payload={"order": 1}, group="order-1")
        assert store.events() == []
        connection.rollback()
        assert store.events() == []
    connection.execute("INSERT INTO orders VALUES (17)")
    id_ = insert_event(connection.cursor(), type="order:created", payload={"order": 17}, group="order-17")
    connection.commit()
    (event,) = store.events()
    assert (event.id, event.type, event.msg_group, event.payload) == (id_, "order:created", "order-17", '{"order":17}')
    assert event.created_ms > 1_700_000_000_000 and event.fanned_out == 0


def test_it_goes_through_sqlalchemy_too(store: JobStore) -> None:
    engine = open_engine(store.engine.url)
    with engine.connect() as mine:
        insert_event(mine, type="a", payload=None, id="first")
        mine.rollback()
    with engine.begin() as mine:
        mine.execute(text("CREATE TABLE orders (id integer)"))
        assert insert_event(mine, type="a", payload=None, id="second") == "second"
    with Session(engine) as mine:
        insert_event(mine, type="a", payload=None, id="third")
        assert [event.id for event in store.events()] == ["second"]
        mine.commit()
    engine.dispose()
    assert {event.id for event in store.events()} == {"second", "third"}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_an_asynchronous_connection_is_refused_rather_than_left_unasked(database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as mine:
        for through in (mine, mine.cursor()):
            with pytest.raises(TypeError, match="asynchronous"):
                insert_event(through, type="a", payload=None)


@pytest.mark.parametrize(
    "given",
    [{"type": "a::b", "payload": 1}, {"type": "a", "payload": object()}, {"type": "a", "payload": 1, "group": "\n"}],
)
def test_what_the_command_would_refuse_is_refused(store: JobStore, given: dict[str, Any]) -> None:
    with store.engine.begin() as mine, pytest.raises(InvalidJob):
        insert_event(mine, **given)
    assert store.events() == []
