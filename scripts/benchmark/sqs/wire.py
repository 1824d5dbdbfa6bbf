"""Requests of AWS JSON as bytes, and connections that do as little as can be done with an answer.

A client that takes as long as its server measures itself. Nobody signs: the header is there because moto and ministack
read in it whose request it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_SIGNED = (
    "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host;x-amz-date, Signature=0"
)


def request(verb: str, parameters: Mapping[str, Any], *, host: str) -> bytes:
    body = encode(parameters)
    head = (
        f"POST / HTTP/1.1\r\nhost: {host}\r\nx-amz-target: AmazonSQS.{verb}\r\n"
        f"content-type: application/x-amz-json-1.0\r\nx-amz-date: 20260101T000000Z\r\n"
        f"authorization: {_SIGNED}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Line:
    """One request at a time. A server may close its connection after each answer; the next request opens another."""

    def __init__(self, host: str, port: int, on_answer: Callable[[int, bytes], None]) -> None:
        self._host = host
        self._port = port
        self._on_answer = on_answer
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[None] | None = None

    def ask(self, request: bytes) -> None:
        if self._connection is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect(request))
        else:
            self._connection.ask(request)

    async def _connect(self, request: bytes) -> None:
        try:
            loop = asyncio.get_running_loop()
            _, self._connection = await loop.create_connection(lambda: _Connection(self), self._host, self._port)
            self._connection.ask(request)
        except OSError as error:
            self.on_answer(0, str(error).encode(), is_last=True)

    def on_answer(self, status: int, body: bytes, *, is_last: bool) -> None:
        if is_last:
            self.close()
        self._on_answer(status, body)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _Connection(asyncio.Protocol):
    def __init__(self, line: Line) -> None:
        self._line = line
        self._got = b""
        self._is_asked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by their class

    def ask(self, request: bytes) -> None:
        self._is_asked = True
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        got = self._got = self._got + data if self._got else data
        end = got.find(b"\r\n\r\n")
        if end < 0:
            return
        head = got[:end].lower()
        begin = head.find(b"\r\ncontent-length:")
        assert begin >= 0, f"an answer without a length: {head[:200]!r}"
        stop = head.find(b"\r\n", begin + 2)
        length = int(head[begin + 17 : stop if stop >= 0 else end])
        if len(got) - end - 4 < length:
            return
        self._got = b""
        self._is_asked = False
        is_last = head.startswith(b"http/1.0") or b"\r\nconnection: close" in head
        self._line.on_answer(int(head[9:12]), got[end + 4 :], is_last=is_last)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._is_asked:
            self._line.on_answer(0, b"the connection was closed without an answer", is_last=True)

    def close(self) -> None:
        self._is_asked = False
        self._transport.close()


class Client:
    """Calls to await, for what is not measured."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self.host, self.port = parts.hostname, parts.port
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._line = Line(self.host, self.port, self._on_answer)

    async def call(self, verb: str, **parameters: Any) -> dict[str, Any]:
        self._answer = asyncio.get_running_loop().create_future()
        self._line.ask(self.request(verb, parameters))
        status, body = await self._answer
        if status != 200:
            raise SystemExit(f"{verb} answered {status}: {body[:200].decode(errors='replace')}")
        found: dict[str, Any] = decode(body) if body else {}
        return found

    def request(self, verb: str, parameters: Mapping[str, Any]) -> bytes:
        return request(verb, parameters, host=f"{self.host}:{self.port}")

    def close(self) -> None:
        self._line.close()

    def _on_answer(self, status: int, body: bytes) -> None:
        assert self._answer is not None
        self._answer.set_result((status, body))
