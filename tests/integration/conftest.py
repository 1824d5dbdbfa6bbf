"""Fixtures of this suite: places to open sources at, brokers that may die."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count

import pytest

from fleet.cli.base import run_command
from fleet.cli.main import fleet as fleet_command
from fleet.jobs.store import JobStore
from fleet.sources import open as opening
from tests.clocks import HandClock
from tests.integration.job_store import a_store
from tests.integration.place import Place
from tests.servers.activemq import ActiveMqServer, running_activemq
from tests.servers.local import RedisServer

_numbers = count(1)


@pytest.fixture
def fleet(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """The command in this process: its exit code, and what it printed."""
    monkeypatch.setenv("FLEET_REDIS_URL", redis_server.url)
    monkeypatch.setattr(opening, "_around", opening._around)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fleet", *arguments])
        code = run_command(fleet_command)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


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
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(database_url: str, clock: HandClock) -> Iterator[JobStore]:
    """A job store of each kind."""
    with a_store(database_url, clock) as store:
        yield store
