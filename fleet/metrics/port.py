"""One process's own metrics at http://127.0.0.1:PORT/metrics. `fleet server` shows the whole fleet's."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable

from fleet.errors import InvalidConfig
from fleet.metrics.counted import add_counted
from fleet.metrics.counters import Counted
from fleet.metrics.exposition import CONTENT_TYPE, Exposition
from fleet.metrics.sqs import add_sqs

log = logging.getLogger("fleet")

_HEAD_BYTES, _HEAD_WITHIN_S = 8192, 5.0


async def serve_metrics(port: int | None, counted: Callable[[], Awaitable[Counted]]) -> None:
    """Serve until cancelled; without a port, do nothing. A port that is taken ends the process with a line about it."""
    if port is None:
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_HEAD_WITHIN_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(await _reply(head.split(b"\r\n", 1)[0], counted))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a request for metrics was not answered", exc_info=True)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, "127.0.0.1", port, limit=_HEAD_BYTES)
    except OSError as error:
        raise InvalidConfig(f"metrics port {port}: {os.strerror(error.errno) if error.errno else error}") from error
    log.info("metrics at http://127.0.0.1:%d/metrics", server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


async def _reply(request: bytes, counted: Callable[[], Awaitable[Counted]]) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.split(b" ")[0].split(b"?")[0]
    if path != b"/metrics":
        return _response("404 Not Found", "text/plain", b"metrics are at /metrics\n")
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", "text/plain", b"only GET\n")
    # On a thread: for ten thousand pools this takes longer than a loop that delivers may stand still.
    body = await asyncio.to_thread(_body, await counted())
    return _response("200 OK", CONTENT_TYPE, body, with_body=method == b"GET")


def _body(counted: Counted) -> bytes:
    page = Exposition()
    add_counted(page, counted)
    add_sqs(page, counted)
    return page.text().encode()


def _response(status: str, kind: str, body: bytes, *, with_body: bool = True) -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (body if with_body else b"")
