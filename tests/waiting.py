"""Waiting for what nothing tells of: a fact about another process or a server, or that time has passed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE_S = 30.0

AnswerT = TypeVar("AnswerT")


def until(
    fact: Callable[[], bool],
    within_s: float = PATIENCE_S,
    why: Callable[[], str] = lambda: "",
    *,
    every_s: float = 0.02,
) -> None:
    """Blocks. `why` says what stands in the way, should it not come true."""
    deadline = time.monotonic() + within_s
    while True:
        asked_s = time.monotonic()
        if fact():
            return
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {why()}"
        # No longer asked than waited: what is asked by a command takes time from those that work.
        time.sleep(max(every_s, time.monotonic() - asked_s))


async def eventually(
    fact: Callable[[], bool | Awaitable[bool]], *, within_s: float = PATIENCE_S, every_s: float = 0.005
) -> None:
    async with asyncio.timeout(within_s):
        while True:
            found = fact()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(every_s)


async def answered(
    ask: Callable[[], Awaitable[AnswerT]], unless: type[Exception], *, within_s: float = PATIENCE_S
) -> AnswerT:
    """The first answer, of one that cannot be asked just now."""
    async with asyncio.timeout(within_s):
        while True:
            try:
                return await ask()
            except unless:
                await asyncio.sleep(0.02)


def let_pass(seconds: float) -> None:
    """As long as a fault is to last, or a lease to lapse: it is time itself that is waited for."""
    time.sleep(max(0.0, seconds))
