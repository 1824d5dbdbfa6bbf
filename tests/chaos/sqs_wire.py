"""A client of the SQS door that speaks AWS JSON on a socket: sixty of them cost less than one boto3."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any


class NoAnswer(Exception):
    """Nobody knows whether it was done."""


class Refused(Exception):
    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.type = str(body.get("__type", "")).partition("#")[2] or str(body.get("__type", ""))
        super().__init__(f"{status} {self.type}: {body.get('message', '')}")


class Wire:
    """One connection, to one of the doors; to another one once that fails."""

    def __init__(self, ports: list[int], dice: random.Random) -> None:
        self._ports = ports
        self._dice = dice
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, verb: str, params: dict[str, Any], *, within_s: float = 3.0) -> dict[str, Any]:
        """NoAnswer where the connection broke or a door says that it cannot; Refused for what it says no to."""
        try:
            async with asyncio.timeout(within_s):
                status, body = await self._ask(verb, params)
        except (OSError, EOFError, TimeoutError) as error:
            self.close()
            raise NoAnswer(repr(error)) from error
        if status >= 500:
            raise NoAnswer(f"{status} {body}")
        if status != 200:
            raise Refused(status, body)
        return body

    async def _ask(self, verb: str, params: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self._stream is None:
            self._stream = await asyncio.open_connection("127.0.0.1", self._dice.choice(self._ports))
        reader, writer = self._stream
        body = json.dumps(params).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.{verb}\r\n"
            f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in answer[1:] if line)
        content = await reader.readexactly(int(headers.get("content-length", "0")))
        if headers.get("connection") == "close":
            self.close()
        return int(answer[0].split()[1]), json.loads(content) if content else {}

    def close(self) -> None:
        if self._stream is not None:
            self._stream[1].transport.abort()
            self._stream = None
