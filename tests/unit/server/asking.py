"""Requests to an ASGI application, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def document(self) -> Any:
        return json.loads(self.body)


async def ask(
    app: ASGIApp,
    method: str,
    path: str,
    *,
    body: bytes | list[bytes] = b"",
    query: str = "",
    host: str = "127.0.0.1:8420",
    ends: bool = True,
    into: Answer | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """`ends`: the body does; `into`: where the answer stays should the application raise after it."""
    answer = into or Answer()
    chunks = body if isinstance(body, list) else [body]
    incoming: list[Message] = [
        {"type": "http.request", "body": chunk, "more_body": not ends or i + 1 < len(chunks)}
        for i, chunk in enumerate(chunks)
    ]

    async def receive() -> Message:
        if incoming:
            return incoming.pop(0)
        if not ends:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    raw = [(b"host", host.encode()), *((n.encode(), v.encode()) for n, v in (headers or {}).items())]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "", "headers": raw,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8420), "state": {},
    }  # fmt: skip
    await app(scope, receive, send)
    return answer
