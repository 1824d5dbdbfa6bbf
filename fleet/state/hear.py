"""What a server says without being asked, on a line that is pinged while nothing comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis.asyncio.client import PubSub

PING_EVERY_S = 2.5
"""Of silence. A second one without an answer, and the line is dead: some in between drop what idles without a word."""


async def hear(pubsub: PubSub, each: Callable[[dict[str, Any]], None], *, ping_every_s: float = PING_EVERY_S) -> None:
    """Tell `each` what comes. Returns when the line is dead."""
    asked = False
    while True:
        message = await pubsub.get_message(timeout=ping_every_s)
        if message is not None:
            each(message)
        elif asked:
            return
        else:
            await pubsub.ping()
        asked = message is None
