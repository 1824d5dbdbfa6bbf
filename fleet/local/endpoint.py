"""A sample endpoint: takes deliveries, journals them, and misbehaves on request.

What it accepts is done, even if nobody listens any more: a request whose client went away while it was worked on gets
its `end` record with the status that it would have been answered. So a message that was delivered by a worker killed a
moment later counts as accepted here, and its redelivery as a duplicate, as it would for a receiver of real messages.

With `fence`, an epoch lower than one seen for the group in its pool is refused. This is checked twice: when the request
comes in (then nothing was begun, and only an `end` is written) and again before it is accepted, as a store with a
fencing token would do, because another worker may have come by while this request was slow.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import httptools
import msgspec
import uvloop

from fleet.listening import listen
from fleet.operate.journal import Journal

_MAX_BODY_BYTES = 1024 * 1024
_ACCEPTED = 200
_FENCED = 412
_FAILED = 500
_MALFORMED = 400
_BUSY = 429
_MAX_EPOCH_DIGITS = 18


@dataclass(frozen=True, slots=True)
class Behaviour:
    latency_ms: float = 0
    fail_rate: float = 0.0
    failure: int = _FAILED


SAMPLES = {
    "fast": Behaviour(),
    "slow": Behaviour(500),
    "faulty": Behaviour(0, 1 / 3),
    "fail": Behaviour(0, 1),
    "busy": Behaviour(0, 1 / 3, _BUSY),
}
"""How a path behaves beyond what the options ask of every path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""
    latency_ms: float = 0
    fail_rate: float = 0.0
    """The share of requests answered 500, from 0 to 1."""
    fence: bool = False
    journal: Path | None = None


def _say(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()  # also into a pipe or a file, where somebody waits for it


def run_endpoint(options: EndpointOptions, *, on_listening: Callable[[str], None] = _say) -> None:
    """Serve until SIGTERM or SIGINT; what is being worked on then is finished. Says its URL once it listens."""
    uvloop.run(serve(options, on_listening))


async def serve(options: EndpointOptions, on_listening: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    sink = Sink(options)
    server = await loop.create_server(sink.connect, sock=listen(options.host, options.port), backlog=4096)
    host, port = server.sockets[0].getsockname()[:2]
    on_listening(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    await stop.wait()
    server.close()
    await sink.finish()


class Sink:
    """What all connections share: the journal, the epochs seen, and the requests being worked on."""

    def __init__(self, options: EndpointOptions) -> None:
        self.options = options
        self.journal = Journal(options.journal, buffer_bytes=_MAX_BODY_BYTES) if options.journal else None
        self.connections: set[_Connection] = set()
        self.stopping = False
        self._epochs: dict[tuple[str, str], int] = {}
        self._working = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def connect(self) -> asyncio.Protocol:
        return _Connection(self)

    def is_fenced(self, request: Request) -> bool:
        epoch = request.epoch
        if not self.options.fence or request.group is None or epoch is None:
            return False
        # Two pools make epochs without knowing of each other.
        lane = request.pool, request.group
        seen = self._epochs.get(lane, epoch)
        self._epochs[lane] = max(seen, epoch)
        return epoch < seen

    def begin(self, request: Request) -> None:
        self._working += 1
        self._idle.clear()
        if self.journal is not None:
            self.journal.start(request.id, request.group, epoch=request.epoch, pool=request.pool)
            if request.latency_ms:
                self.journal.flush()

    def end(self, request: Request, status: int, *, begun: bool = True) -> None:
        if self.journal is not None:
            self.journal.end(request.id, request.group, epoch=request.epoch, status=status, pool=request.pool)
            self.journal.flush()
        if begun:
            self._working -= 1
            if not self._working:
                self._idle.set()

    def outcome(self, request: Request) -> int:
        if self.is_fenced(request):
            return _FENCED
        return request.failure if random.random() < request.fail_rate else _ACCEPTED

    async def finish(self) -> None:
        self.stopping = True
        while self._working:
            await self._idle.wait()
        for connection in list(self.connections):
            connection.close()
        if self.journal is not None:
            self.journal.close()


@dataclass(slots=True)
class Request:
    id: str = ""
    group: str | None = None
    pool: str = ""
    epoch: int | None = None
    keep_alive: bool = True
    latency_ms: float = 0
    fail_rate: float = 0.0
    failure: int = _FAILED


def _answer(status: str, body: bytes, *headers: str) -> dict[bool, bytes]:
    """The whole reply, by whether the connection stays open."""
    return {
        keep: "\r\n".join(
            [
                f"HTTP/1.1 {status}",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
                f"Connection: {'keep-alive' if keep else 'close'}",
                *headers,
                "\r\n",
            ]
        ).encode()
        + body
        for keep in (True, False)
    }


_ANSWERS = {
    _ACCEPTED: _answer("200 OK", b'{"ack":true}'),
    _FENCED: _answer(
        "412 Precondition Failed", b'{"ack":false,"message":"a newer epoch has come by"}', "Fleet-Fenced: 1"
    ),
    _FAILED: _answer("500 Internal Server Error", b'{"ack":false,"message":"failing as asked"}'),
    _BUSY: _answer("429 Too Many Requests", b'{"ack":false,"message":"busy as asked"}', "Retry-After: 1"),
    _MALFORMED: _answer("400 Bad Request", b'{"ack":false,"message":"not an HTTP request"}'),
}


class _MessageId(msgspec.Struct, rename="camel"):
    message_id: str = ""


class _Connection(asyncio.Protocol):
    """One client. Pipelined requests are worked on one after the other, so that replies keep their order."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._request = Request()
        self._url = self._body = b""
        self._waiting: deque[Request] = deque()
        self._busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not a subclass of it.
        self._transport = cast("asyncio.Transport", transport)
        self._sink.connections.add(self)

    def connection_lost(self, _: Exception | None) -> None:
        # A request being worked on goes on to its end: see the top.
        self._transport = None
        self._waiting.clear()
        self._sink.connections.discard(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # nobody offered one; the request itself has been read
        except httptools.HttpParserError:
            self._reply(_MALFORMED, keep=False)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def on_message_begin(self) -> None:
        self._request = Request()
        self._url = self._body = b""

    def on_url(self, url: bytes) -> None:
        self._url += url  # in parts, if it came in several packets

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._request
        match name.lower():
            case b"idempotency-key":
                request.id = value.decode("utf-8", "replace")
            case b"fleet-group":
                request.group = value.decode("utf-8", "replace")
            case b"fleet-pool":
                request.pool = value.decode("utf-8", "replace")
            case b"fleet-epoch":
                request.epoch = int(value) if value.isdigit() and len(value) <= _MAX_EPOCH_DIGITS else None
            case b"expect" if self._transport is not None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if not self._request.id and len(self._body) < _MAX_BODY_BYTES:
            self._body += body

    def on_message_complete(self) -> None:
        request = self._request
        request.keep_alive = self._parser.should_keep_alive()
        path = self._url.partition(b"?")[0].strip(b"/").decode("utf-8", "replace")
        sample = SAMPLES.get(path, SAMPLES["fast"])
        request.latency_ms = max(sample.latency_ms, self._sink.options.latency_ms)
        request.fail_rate = max(sample.fail_rate, self._sink.options.fail_rate)
        request.failure = sample.failure
        if not request.id and self._body:
            # A request that is not a delivery is answered, but not journalled.
            with suppress(msgspec.DecodeError, UnicodeDecodeError):
                request.id = msgspec.json.decode(self._body, type=_MessageId).message_id
        if self._busy:
            self._waiting.append(request)
        else:
            self._begin(request)

    def _begin(self, request: Request) -> None:
        self._busy = True
        if not request.id:
            self._reply(_ACCEPTED, keep=request.keep_alive)
        elif self._sink.is_fenced(request):
            self._sink.end(request, _FENCED, begun=False)
            self._reply(_FENCED, keep=request.keep_alive)
        else:
            self._sink.begin(request)
            if request.latency_ms:
                self._loop.call_later(request.latency_ms / 1000, self._end, request)
            else:
                self._end(request)

    def _end(self, request: Request) -> None:
        status = self._sink.outcome(request)
        self._sink.end(request, status)
        self._reply(status, keep=request.keep_alive)

    def _reply(self, status: int, *, keep: bool) -> None:
        self._busy = False
        if self._transport is None:
            return
        keep = keep and not self._sink.stopping
        self._transport.write(_ANSWERS[status][keep])
        if not keep:
            self._waiting.clear()
            self._transport.close()
        elif self._waiting:
            self._begin(self._waiting.popleft())
