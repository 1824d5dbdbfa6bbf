"""Fixtures of this suite: places to open sources at, brokers that may die."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count

import pytest

from fleet.jobs.store import JobStore
from tests.activemq_server import ActiveMqServer, running_activemq
from tests.integration.job_store_world import Hand, a_store
from tests.integration.nats_world import Place

_numbers = count(1)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    """Where tests of JetStream open their sources and publishers."""
    async with AsyncExitStack() as stack:
        yield Place(stack)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.DEBUG)
    return lambda: caplog.text


@pytest.fixture(scope="session")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActiveMqServer]:
    """A broker that tests may kill, and start again."""
    with running_activemq(tmp_path_factory.mktemp("mortal")) as server:
        yield server


@pytest.fixture
def queue() -> str:
    """A queue's name that no other test has."""
    return f"integration.{next(_numbers)}"


@pytest.fixture
def clock() -> Hand:
    return Hand()


@pytest.fixture
def store(database_url: str, clock: Hand) -> Iterator[JobStore]:
    """A job store of each kind."""
    with a_store(database_url, clock) as store:
        yield store
