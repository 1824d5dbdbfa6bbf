"""The thread that looks at every pool: it answers beside the loop, asks back where it must, and ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from fleet.errors import StateUnavailable
from fleet.server.aside import Aside
from fleet.state.connect import Client
from tests.servers.local import RedisServer
from tests.servers.ports import free_port


@pytest.fixture
async def aside(redis_server: RedisServer) -> AsyncIterator[Aside]:
    aside = Aside(redis_server.url)
    yield aside
    await aside.close()


async def test_a_question_is_answered_on_another_thread_with_a_client_of_its_own(aside: Aside) -> None:
    async def question(client: Client) -> tuple[bool, str]:
        return await client.ping(), threading.current_thread().name

    assert await aside.ask(question) == (True, "looks")


async def test_what_takes_long_there_does_not_hold_up_our_loop(aside: Aside) -> None:
    held, turns = threading.Event(), 0

    async def question(_: Client) -> bool:
        # As rendering does: it never waits for anything.
        return held.wait(5)

    asked = asyncio.ensure_future(aside.ask(question))
    for _ in range(100):
        await asyncio.sleep(0)
        turns += 1
    assert not asked.done()
    held.set()
    assert await asked
    assert turns == 100


async def test_a_call_at_home_runs_on_our_loop(aside: Aside) -> None:
    home = asyncio.get_running_loop()

    async def where(more: str) -> tuple[asyncio.AbstractEventLoop, str]:
        return asyncio.get_running_loop(), more

    async def question(_: Client) -> tuple[asyncio.AbstractEventLoop, str]:
        return await aside.at_home(where)("x")

    assert await aside.ask(question) == (home, "x")


async def test_an_error_there_is_an_error_here() -> None:
    away = Aside(f"redis://127.0.0.1:{free_port()}/0")

    async def question(client: Client) -> None:
        raise AssertionError("nobody is connected")

    with pytest.raises(StateUnavailable):
        await away.ask(question)
    await away.close()


async def test_a_question_that_is_under_way_ends_with_it(redis_server: RedisServer) -> None:
    aside, begun = Aside(redis_server.url), threading.Event()

    async def question(_: Client) -> None:
        begun.set()
        await asyncio.Event().wait()

    asked = asyncio.ensure_future(aside.ask(question))
    await asyncio.to_thread(begun.wait, 5)
    await aside.close()
    await asyncio.wait([asked], timeout=5)
    assert asked.cancelled()


async def test_one_that_was_never_asked_ends_without_having_begun() -> None:
    await Aside("redis://127.0.0.1:1/0").close()
