"""What a server says without being asked, on a line that is pinged while nothing comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from redis.asyncio.client import PubSub

PING_EVERY_S = 2.5
"""Of silence. A second one without an answer, and the line is dead: some in between drop what idles without a word."""
_AT_ONCE = 20
"""What is there already is read without a turn of the loop: ten thousand answers to a subscription at a stretch, and
each may begin a look at its pool."""


async def hear(pubsub: PubSub, each: Callable[[dict[str, Any]], None], *, ping_every_s: float = PING_EVERY_S) -> None:
    """Tell `each` what comes. Returns when the line is dead."""
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
