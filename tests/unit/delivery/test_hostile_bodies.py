"""Bodies too large as they are, or once unpacked: none is read to its end, none is an ack, no slot stays taken."""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from contextlib import AsyncExitStack

import pytest

from fleet.delivery.classify import classify
from fleet.delivery.reply import MAX_REPLY_BODY_BYTES
from fleet.outcome import Delivered, Failed
from tests.unit.delivery.endpoints import Endpoint, answering, endpoint, on_uvloop, post
from tests.unit.delivery.test_client import OK, http_client, silent
from tests.unit.delivery.test_hostile_endpoints import HEAD, answer_of, answer_to, breaking_off, pouring, trickling


@on_uvloop
async def test_of_ten_gigabytes_next_to_nothing_is_read() -> None:
    sent = 0

    async def handle(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await state.read_request(reader)
        writer.write(HEAD + b"Content-Length: 10000000000\r\n\r\n")
        while sent < 10_000_000_000:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with endpoint(handle) as server:
        with http_client() as client:
            reply = await post(client, server.url, timeout_ms=9000)
            assert reply.oversize and client.in_flight == 0
            await server.gone.wait()
            assert isinstance(classify(reply), Failed)
    assert sent < 50_000_000  # what the kernel's buffers hold


def bomb(megabytes: int) -> bytes:
    """Zeros, compressed a thousandfold; they begin like an acknowledgement."""
    packer = zlib.compressobj(9, wbits=31)
    packed = packer.compress(b'{"ack":true}')
    return packed + b"".join(packer.compress(bytes(1 << 20)) for _ in range(megabytes)) + packer.flush()


@pytest.mark.parametrize("chunked", [True, False])
@pytest.mark.parametrize(("megabytes", "oversize"), [(32, False), (256, True)])
@on_uvloop
async def test_a_gzip_bomb_is_never_unpacked_and_never_an_ack(megabytes: int, oversize: bool, chunked: bool) -> None:
    packed = bomb(megabytes)
    assert (len(packed) > MAX_REPLY_BODY_BYTES) is oversize
    length = b"Content-Length: %d\r\n\r\n" % len(packed) + packed
    chunks = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(packed) + packed + b"\r\n0\r\n\r\n"
    tracemalloc.start()
    try:
        reply = await answer_to(HEAD + b"Content-Encoding: gzip\r\n" + (chunks if chunked else length))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (reply.encoded, reply.oversize) == (True, oversize)
    assert reply.body == packed[: len(reply.body)] and len(reply.body) <= MAX_REPLY_BODY_BYTES
    assert oversize or reply.body == packed
    assert peak_bytes < 5_000_000
    assert isinstance(classify(reply), Failed)


@on_uvloop
async def test_a_gzip_stream_without_end_ends_the_transfer_long_before_the_deadline() -> None:
    head = HEAD + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    packed = bomb(8)
    reply = await answer_of(pouring(head, b"%x\r\n" % len(packed) + packed + b"\r\n"), timeout_ms=9000)
    assert (reply.encoded, reply.oversize, reply.seconds < 5) == (True, True, True)


@on_uvloop
async def test_no_encoding_is_asked_for() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            await post(client, server.url)
        assert b"accept-encoding" not in server.requests[0].lower()


@on_uvloop
async def test_whatever_endpoints_do_together_every_slot_is_free_at_the_deadline() -> None:
    """The slowest of each kind, twenty times each, on one client."""
    kinds = [
        silent,
        trickling(HEAD + b"Content-Length: 60000\r\n\r\n", b"x"),
        trickling(HEAD, b"X: 1\r\n"),
        trickling(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        trickling(HEAD + b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        breaking_off(HEAD + b"Content-Length: 10\r\n\r\n12345", reset=True),
        pouring(HEAD, b"X: " + b"x" * 1000 + b"\r\n"),
        pouring(HEAD + b"Content-Length: 10000000000\r\n\r\n", b"x" * 65536),
    ]
    deadline_ms = 1000
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(endpoint(kind)) for kind in kinds]
        with http_client() as client:
            asked = [post(client, server.url, timeout_ms=deadline_ms) for server in servers for _ in range(20)]
            replies = await asyncio.gather(*asked)
            assert client.in_flight == 0
        assert max(reply.seconds for reply in replies) < deadline_ms / 1000 + 1
        assert not any(isinstance(classify(reply), Delivered) for reply in replies)
