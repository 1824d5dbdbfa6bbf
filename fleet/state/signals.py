"""What Redis tells us without being asked: work, room, outcomes, changes. A lost signal costs time, never work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from fleet.errors import StateError, StateUnavailable
from fleet.state.connect import Client, subscribe_connection, translated
from fleet.state.connections import Connections, renew
from fleet.state.hear import PING_EVERY_S, hear

_RETRY_S = 0.25
_AT_ONCE = 500


class Signals:
    """Calls a handler for each message of a channel, and `on_subscribed` whenever messages may have been missed.

    Besides these there may be channels under one `prefix`, which come and go by `follow`: `on_prefixed` is called with
    what stands behind the prefix, and a message, or None where one may have been missed.
    """

    def __init__(
        self,
        *,
        client: Client,
        url: str,
        handlers: Mapping[str, Callable[[str], None]],
        on_subscribed: Callable[[], None],
        prefix: str = "",
        on_prefixed: Callable[[str, str | None], None] | None = None,
        ping_every_s: float = PING_EVERY_S,
    ) -> None:
        self._client = client
        self._url = url
        self._handlers = dict(handlers)
        self._on_subscribed = on_subscribed
        self._ping_every_s = ping_every_s
        self._prefix = prefix
        self._on_prefixed = on_prefixed
        self._followed: set[str] = set()
        self._pubsub: PubSub | None = None
        self._lost = ""
        """The node of a Cluster that was silent: we listen to another one next."""

    async def run(self) -> None:
        while True:
            try:
                await self._listen()
            except StateError:
                await asyncio.sleep(_RETRY_S)

    async def follow(self, names: set[str]) -> None:
        """Hear these channels under the prefix from now on, and no others."""
        new, over = names - self._followed, self._followed - names
        self._followed = set(names)
        if self._pubsub is None:
            return  # there is no line: the next one begins with these, or hears of them right after
        try:
            with translated():
                await self._change(self._pubsub, new, over)
        except StateError:
            return  # the line is lost, and with the next one all is subscribed to anew

    async def _change(self, pubsub: PubSub, new: set[str], over: set[str]) -> None:
        await self._subscribe(pubsub, sorted(self._prefix + name for name in new))
        if over:
            await pubsub.unsubscribe(*sorted(self._prefix + name for name in over))

    async def _subscribe(self, pubsub: PubSub, channels: Sequence[str]) -> None:
        for first in range(0, len(channels), _AT_ONCE):
            await pubsub.subscribe(*channels[first : first + _AT_ONCE])
            if first + _AT_ONCE < len(channels):
                await asyncio.sleep(0)  # what the line takes at once is sent without a turn of the loop

    async def _listen(self) -> None:
        connection = await subscribe_connection(self._client, self._url, but=self._lost)
        self._lost = _address_of(connection)
        pubsub = connection.pubsub()
        try:
            with translated():
                async with asyncio.timeout(None) as patience:
                    # A server that turned out to be the wrong one goes on answering pings.
                    with _ended_by_a_failover(connection, patience):
                        sent = set(self._followed)
                        await self._subscribe(pubsub, [*self._handlers, *map(self._prefix.__add__, sent)])
                        self._pubsub = pubsub
                        # From here on `follow` changes the line itself. Before that, it may have named others.
                        await self._change(pubsub, self._followed - sent, sent - self._followed)
                        await self._hear(pubsub)
        finally:
            self._pubsub = None
            await pubsub.aclose()  # type: ignore[no-untyped-call]
            if connection is not self._client:
                await connection.aclose()

    async def _hear(self, pubsub: PubSub) -> None:
        waiting = len(self._handlers)

        def each(message: dict[str, Any]) -> None:
            nonlocal waiting
            if message["channel"] not in self._handlers:
                self._hear_prefixed(message)
            elif message["type"] == "message":
                self._handlers[message["channel"]](message["data"])
            elif message["type"] == "subscribe":
                waiting -= 1
                if waiting == 0:
                    self._on_subscribed()

        await hear(pubsub, each, ping_every_s=self._ping_every_s)
        # Whatever drops this line without a word has dropped the others too.
        renew(pubsub.connection_pool)
        raise StateUnavailable("Redis is silent")

    def _hear_prefixed(self, message: dict[str, Any]) -> None:
        name = str(message["channel"]).removeprefix(self._prefix)
        # Messages of a channel that is no longer followed may still be on the line.
        if self._on_prefixed is not None and name in self._followed and message["type"] in ("message", "subscribe"):
            self._on_prefixed(name, message["data"] if message["type"] == "message" else None)


@contextmanager
def _ended_by_a_failover(connection: Redis, patience: asyncio.Timeout) -> Iterator[None]:
    pool = connection.connection_pool
    if not isinstance(pool, Connections):
        yield
        return
    loop = asyncio.get_running_loop()

    def end() -> None:
        # Called again before we noticed: a timeout that has expired cannot be moved.
        if not patience.expired():
            patience.reschedule(loop.time())

    pool.on_renewed.add(end)
    try:
        yield
    finally:
        pool.on_renewed.discard(end)


def _address_of(connection: Redis) -> str:
    where = connection.connection_pool.connection_kwargs
    return f"{where.get('host')}:{where.get('port')}"
