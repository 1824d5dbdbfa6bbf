"""A thread beside the server's event loop, with a loop and a connection of its own, for what reads every pool.

A look at ten thousand pools takes some tenths of a second. No other answer waits for that.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeVar

from fleet.state.connect import Client, connect

T = TypeVar("T")
P = ParamSpec("P")


class Looks(Protocol):
    """Where questions that read every pool are asked."""

    async def ask(self, question: Callable[[Client], Awaitable[T]]) -> T: ...

    def at_home(self, call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]: ...


class Here:
    """On the running loop, with its client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        return await question(self._client)

    def at_home(self, call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        return call


class Aside:
    """Begun on first use; ended by `close`."""

    def __init__(self, redis_url: str) -> None:
        self._redis_url = redis_url
        self._home = asyncio.get_running_loop()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="looks", daemon=True)
        self._client: Client | None = None
        self._connecting = asyncio.Lock()

    async def ask(self, question: Callable[[Client], Awaitable[T]]) -> T:
        """The answer to a question that runs there. It may use nothing that lives on our loop, except through
        `at_home`."""
        if not self._thread.is_alive():
            self._thread.start()
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._answer(question), self._loop))

    async def _answer(self, question: Callable[[Client], Awaitable[T]]) -> T:
        async with self._connecting:
            if self._client is None:
                self._client = await connect(self._redis_url)
        return await question(self._client)

    def at_home(self, call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """The same call, for a question that runs there to use; the call itself runs here."""

        async def called(*arguments: P.args, **named: P.kwargs) -> T:
            async def run() -> T:
                return await call(*arguments, **named)

            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(run(), self._home))

        return called

    async def close(self) -> None:
        if self._thread.is_alive():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._end(), self._loop))
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def _end(self) -> None:
        questions = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in questions:
            task.cancel()
        await asyncio.gather(*questions, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()
