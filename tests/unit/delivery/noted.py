"""Circuit breakers and an HTTP client that do as a test says, and note what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from fleet.delivery.breaker import PASS, Admit
from fleet.delivery.client import Transfer
from fleet.delivery.reply import Reply


class NotedBreakers:
    """`admits` is what they answer in turn, the last over and over."""

    def __init__(self, *admits: Admit) -> None:
        self.admits = list(admits or (PASS,))
        self.notes: list[str] = []
        self.questions: list[tuple[Callable[[], object], asyncio.TimerHandle]] = []

    def admit(self, origin: str, now_ms: float) -> Admit:
        self.notes.append(f"admit {origin}")
        return self.admits.pop(0) if len(self.admits) > 1 else self.admits[0]

    def record(self, origin: str, ok: bool, now_ms: float, *, probe: bool = False) -> None:
        self.notes.append(f"{'probe' if probe else 'request'} {'well' if ok else 'badly'}")

    def release(self, origin: str) -> None:
        self.notes.append("permit back")

    def ask(self, origin: str, decided: Callable[[], object]) -> asyncio.TimerHandle:
        self.notes.append(f"ask {origin}")
        handle = asyncio.get_running_loop().call_later(3600, decided)
        self.questions.append((decided, handle))
        return handle


class NotedTransfer(Transfer):
    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


class NotedClient:
    """What it was given to send; a test answers by calling `done`, or has an error raised instead."""

    def __init__(self) -> None:
        self.before_io: Callable[[], None] = lambda: None
        self.error: Exception | None = None
        self.sent: list[dict[str, Any]] = []
        self.transfers: list[NotedTransfer] = []

    def post(
        self, url: str, headers: list[str], body: bytes, *, timeout_ms: int, done: Callable[[Reply], None]
    ) -> Transfer:
        if self.error is not None:
            raise self.error
        self.sent.append({"url": url, "headers": headers, "body": body, "timeout_ms": timeout_ms, "done": done})
        self.transfers.append(NotedTransfer())
        return self.transfers[-1]

    def answer(self, reply: Reply) -> None:
        self.sent[-1]["done"](reply)
