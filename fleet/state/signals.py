"""What Redis tells us without being asked: work, room, outcomes, changes. A lost signal costs time, never work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from fleet.errors import StateError, StateUnavailable
from fleet.state.connect import Client, subscribe_connection, translated
from fleet.state.connections import Connections, renew

PING_EVERY_S = 2.5
"""Of silence. A second one without an answer, and the line is dead: some in between drop what idles without a word."""
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
        ping_every_s: float = PING_EVERY_S,
    ) -> None:
        self._client = client
        self._url = url
        self._handlers = dict(handlers)
        self._on_subscribed = on_subscribed
        self._ping_every_s = ping_every_s
        self._lost = ""
        """The node of a Cluster that was silent: another one is heard next."""

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except StateError:
                await asyncio.sleep(_RETRY_S)

    async def _listen(self) -> None:
        connection = await subscribe_connection(self._client, self._url, but=self._lost)
        self._lost = _address_of(connection)
        pubsub = connection.pubsub()
        try:
            with translated():
                async with asyncio.timeout(None) as patience:
                    # A server that turned out to be the wrong one goes on answering pings.
                    with _ended_by_a_failover(connection, patience):
                        await pubsub.subscribe(*self._handlers)
                        await self._hear(pubsub)
        finally:
            await pubsub.aclose()  # type: ignore[no-untyped-call]
            if connection is not self._client:
                await connection.aclose()

    async def _hear(self, pubsub: PubSub) -> None:
        waiting = len(self._handlers)
        asked = False
        while True:
            message = await pubsub.get_message(timeout=self._ping_every_s)
            if message is None:
                if asked:
                    # Whatever drops this line without a word has dropped the others too.
                    renew(pubsub.connection_pool)
                    raise StateUnavailable("Redis is silent")
                await pubsub.ping()
            elif message["type"] == "message":
                self._handlers[message["channel"]](message["data"])
            elif message["type"] == "subscribe":
                waiting -= 1
                if waiting == 0:
                    self._on_subscribed()
            asked = message is None


@contextmanager
def _ended_by_a_failover(connection: Redis, patience: asyncio.Timeout) -> Iterator[None]:
    pool = connection.connection_pool
    if not isinstance(pool, Connections):
        yield
        return
    loop = asyncio.get_running_loop()

    def end() -> None:
        patience.reschedule(loop.time())

    pool.on_renewed.add(end)
    try:
        yield
    finally:
        pool.on_renewed.discard(end)


def _address_of(connection: Redis) -> str:
    where = connection.connection_pool.connection_kwargs
    return f"{where.get('host')}:{where.get('port')}"
