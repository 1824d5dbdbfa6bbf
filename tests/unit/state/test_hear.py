from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from fleet.state.hear import hear


class Line:
    """Has so many messages already, and then none for as long as it is waited for."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.pings = 0

    async def get_message(self, timeout: float) -> dict[str, Any] | None:
        if self.left:
            self.left -= 1
            return {"type": "message", "channel": "c", "data": str(self.left)}
        await asyncio.sleep(timeout)
        return None

    async def ping(self) -> None:
        self.pings += 1


async def test_a_long_answer_leaves_the_loop_its_turns() -> None:
    line, heard, at_turns = Line(10_000), list[dict[str, Any]](), [0]

    async def others() -> None:
        while True:
            at_turns.append(len(heard))
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await hear(line, heard.append, ping_every_s=0.01)  # type: ignore[arg-type]
    task.cancel()
    assert len(heard) == 10_000
    assert line.pings == 1
    assert max(b - a for a, b in pairwise(at_turns)) <= 100
