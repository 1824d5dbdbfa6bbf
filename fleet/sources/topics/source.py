"""Reading a subscription for the router: its endpoints get what is published to the topic."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.broker.acks import decode
from fleet.broker.message import PulledMessage
from fleet.broker.push import Push
from fleet.errors import SourceUnavailable
from fleet.sources.base import Depth, Receipt, Received
from fleet.sources.own.polling import Polling
from fleet.sources.topics.address import Address
from fleet.sources.topics.broker import Connection, as_source_errors

MAX_DELAY_MS = 14 * 24 * 3600 * 1000


class SubscriptionSource(Polling):
    is_looked_into = False
    gives_few_groups = False
    crash_wait_ms = 0  # a subscription without ordering promises no order that could be kept by waiting

    def __init__(self, *, name: str, visibility_ms: int, redis_url: str) -> None:
        super().__init__(redis_url=redis_url)
        self.visibility_ms = visibility_ms
        # As far as we know before we have looked.
        self.holds_groups = self.shows_in_order = True
        self._uri = Address("subscription", name).uri
        self._name = name
        self._connection = Connection(uri=self._uri, redis_url=redis_url)
        self._push: Push | None = None
        self._has_carried = False

    async def open(self) -> None:
        async with self._connection.opening() as broker:
            push = broker.push(self._name)
            await self._look(push)
            self._client, self._push = broker.client, push

    async def _ask(self, most: int) -> tuple[list[Received], int | None]:
        if not most:
            return [], None
        with as_source_errors(self._uri):
            if not self._has_carried:
                # Who read it before us may have died between moving a dead letter and bringing it.
                await self._opened().carry()
                self._has_carried = True
            await self._look(self._opened())
            messages, due_ms = await self._opened().receive(most, self.visibility_ms)
        return [self._received(one) for one in messages], due_ms

    async def ack(self, receipts: Sequence[Receipt]) -> list[bool]:
        with as_source_errors(self._uri):
            return await self._opened().ack([one.handle for one in receipts])

    async def nack(self, receipts: Sequence[tuple[Receipt, int]]) -> list[bool]:
        with as_source_errors(self._uri):
            return await self._opened().nack([(one.handle, min(delay_ms, MAX_DELAY_MS)) for one, delay_ms in receipts])

    async def extend(self, receipts: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        with as_source_errors(self._uri):
            return await self._opened().extend([one.handle for one in receipts], visibility_ms)

    async def depth(self) -> Depth:
        with as_source_errors(self._uri):
            found = await self._opened().depths()
        # A dead letter on its way is of no use to us: it is not counted.
        return Depth(found.messages - found.hidden, found.hidden, found.oldest_ms / 1000)

    async def close(self) -> None:
        try:
            await self.give_back()
        finally:
            self._push = None
            await self._connection.close()

    @property
    def prefix(self) -> str:
        return self._push.prefix if self._push is not None else ""

    async def _look(self, push: Push) -> None:
        record = await push.look()
        self.holds_groups = self.shows_in_order = record.options.message_ordering

    def _opened(self) -> Push:
        if self._push is None:
            raise SourceUnavailable(f"{self._uri} is closed")
        return self._push

    def _received(self, message: PulledMessage) -> Received:
        # Without ordering a key is an attribute like others, and the body says the group.
        group = decode(message.ack_id).ordering_key or None
        return Received(message.id, message.ack_id, message.data, group, message.delivery_attempt)
