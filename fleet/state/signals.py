"""What Redis tells us without being asked: work, room, outcomes, changes. A lost signal costs time, never work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from fleet.errors import StateError
from fleet.state.connect import Client, subscribe_connection, translated

_PING_EVERY_S = 10.0
_RETRY_S = 0.25


class Signals:
    """Calls a handler for each message of a channel, and `on_subscribed` whenever messages may have been missed."""

    def __init__(
        self,
        *,
        client: Client,
        url: str,
        handlers: Mapping[str, Callable[[str], None]],
        on_subscribed: Callable[[], None],
    ) -> None:
        self._client = client
        self._url = url
        self._handlers = dict(handlers)
        self._on_subscribed = on_subscribed

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except StateError:
                await asyncio.sleep(_RETRY_S)

    async def _listen(self) -> None:
        connection = await subscribe_connection(self._client, self._url)
        pubsub = connection.pubsub()
        waiting = len(self._handlers)
        try:
            with translated():
                await pubsub.subscribe(*self._handlers)
                while True:
                    message = await pubsub.get_message(timeout=_PING_EVERY_S)
                    if message is None:
                        await pubsub.ping()
                    elif message["type"] == "message":
                        self._handlers[message["channel"]](message["data"])
                    elif message["type"] == "subscribe":
                        waiting -= 1
                        if waiting == 0:
                            self._on_subscribed()
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]
            if connection is not self._client:
                await connection.aclose()
