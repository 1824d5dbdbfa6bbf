"""Bytes in, bytes out: every request is answered once, in its turn, and nobody can hold on to us."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from logging.handlers import BufferingHandler
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.sqs import http
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.door import Door
from fleet.broker.sqs.http import BODY_BYTES, HEAD_BYTES, HttpServer
from fleet.listening import listen
from tests.unit.broker.sqs.wire import StoppedClock
from tests.waiting import eventually

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
ANSWER_S = 10.0
LIST = b"POST / HTTP/1.1\r\nhost: localhost\r\nx-amz-target: AmazonSQS.ListQueues\r\n"


def request(body: bytes = b"{}", *, more: bytes = b"") -> bytes:
    return LIST + more + b"content-length: %d\r\n\r\n" % len(body) + body


async def prefix(call: Call) -> dict[str, Any] | None:
    return {"QueueUrls": [call.params.get("QueueNamePrefix", "")]}


def asking(name: str, *, more: bytes = b"") -> bytes:
    return request(b'{"QueueNamePrefix":"%s"}' % name.encode(), more=more)


@contextlib.asynccontextmanager
async def serving(verb: Callable[[Call], Awaitable[dict[str, Any] | None]] = prefix) -> AsyncIterator[Served]:
    server = HttpServer(Door({"ListQueues": verb}, keys={}, clock=StoppedClock()))
    listening = listen("127.0.0.1", 0)
    served = Served(server, listening.getsockname()[1])
    task = asyncio.create_task(server.serve(listening))
    try:
        yield served
    finally:
        server.stop()
        async with asyncio.timeout(ANSWER_S):
            await task
        for writer in served.writers:
            writer.close()


class Served:
    def __init__(self, server: HttpServer, port: int) -> None:
        self.server = server
        self.port = port
        self.writers: list[Writer] = []

    async def connect(self) -> tuple[Reader, Writer]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writers.append(writer)
        return reader, writer

    async def answered(self, *parts: bytes) -> bytes:
        """All that comes until the connection is closed."""
        reader, writer = await self.connect()
        for part in parts:
            writer.write(part)
            await writer.drain()
        async with asyncio.timeout(ANSWER_S):
            return await reader.read()


async def read_one(reader: Reader) -> tuple[int, dict[bytes, bytes], bytes]:
    async with asyncio.timeout(ANSWER_S):
        head = await reader.readuntil(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines if line)
        return int(status.split()[1]), headers, await reader.readexactly(int(headers[b"content-length"]))


def statuses(answer: bytes) -> list[int]:
    return [int(one[:3]) for one in answer.split(b"HTTP/1.1 ")[1:]]


async def test_a_connection_is_kept_and_its_requests_are_answered_in_their_order() -> None:
    async def slow_first(call: Call) -> dict[str, Any] | None:
        await asyncio.sleep(0.05 if call.params["QueueNamePrefix"] == "a" else 0)
        return await prefix(call)

    async with serving(slow_first) as served:
        reader, writer = await served.connect()
        writer.write(asking("a") + asking("b") + asking("c")[:20])
        for name in (b"a", b"b"):
            status, headers, body = await read_one(reader)
            assert (status, body) == (200, b'{"QueueUrls":["%s"]}' % name)
            assert headers[b"date"].endswith(b" GMT")
            assert b"connection" not in headers
        writer.write(asking("c")[20:])
        assert (await read_one(reader))[2] == b'{"QueueUrls":["c"]}'


async def test_a_body_comes_in_any_pieces() -> None:
    whole = asking("q", more=b"connection: close\r\n")
    chunked = LIST + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
    async with serving() as served:
        one_by_one = [whole[i : i + 1] for i in range(len(whole))]
        assert (await served.answered(*one_by_one)).endswith(b'{"QueueUrls":["q"]}')
        assert statuses(await served.answered(chunked)) == [200]


async def test_headers_of_one_name_are_one_header() -> None:
    async with serving() as served:
        seen: list[Any] = []
        answer = served.server.door.answer

        async def recorded(*args: Any, **named: Any) -> Any:
            seen.append(args[3])
            return await answer(*args, **named)

        served.server.door.answer = recorded  # type: ignore[method-assign]
        await served.answered(request(more=b"x-a: 1\r\nX-A: 2\r\nconnection: close\r\n"))
    assert seen[0][b"x-a"] == b"1,2"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (LIST + b"content-length: %d\r\n\r\n" % (BODY_BYTES + 1), 413),
        (LIST + b"transfer-encoding: chunked\r\n\r\n" + b"%x\r\n" % (2 * BODY_BYTES) + b"x" * (BODY_BYTES + 1), 413),
        (LIST + b"x-a: " + b"a" * HEAD_BYTES + b"\r\n\r\n", 431),
        (b"GET /" + b"a" * HEAD_BYTES + b" HTTP/1.1\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\ncontent-length: " + b"9" * 5000 + b"\r\n\r\n", 400),
        (LIST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n", 400),
        (b"CONNECT localhost:22 HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", 400),
    ],
    ids=["length", "chunks", "head", "url", "tls", "negative", "endless", "smuggled", "connect"],
)
async def test_what_cannot_be_is_refused_and_its_connection_closed(sent: bytes, status: int) -> None:
    async with serving() as served:
        answer = await served.answered(sent)
        assert statuses(answer) == [status]
        assert b"\r\nconnection: close\r\n" in answer
        assert statuses(await served.answered(request(more=b"connection: close\r\n"))) == [200]


async def test_a_refusal_comes_after_the_answers_before_it() -> None:
    async with serving() as served:
        answer = await served.answered(asking("a") + asking("b") + b"\r\nnonsense\r\n\r\n")
    assert statuses(answer) == [200, 200, 400]


async def test_who_closes_is_closed() -> None:
    async with serving() as served:
        assert statuses(await served.answered(request(more=b"connection: close\r\n"))) == [200]
        assert statuses(await served.answered(request().replace(b"HTTP/1.1", b"HTTP/1.0"))) == [200]


async def test_who_asks_whether_to_go_on_is_told_so() -> None:
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(LIST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        async with asyncio.timeout(ANSWER_S):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await read_one(reader))[0] == 200


async def test_who_would_rather_speak_something_else_is_answered_as_ever() -> None:
    upgrade = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n"
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(asking("a", more=upgrade) + asking("b"))
        assert [(await read_one(reader))[2] for _ in range(2)] == [b'{"QueueUrls":["a"]}', b'{"QueueUrls":["b"]}']


async def test_a_verb_learns_that_its_client_is_gone_and_is_not_cancelled() -> None:
    found: list[bool] = []
    begun, gone = asyncio.Event(), asyncio.Event()

    async def verb(call: Call) -> dict[str, Any] | None:
        found.append(call.is_gone())
        begun.set()
        await eventually(call.is_gone)
        found.append(call.is_gone())
        gone.set()
        return {}

    async with serving(verb) as served:
        _, writer = await served.connect()
        writer.write(request())
        await begun.wait()
        writer.close()
        async with asyncio.timeout(ANSWER_S):
            await gone.wait()
        await eventually(lambda: not served.server.connections)
    assert found == [False, True]


async def test_a_client_that_leaves_before_its_request_is_whole_is_not_answered() -> None:
    async def verb(_: Call) -> dict[str, Any] | None:
        raise AssertionError

    async with serving(verb) as served:
        _, writer = await served.connect()
        writer.write(request()[:-1])
        await writer.drain()
        await eventually(lambda: len(served.server.connections) == 1)
        writer.close()
        await eventually(lambda: not served.server.connections)


@pytest.mark.parametrize(
    "begun",
    [LIST + b"x-a: ", LIST + b"x-", LIST + b"transfer-encoding: chunked\r\n\r\n0\r\nx-a: ", b""],
    ids=["a header", "a name", "a trailer", "nothing"],
)
async def test_what_has_no_end_is_refused_before_it_fills_our_memory(begun: bytes) -> None:
    """The parser keeps a header to itself until it is whole."""
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(begun)
        endless = (b"a" if begun else b"\r\n") * HEAD_BYTES
        async with asyncio.timeout(ANSWER_S):
            for _ in range(100):
                if served.server.connections and next(iter(served.server.connections))._is_refused:
                    break
                writer.write(endless)
                await writer.drain()
            assert (await read_one(reader))[0] == 431


async def test_the_answer_to_a_head_is_a_head() -> None:
    async with serving() as served:
        asked = b"HEAD /?Action=ListQueues HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        head, _, body = (await served.answered(asked)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and b"\r\ncontent-length: 0" not in head
    assert body == b""


async def test_hundreds_may_come_at_once() -> None:
    async with serving() as served:
        await asyncio.sleep(0)  # it listens
        # Nobody is accepted meanwhile.
        with contextlib.ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=0.9))


@pytest.mark.parametrize("sent", [b"", asking("a"), asking("a")[:-1]], ids=["nothing", "a request", "half a request"])
async def test_who_does_nothing_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    for name, seconds in {"IDLE_S": 0.2, "ARRIVES_WITHIN_S": 0.2, "_LOOK_S": 0.05}.items():
        monkeypatch.setattr(http, name, seconds)
    async with serving() as served:
        reader, writer = await served.connect()
        writer.write(sent)
        async with asyncio.timeout(ANSWER_S):
            with contextlib.suppress(ConnectionResetError):
                await reader.read()
        await eventually(lambda: not served.server.connections)


async def test_who_does_not_take_its_answers_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ARRIVES_WITHIN_S", 0.3)
    monkeypatch.setattr(http, "_LOOK_S", 0.05)

    async def verb(_: Call) -> dict[str, Any] | None:
        return {"QueueUrls": ["x" * 20_000_000]}

    async with serving(verb) as served:
        _, writer = await served.connect()
        writer.write(request() * 3)
        await eventually(lambda: len(served.server.connections) == 1)
        await eventually(lambda: not served.server.connections, within_s=ANSWER_S)


async def test_who_does_not_take_his_last_answer_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little enough of it may be left over that we are not told to pause."""
    monkeypatch.setattr(http, "ARRIVES_WITHIN_S", 0.3)
    monkeypatch.setattr(http, "_LOOK_S", 0.05)

    async def verb(_: Call) -> dict[str, Any] | None:
        for connection in served.server.connections:
            connection._transport.set_write_buffer_limits(high=100_000_000)
        return {"QueueUrls": ["x" * 20_000_000]}

    async with serving(verb) as served:
        _, writer = await served.connect()
        writer.write(request(more=b"connection: close\r\n"))
        await eventually(lambda: len(served.server.connections) == 1)
        await eventually(lambda: not served.server.connections, within_s=ANSWER_S)


async def test_a_verb_that_takes_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {"IDLE_S": 0.1, "ARRIVES_WITHIN_S": 0.1, "_LOOK_S": 0.02}.items():
        monkeypatch.setattr(http, name, seconds)

    async def verb(_: Call) -> dict[str, Any] | None:
        await asyncio.sleep(0.5)
        return {}

    async with serving(verb) as served:
        assert statuses(await served.answered(request(more=b"connection: close\r\n"))) == [200]


async def test_at_its_end_it_answers_what_is_being_answered_and_no_more() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def verb(call: Call) -> dict[str, Any] | None:
        begun.set()
        await go.wait()
        return await prefix(call)

    async with serving(verb) as served:
        idle, _ = await served.connect()
        busy, writer = await served.connect()
        writer.write(asking("a"))
        await begun.wait()
        served.server.stop()
        async with asyncio.timeout(ANSWER_S):
            assert await idle.read() == b""
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", served.port)
        go.set()
        async with asyncio.timeout(ANSWER_S):
            answer = await busy.read()
        assert statuses(answer) == [200]
        assert b"\r\nconnection: close\r\n" in answer


async def test_at_its_end_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STOP_WITHIN_S", 0.2)
    begun = asyncio.Event()

    async def verb(_: Call) -> dict[str, Any] | None:
        begun.set()
        await asyncio.sleep(5)
        return {}

    async with serving(verb) as served:
        _, writer = await served.connect()
        writer.write(request())
        await begun.wait()
    assert not served.server.connections


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([request(), LIST, b"\r\n", b"0\r\n\r\n"]))))
def test_no_bytes_are_our_failure(parts: list[bytes]) -> None:
    async def ask() -> None:
        async with serving() as served:
            _, writer = await served.connect()
            for part in parts:
                writer.write(part)
                await asyncio.sleep(0)
            writer.write_eof()
            await eventually(lambda: not served.server.connections)

    handler = BufferingHandler(capacity=100)
    handler.setLevel(logging.ERROR)
    logging.getLogger().addHandler(handler)
    try:
        asyncio.run(ask())
    finally:
        logging.getLogger().removeHandler(handler)
    assert [one.getMessage() for one in handler.buffer] == []
