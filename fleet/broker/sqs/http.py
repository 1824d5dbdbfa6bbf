"""HTTP/1.1 for the door: the requests of a connection are answered one by one, in the order they came.

A protocol of our own on llhttp. A framework's costs as much as a verb does: a task, a dictionary and a message for each
part of a request, and two writes for an answer.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple, cast

import httptools

from fleet.broker.sqs import errors
from fleet.broker.sqs.call import Reply
from fleet.broker.sqs.door import Door, Headers, refusal
from fleet.broker.sqs.errors import SqsError
from fleet.listening import BACKLOG
from fleet.waiting import happens

BODY_BYTES = 7 * 1024 * 1024
"""A message of 1 MiB may come six times as long: a JSON writer that escapes everything, a form that does."""
HEAD_BYTES = 64 * 1024
IDLE_S = 30.0
"""How long a connection is kept open between two requests."""
ARRIVES_WITHIN_S = 60.0
"""A whole request, from its first byte on; an answer must be taken in as long."""
STOP_WITHIN_S = 5.0
_LINGER_S = 2.0
"""How long the rest of a request that was refused is thrown away: closing at once would take our answer with it."""
_LOOK_S = 1.0
_NEVER_S = float("inf")
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\ndate: ".encode() for status in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CLOSE = (b"connection", b"close")
_BAD_REQUEST = Reply(400, [(b"content-length", b"0")])
_UPGRADES = (b"upgrade", b"connection", b"http2-settings")


class _Request(NamedTuple):
    method: str
    path: bytes
    query: bytes
    headers: Headers
    body: bytes
    is_last: bool


class HttpServer:
    def __init__(self, door: Door) -> None:
        self.door = door
        self.connections: set[Connection] = set()
        self.is_stopping = False
        self._stop = asyncio.Event()
        self._all_closed = asyncio.Event()
        self._date = b""
        self._date_until_s = 0.0

    def stop(self) -> None:
        self._stop.set()

    async def serve(self, listening: socket.socket) -> None:
        """Until `stop`; what is being answered then is answered, within STOP_WITHIN_S."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self), sock=listening, backlog=BACKLOG)
        try:
            while not await happens(self._stop, within_s=_LOOK_S):
                self._look()
        finally:
            self.is_stopping = True
            server.close()
            for connection in list(self.connections):
                connection.finish()
            if self.connections:
                await happens(self._all_closed, within_s=STOP_WITHIN_S)
            for connection in list(self.connections):
                connection.abort()

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        for connection in [one for one in self.connections if one.until_s < now_s]:
            connection.abort()

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if self.is_stopping and not self.connections:
            self._all_closed.set()

    def date(self, now_s: float) -> bytes:
        if now_s >= self._date_until_s:
            self._date = formatdate(usegmt=True).encode()
            self._date_until_s = now_s + 1
        return self._date


class Connection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Request] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._is_lost = False
        self._is_full = False
        """Whether the other side takes our answers more slowly than we write them."""
        self._is_refused = False
        """Whether what comes is thrown away."""
        self._refusal: Reply | None = None
        """What is still to be said of it, when those before it are answered."""
        self._is_deaf = False
        """Whether we do not read: what it sends before it was answered may wait in its own buffers."""
        self.until_s = self._loop.time() + IDLE_S
        """Then it is closed, by the clock of the loop."""
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._clear()

    def _clear(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._head_bytes = self._body_bytes = self._kept_bytes = 0

    # The transport -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class
        self._server.connections.add(self)
        if self._server.is_stopping:
            self.abort()

    def connection_lost(self, _error: Exception | None) -> None:
        self._is_lost = True
        self._waiting.clear()
        self._server.closed(self)

    def pause_writing(self) -> None:
        self._is_full = True
        self.until_s = self._loop.time() + ARRIVES_WITHIN_S

    def resume_writing(self) -> None:
        self._is_full = False
        self._next()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        # The parser keeps what it was given of a header until it is whole.
        self._kept_bytes += len(data)
        try:
            self._parser.feed_data(data)
            if self._kept_bytes > HEAD_BYTES:
                self._refuse(refusal(errors.head_too_large(HEAD_BYTES), self._headers))
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_as_before(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            why = error.__context__
            if isinstance(why, SqsError):
                self._refuse(refusal(why, self._headers))
            elif isinstance(why, httptools.HttpParserInvalidURLError):
                self._refuse(_BAD_REQUEST)
            else:
                raise
        except httptools.HttpParserError:
            self._refuse(_BAD_REQUEST)

    def _go_on_as_before(self, rest: bytes) -> None:
        """Whoever would rather speak another protocol, as Java's client would HTTP/2, is answered in this one. The
        parser takes what follows such a head for that other protocol, so it is given a head that asks for none."""
        head = b"%s %s HTTP/1.1\r\n" % (self._parser.get_method(), self._url)
        for name, value in self._headers.items():
            if name not in _UPGRADES:
                head += b"%s: %s\r\n" % (name, value)
        self._begin()
        self.data_received(head + b"\r\n" + rest)

    # The parser ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._answering is None:
            self.until_s = self._loop.time() + ARRIVES_WITHIN_S

    def on_url(self, url: bytes) -> None:
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        name = name.lower()
        known = self._headers.get(name)
        self._headers[name] = value if known is None else known + b"," + value

    def _count_head(self, count: int) -> None:
        self._kept_bytes = 0
        self._head_bytes += count
        if self._head_bytes > HEAD_BYTES:
            raise errors.head_too_large(HEAD_BYTES)

    def on_headers_complete(self) -> None:
        length = self._headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > BODY_BYTES:
            raise errors.too_large(BODY_BYTES)
        if self._headers.get(b"expect", b"").lower() == b"100-continue" and self._answering is None:
            self._transport.write(_CONTINUE)

    def on_body(self, part: bytes) -> None:
        self._kept_bytes = 0
        self._body_bytes += len(part)
        if self._body_bytes > BODY_BYTES:
            raise errors.too_large(BODY_BYTES)
        self._body.append(part)

    def on_message_complete(self) -> None:
        parser = self._parser
        if parser.should_upgrade() and parser.get_method() != b"CONNECT":
            return  # see `_go_on_as_before`
        path, query = _parts(self._url)
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        method = parser.get_method().decode("latin-1")
        request = _Request(method, path, query, self._headers, body, not parser.should_keep_alive())
        self._clear()
        if self._answering is None and not self._is_full:
            self._start(request)
        else:
            self._waiting.append(request)
            if not self._is_deaf:
                self._is_deaf = True
                self._transport.pause_reading()

    # Answers -------------------------------------------------------------------------------------------

    def is_gone(self) -> bool:
        return self._is_lost

    def _start(self, request: _Request) -> None:
        self.until_s = _NEVER_S
        self._answering = self._loop.create_task(self._answer(request))

    async def _answer(self, request: _Request) -> None:
        method, path, query, headers, body, is_last = request
        reply = await self._server.door.answer(method, path, query, headers, body, is_gone=self.is_gone)
        self._answering = None
        if self._is_lost:
            return
        is_last = is_last or self._server.is_stopping
        if method == "HEAD":
            reply.body = b""
        self._write(reply, is_last=is_last)
        if is_last:
            self.until_s = self._loop.time() + ARRIVES_WITHIN_S
            self._transport.close()
        else:
            self._next()

    def _next(self) -> None:
        if self._is_full or self._is_lost or self._answering is not None:
            return
        if self._waiting:
            self._start(self._waiting.popleft())
            return
        if self._refusal is not None:
            refused, self._refusal = self._refusal, None
            self._write_refusal(refused)
        if self._is_refused:
            return
        self.until_s = self._loop.time() + IDLE_S
        if self._server.is_stopping:
            self._transport.close()
        else:
            self._listen()

    def _listen(self) -> None:
        if self._is_deaf:
            self._is_deaf = False
            self._transport.resume_reading()

    def _write(self, reply: Reply, *, is_last: bool) -> None:
        head = [_STATUS_LINES[reply.status], self._server.date(self._loop.time())]
        for name, value in (*reply.headers, _CLOSE) if is_last else reply.headers:
            head += (b"\r\n", name, b": ", value)
        head += (b"\r\n\r\n", reply.body)
        self._transport.write(b"".join(head))

    def _refuse(self, reply: Reply) -> None:
        """Its turn comes after those before it. Nothing more can come on this connection."""
        self._is_refused, self._refusal = True, reply
        self._next()

    def _write_refusal(self, reply: Reply) -> None:
        self._write(reply, is_last=True)
        self._transport.write_eof()
        self.until_s = self._loop.time() + _LINGER_S
        self._listen()

    # From the server -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Answer what is being answered, and no more."""
        if self._answering is None:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


def _parts(url: bytes) -> tuple[bytes, bytes]:
    """The path and the query."""
    if url == b"/":
        return url, b""
    parsed = httptools.parse_url(url)
    return parsed.path or b"/", parsed.query or b""
