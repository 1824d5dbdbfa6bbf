"""The loop that workers run on, and endpoints that answer byte by byte as a test wants."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from fleet.delivery.client import HttpClient
from fleet.delivery.reply import Reply


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on the loop that workers run on."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        uvloop.run(asyncio.wait_for(test(*args, **fixtures), 10))

    return run


class Endpoint:
    """A server of one test. `gone` is set when a client has closed a connection that was still being served."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.requests: list[bytes] = []
        self.gone = asyncio.Event()
        self._arrival = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def read_request(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        )
        request = head + await reader.readexactly(length)
        async with self._arrival:
            self.requests.append(request)
            self._arrival.notify_all()
        return request

    async def received(self, count: int) -> None:
        """Wait until this many requests have come."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: len(self.requests) >= count)


Handler = Callable[[Endpoint, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def endpoint(handle: Handler, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    """Serve on loopback. A handler that returns has its connection closed."""
    state = Endpoint()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        state.connections += 1
        try:
            await handle(state, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            state.gone.set()
        except RuntimeError:
            # uvloop's word for a write to a connection that the client has reset a moment ago.
            if not writer.is_closing():
                raise
            state.gone.set()
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


def answering(answer: bytes) -> Handler:
    """Answer every request of a connection with these bytes."""

    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await state.read_request(reader)
            writer.write(answer)
            await writer.drain()

    return handle


async def post(
    client: HttpClient, url: str, *, headers: list[str] | None = None, body: bytes = b"{}", timeout_ms: int = 5000
) -> Reply:
    answered: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
    client.post(url, headers or [], body, timeout_ms=timeout_ms, done=answered.set_result)
    return await answered


def answering_together(answer: bytes, count: int) -> Handler:
    """Answer only when this many requests have come, so that the answers arrive in one turn of the loop."""

    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await state.read_request(reader)
            await state.received(count)
            writer.write(answer)

    return handle


def never(_: Reply) -> None:
    raise AssertionError("this transfer was aborted, and answered all the same")
