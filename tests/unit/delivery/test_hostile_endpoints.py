"""Whatever an endpoint does, its request ends by the deadline, and says how."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import socket
import struct

import pytest

from fleet.delivery.client import HttpClient
from fleet.delivery.reply import MAX_REPLY_BODY_BYTES, Reply
from tests.unit.delivery.endpoints import Endpoint, Handler, answering, endpoint, on_uvloop, post
from tests.unit.delivery.test_client import OK, http_client, silent

DEADLINE_MS = 150
HEAD = b"HTTP/1.1 200 OK\r\n"


def pouring(start: bytes, *pieces: bytes) -> Handler:
    """Answer with a start, then with the pieces for ever, or until the client has gone."""

    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read_request(reader)
        writer.write(start)
        for piece in itertools.cycle(pieces):
            writer.write(piece)
            await writer.drain()

    return handle


def trickling(start: bytes, piece: bytes) -> Handler:
    """Answer with a start, then with a piece every 10 ms until the client has gone."""

    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read_request(reader)
        writer.write(start)
        while True:
            writer.write(piece)
            try:
                await asyncio.wait_for(reader.read(), 0.01)
            except TimeoutError:
                continue
            state.gone.set()
            return

    return handle


def breaking_off(answer: bytes, *, reset: bool) -> Handler:
    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read_request(reader)
        writer.write(answer)
        await writer.drain()
        if reset:
            linger_none = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_none)

    return handle


async def answer_of(handler: Handler, *, timeout_ms: int = 5000) -> Reply:
    async with endpoint(handler) as server:
        with http_client() as client:
            reply = await post(client, server.url, timeout_ms=timeout_ms)
            assert client.in_flight == 0
            return reply


async def answer_to(answer: bytes) -> Reply:
    return await answer_of(answering(answer))


@on_uvloop
async def test_an_endpoint_that_never_answers_is_left_at_the_deadline() -> None:
    async with endpoint(silent) as server:
        with http_client() as client:
            reply = await post(client, server.url, timeout_ms=DEADLINE_MS)
            assert (reply.status, reply.error) == (0, "TIMEOUT")
            assert DEADLINE_MS / 1000 <= reply.seconds < 2
            await server.gone.wait()


@pytest.mark.parametrize(
    "handler",
    [
        trickling(HEAD + b"Content-Length: 60000\r\n\r\n", b"x"),
        trickling(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        trickling(HEAD + b"X: ", b"x"),
        trickling(HEAD, b"X: 1\r\n"),
        trickling(b"HTTP/1.1 200 ", b"O"),
        trickling(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["body", "chunks", "one header", "headers", "status line", "interim replies"],
)
@on_uvloop
async def test_an_endpoint_that_trickles_is_left_at_the_deadline(handler: Handler) -> None:
    async with endpoint(handler) as server:
        with http_client() as client:
            reply = await post(client, server.url, timeout_ms=DEADLINE_MS)
            assert reply.error == "TIMEOUT"
            assert reply.seconds < 2
            await server.gone.wait()


@pytest.mark.parametrize("reset", [True, False], ids=["reset", "closed"])
@pytest.mark.parametrize(
    ("answer", "status"),
    [(b"", 0), (HEAD, 200), (HEAD + b"X: 1\r\n", 200), (HEAD + b"Content-Length: 10\r\n\r\n12345", 200)],
    ids=["before a byte", "after the status line", "in the head", "in the body"],
)
@on_uvloop
async def test_a_connection_that_breaks_off_is_a_reset(reset: bool, answer: bytes, status: int) -> None:
    reply = await answer_of(breaking_off(answer, reset=reset))
    assert reply.error == "RESET"
    assert reply.status in (0, status)  # a reset may overtake what was sent before it


@pytest.mark.parametrize(
    "handler",
    [
        pouring(HEAD, b"X: " + b"x" * 1000 + b"\r\n"),
        pouring(HEAD, b"x" * 1000),
        pouring(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        pouring(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"),
        pouring(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: 1\r\n"),
    ],
    ids=["headers", "one header", "100 Continue", "103 Early Hints", "trailers"],
)
@on_uvloop
async def test_endless_headers_end_the_transfer_long_before_the_deadline(handler: Handler) -> None:
    reply = await answer_of(handler, timeout_ms=9000)
    assert reply.error == "PROTOCOL"
    assert reply.seconds < 5


@pytest.mark.parametrize(
    "handler",
    [
        pouring(HEAD + b"Content-Length: 10000000000\r\n\r\n", b"x" * 65536),
        pouring(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n"),
        pouring(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1000),
        pouring(HEAD + b"\r\n", b"x" * 65536),
    ],
    ids=["10 GB", "chunked", "tiny chunks", "until the end"],
)
@on_uvloop
async def test_a_huge_body_ends_the_transfer_long_before_the_deadline(handler: Handler) -> None:
    reply = await answer_of(handler, timeout_ms=9000)
    assert (reply.status, reply.oversize, reply.error) == (200, True, None)
    assert len(reply.body) <= MAX_REPLY_BODY_BYTES
    assert reply.seconds < 5


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(("size", "oversize"), [(MAX_REPLY_BODY_BYTES, False), (MAX_REPLY_BODY_BYTES + 1, True)])
@on_uvloop
async def test_the_limit_of_a_body_is_exact(size: int, oversize: bool, chunked: bool) -> None:
    body = b"x" * size
    length = b"Content-Length: %d\r\n\r\n" % size + body
    chunk = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % size + body + b"\r\n0\r\n\r\n"
    reply = await answer_to(HEAD + (chunk if chunked else length))
    assert (reply.oversize, reply.error) == (oversize, None)
    assert oversize or reply.body == body


@on_uvloop
async def test_an_encoded_body_is_flagged_and_not_decoded() -> None:
    body = gzip.compress(b'{"ack":true}')
    reply = await answer_to(HEAD + b"CONTENT-ENCODING: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert (reply.encoded, reply.body) == (True, body)


@pytest.mark.parametrize(
    ("header", "encoded"),
    [
        (b"Content-Encoding: identity", False),
        (b"Content-Encoding:", False),
        (b"Content-Encoding: identity, br", True),
        (b"Content-Encoding: identity\r\ncontent-encoding: x-unknown", True),
        (b"X: content-encoding: gzip", False),
    ],
)
@on_uvloop
async def test_any_coding_but_identity_is_encoded(header: bytes, encoded: bool) -> None:
    reply = await answer_to(HEAD + header + b"\r\nContent-Length: 2\r\n\r\n{}")
    assert reply.encoded is encoded


@on_uvloop
async def test_the_encoding_of_one_reply_says_nothing_of_the_next() -> None:
    answers = iter([HEAD + b"Content-Encoding: br\r\nContent-Length: 2\r\n\r\n{}", OK])

    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await state.read_request(reader)
            writer.write(next(answers))

    async with endpoint(handle) as server:
        with http_client() as client:
            assert (await post(client, server.url)).encoded
            reply = await post(client, server.url)
            assert (reply.encoded, reply.body) == (False, b'{"ack":true}')


@on_uvloop
async def test_a_redirect_is_answered_and_not_followed() -> None:
    async with endpoint(answering(OK)) as other:
        location = other.url.encode()
        reply = await answer_to(b"HTTP/1.1 307 Go\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n")
        assert (reply.status, reply.error, other.connections) == (307, None, 0)


@on_uvloop
async def test_interim_replies_are_not_the_answer() -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nFleet-Fenced: 1\r\nRetry-After: 7\r\n\r\n"
    reply = await answer_to(interim + b"HTTP/1.1 412 No\r\nContent-Length: 0\r\n\r\n")
    assert (reply.status, reply.fenced, reply.retry_after) == (412, False, None)
    assert (await answer_to(interim + OK)).body == b'{"ack":true}'


@on_uvloop
async def test_trailers_are_not_headers() -> None:
    reply = await answer_to(
        b"HTTP/1.1 412 No\r\nTransfer-Encoding: chunked\r\nTrailer: Fleet-Fenced\r\n\r\n0\r\nFleet-Fenced: 1\r\n\r\n"
    )
    assert (reply.status, reply.fenced) == (412, False)


@on_uvloop
async def test_a_fenced_reply_and_a_retry_after_are_read() -> None:
    fenced = await answer_to(b"HTTP/1.1 412 No\r\nfleet-fenced:1\r\nContent-Length: 0\r\n\r\n")
    assert (fenced.status, fenced.fenced) == (412, True)
    throttled = await answer_to(b"HTTP/1.1 429 Slow\r\nRETRY-AFTER:  17 \r\nContent-Length: 0\r\n\r\n")
    assert (throttled.status, throttled.retry_after) == (429, "17")


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/9.9 200 OK\r\n\r\n", b"\x00" * 100])
@on_uvloop
async def test_what_is_no_http_is_a_protocol_error(answer: bytes) -> None:
    assert (await answer_of(breaking_off(answer, reset=False))).error == "PROTOCOL"


@on_uvloop
async def test_a_port_that_nobody_listens_on_is_refused() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with http_client() as client:
            reply = await post(client, f"http://127.0.0.1:{unused.getsockname()[1]}/")
            assert (reply.status, reply.error) == (0, "REFUSED")


@on_uvloop
async def test_a_name_without_an_address_is_unresolved() -> None:
    with http_client() as client:
        # A label of 64 characters is refused by the resolver itself, without asking a server.
        assert (await post(client, f"http://{'a' * 64}.invalid/")).error == "UNRESOLVED"


@pytest.mark.parametrize(("connect_ms", "total_ms"), [(DEADLINE_MS, 9000), (9000, DEADLINE_MS)])
@on_uvloop
async def test_a_connection_that_never_stands_ends_at_the_first_of_both_deadlines(
    connect_ms: int, total_ms: int
) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        with http_client(connect_timeout_ms=connect_ms) as client:
            reply = await post(client, f"http://127.0.0.1:{full.getsockname()[1]}/", timeout_ms=total_ms)
            assert (reply.error, reply.seconds < 3) == ("CONNECT_TIMEOUT", True)
        for filler in fillers:
            filler.close()


@on_uvloop
async def test_a_tls_handshake_that_never_ends_is_a_connect_timeout() -> None:
    async def mute(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(4096):
            pass

    async with endpoint(mute) as server:
        with http_client(connect_timeout_ms=DEADLINE_MS) as client:
            reply = await post(client, f"https://127.0.0.1:{server.port}/")
            assert (reply.error, reply.seconds < 3) == ("CONNECT_TIMEOUT", True)


@on_uvloop
async def test_one_silent_endpoint_holds_up_no_other() -> None:
    async with endpoint(silent) as slow, endpoint(answering(OK)) as quick:
        with http_client() as client:
            waiting = [
                asyncio.ensure_future(post(client, slow.url, timeout_ms=DEADLINE_MS * (1 + n % 3))) for n in range(20)
            ]
            for _ in range(50):
                assert (await post(client, quick.url)).status == 200
            replies = await asyncio.gather(*waiting)
            assert {reply.error for reply in replies} == {"TIMEOUT"}
            assert all(reply.seconds >= DEADLINE_MS * (1 + n % 3) / 1000 for n, reply in enumerate(replies))
            assert isinstance(client, HttpClient) and client.in_flight == 0


@on_uvloop
async def test_headers_are_bounded_at_64_kib_each_reply_for_itself() -> None:
    line = b"X: " + b"x" * 1019 + b"\r\n"  # 1 KiB
    with http_client() as client:
        async with endpoint(answering(HEAD + line * 63 + b"Content-Length: 0\r\n\r\n")) as server:
            for _ in range(5):
                reply = await post(client, server.url)
                assert (reply.status, reply.error) == (200, None)
        async with endpoint(answering(HEAD + line * 64 + b"Content-Length: 0\r\n\r\n")) as server:
            reply = await post(client, server.url)
            assert reply.error == "PROTOCOL" and "65536" in reply.detail
