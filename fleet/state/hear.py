"""What a server says without being asked, on a line that is pinged while nothing comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redis import exceptions
from redis.asyncio.client import PubSub

PING_EVERY_S = 2.5
"""After this much silence we ping. After as much again without an answer the line is dead: some devices on the way drop
idle lines without a word."""
_AT_ONCE = 20
"""Messages read for each turn of the loop. Those that are there already take none by themselves: a subscription may
bring ten thousand answers at a stretch, and each may begin a look at its pool."""


class Line(PubSub):
    """A subscription whose line is over once it is broken: whoever hears makes another.

    redis-py connects it anew under whoever meets the break. Of two who do, one says what is to be heard and one hears,
    each reads the other's answers.
    """

    async def connect(self) -> None:
        self._check()
        await super().connect()  # type: ignore[no-untyped-call]

    async def parse_response(self, block: bool = True, timeout: float = 0) -> Any:
        self._check()
        return await super().parse_response(block, timeout)

    async def _reconnect(self, *_: Any, **__: Any) -> None:
        raise exceptions.ConnectionError("the line is broken")

    def _check(self) -> None:
        connection: Any = self.connection
        if connection is not None and not connection.is_connected:
            raise exceptions.ConnectionError("the line is broken")


async def hear(pubsub: PubSub, each: Callable[[dict[str, Any]], None], *, ping_every_s: float = PING_EVERY_S) -> None:
    """Call `each` with what comes. Returns when the line is dead."""
    asked, heard = False, 0
    while True:
        heard += 1
        if heard % _AT_ONCE == 0:
            await asyncio.sleep(0)
        message = await pubsub.get_message(timeout=ping_every_s)
        if message is not None:
            each(message)
        elif asked:
            return
        else:
            await pubsub.ping()
        asked = message is None
