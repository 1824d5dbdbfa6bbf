"""Who saw what: an endpoint that notes every delivery, and a record of every message that the queue took.

Neither asks the code under test: the one is told by HTTP, the other by what Redis itself reports.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from fleet.state.keys import OwnQueueKeys

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_JOB = re.compile(rb"\r\nfleet-job: *(\S+)", re.IGNORECASE)
_ATTEMPT = re.compile(rb"\r\nfleet-attempt: *(\d+)", re.IGNORECASE)
_MESSAGE = re.compile(rb'\\"id\\":\\"([^\\]+)\\".*?attempt=(\d+)')


@dataclass(slots=True)
class Delivery:
    """One request. `began` and `ended` are places in one sequence of all beginnings and ends."""

    job: str
    attempt: int
    began: int
    ended: int = 0
    good: bool = False


@dataclass
class Endpoint:
    """`/good` answers 200, `/shaky` 503 to first attempts, `/down` 503 until it is `healed`."""

    latency_s: float
    url: str = ""
    healed: bool = False
    seen: list[Delivery] = field(default_factory=list)
    """In the order of arrival."""
    under_way: int = 0
    _moments: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def arrive(self, head: bytes) -> Delivery:
        job, attempt = _JOB.search(head), _ATTEMPT.search(head)
        assert job is not None and attempt is not None, head
        noted = Delivery(job[1].decode(), int(attempt[1]), next(self._moments))
        path = head.split(b" ", 2)[1]
        noted.good = path == b"/good" or (path == b"/shaky" and noted.attempt > 1) or (path == b"/down" and self.healed)
        self.under_way += 1
        self.seen.append(noted)
        return noted

    def leave(self, noted: Delivery) -> None:
        self.under_way -= 1
        noted.ended = next(self._moments)


class _Talk(asyncio.Protocol):
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end]
            found = _LENGTH.search(head)
            whole = end + 4 + (int(found[1]) if found else 0)
            if len(self._buffer) < whole:
                return
            self._buffer = self._buffer[whole:]
            noted = self._endpoint.arrive(head)
            asyncio.get_running_loop().call_later(self._endpoint.latency_s, self._answer, noted)

    def _answer(self, noted: Delivery) -> None:
        self._endpoint.leave(noted)
        status = b"200 OK" if noted.good else b"503 Service Unavailable"
        self._transport.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")


@contextmanager
def an_endpoint(*, latency_ms: float) -> Iterator[Endpoint]:
    endpoint = Endpoint(latency_ms / 1000)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="endpoint")
    thread.start()

    async def listen() -> asyncio.Server:
        return await loop.create_server(lambda: _Talk(endpoint), "127.0.0.1", 0, backlog=1024)

    server = asyncio.run_coroutine_threadsafe(listen(), loop).result()
    endpoint.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield endpoint
    finally:
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass
class Published:
    """How often the queue took each (job, attempt): Redis says so of every write of the script that appends."""

    taken: Counter[tuple[str, int]] = field(default_factory=Counter)

    def note(self, line: bytes) -> None:
        for job, attempt in _MESSAGE.findall(line):
            self.taken[job.decode(), int(attempt)] += 1

    @property
    def count(self) -> int:
        return self.taken.total()

    def twice(self) -> list[tuple[str, int]]:
        return [key for key, times in self.taken.items() if times > 1]


@contextmanager
def a_record_of(queue: str, *, port: int) -> Iterator[Published]:
    published = Published()
    wanted = f' lua] "HSET" "{OwnQueueKeys(queue).bodies}"'.encode()
    line = socket.create_connection(("127.0.0.1", port))
    line.sendall(b"MONITOR\r\n")

    def listen() -> None:
        with suppress(OSError), line.makefile("rb", buffering=1 << 20) as said:
            for one in said:
                if wanted in one[:200]:
                    published.note(one)

    thread = threading.Thread(target=listen, name="record")
    thread.start()
    try:
        yield published
    finally:
        line.shutdown(socket.SHUT_RDWR)
        thread.join()
        line.close()
