"""Taking messages out of a queue of our own, and putting them in: over the Redis that holds the fleet's other state."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator, Sequence

from fleet.errors import (
    InvalidConfig,
    SourceError,
    SourceFull,
    SourceUnavailable,
    StateError,
    StateFull,
    StateUnavailable,
)
from fleet.message import MAX_NAME_CHARACTERS
from fleet.sources.base import Depth, Outgoing, Receipt, Received, never
from fleet.sources.halfway import told_half_way
from fleet.sources.own.address import uri_of
from fleet.sources.own.polling import Polling
from fleet.state.connect import Client, connect
from fleet.state.own_queue import Conclusion, NewMessage, OwnQueue, Shown, What
from fleet.state.registry import NEARLY_FULL, Registry

MAX_DELAY_MS = 14 * 24 * 3600 * 1000
_LOOK_MEMORY_S = 1.0
_BATCH, _BATCH_BYTES = 500, 1024 * 1024
_HANDLE = re.compile(r"f1\.([0-9]{1,20})\.([0-9]{1,10})\.(.*)", re.DOTALL)


class _Connection:
    """A connection to Redis, as an adapter needs it."""

    def __init__(self, *, name: str, redis_url: str) -> None:
        if not redis_url:
            raise InvalidConfig(f"{uri_of(name)} is kept in Redis: name one with --redis or FLEET_REDIS_URL")
        self._name = name
        self._url = redis_url
        self._client: Client | None = None

    async def open(self) -> Client:
        if self._client is None:
            with _as_source_errors(self._name):
                self._client = await connect(self._url)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.aclose()


class OwnSource(Polling):
    holds_groups = True
    shows_in_order = True
    is_looked_into = True
    gives_few_groups = False
    crash_wait_ms = 0

    def __init__(self, *, queue: str, visibility_ms: int, redis_url: str) -> None:
        super().__init__(redis_url=redis_url)
        self.visibility_ms = visibility_ms
        self._queue_name = queue
        self._connection = _Connection(name=queue, redis_url=redis_url)
        self.queue: OwnQueue | None = None

    async def open(self) -> None:
        self.attach(await self._connection.open())

    def attach(self, client: Client) -> None:
        """Use a connection that the caller opened and will close."""
        self._client, self.queue = client, OwnQueue(client, self._queue_name)

    async def ack(self, receipts: Sequence[Receipt]) -> list[bool]:
        return await self._conclude([(one, "delete", 0) for one in receipts])

    async def nack(self, receipts: Sequence[tuple[Receipt, int]]) -> list[bool]:
        return await self._conclude([(one, "show", min(delay_ms, MAX_DELAY_MS)) for one, delay_ms in receipts])

    async def extend(self, receipts: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        return await self._conclude([(one, "hide", visibility_ms) for one in receipts])

    async def depth(self) -> Depth:
        with _as_source_errors(self._queue_name):
            found = await self._opened().contents()
        return Depth(found.messages - found.hidden, found.hidden, found.oldest_ms / 1000)

    async def close(self) -> None:
        try:
            await self.give_back()
        finally:
            self.queue = None
            await self._connection.close()

    async def _ask(self, most: int) -> tuple[list[Received], int | None]:
        with _as_source_errors(self._queue_name):
            shown, due_ms = await self._opened().receive(most, visibility_ms=self.visibility_ms)
        return [_received(one) for one in shown], due_ms

    async def _conclude(self, receipts: Sequence[tuple[Receipt, What, int]]) -> list[bool]:
        flags = [False] * len(receipts)
        known: list[tuple[int, Conclusion]] = []
        for place, (one, what, ms) in enumerate(receipts):
            found = _HANDLE.fullmatch(one.handle)
            if found is not None:
                known.append((place, Conclusion(found[1], int(found[2]), found[3], what, ms)))
        for first in range(0, len(known), _BATCH):
            part = known[first : first + _BATCH]
            with _as_source_errors(self._queue_name):
                answers = await self._opened().conclude([conclusion for _, conclusion in part])
            for (place, _), answer in zip(part, answers, strict=True):
                flags[place] = answer
        return flags

    def _opened(self) -> OwnQueue:
        if self.queue is None:
            raise SourceUnavailable(f"queue {self._queue_name} is closed")
        return self.queue

    @property
    def prefix(self) -> str:
        return self._opened().keys.prefix


class OwnPublisher:
    def __init__(self, *, queue: str, redis_url: str) -> None:
        self._name = queue
        self._connection = _Connection(name=queue, redis_url=redis_url)
        self.queue: OwnQueue | None = None
        self._registry: Registry | None = None
        self._looked_at = float("-inf")

    async def open(self) -> None:
        client = await self._connection.open()
        self.attach(client)
        self._registry = Registry(client)

    def attach(self, client: Client) -> None:
        """Use a connection that the caller opened and will close. Watching Redis's memory is then the caller's job
        too."""
        self.queue = OwnQueue(client, self._name)

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        if self.queue is None:
            raise SourceUnavailable(f"queue {self._name} is closed")
        await self._check_memory()
        refusals: list[str | None] = [never(_refusal(message)) for message in messages]
        accepted: set[int] = set()
        for batch in _batches(messages, [place for place, refusal in enumerate(refusals) if refusal is None]):
            try:
                with _as_source_errors(self._name):
                    await self.queue.send([_new(messages[place]) for place in batch])
            except SourceError as error:
                return told_half_way(refusals, accepted=accepted, under_way=set(batch), error=error)
            accepted |= set(batch)
        return refusals

    async def close(self) -> None:
        self.queue = None
        await self._connection.close()

    async def _check_memory(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._registry is None or now - self._looked_at < _LOOK_MEMORY_S:
            return
        with _as_source_errors(self._name):
            share = await self._registry.memory_share()
        if share >= NEARLY_FULL:
            raise SourceFull(f"queue {self._name}: Redis is {share:.0%} full, nothing is added above {NEARLY_FULL:.0%}")
        self._looked_at = now


def _received(shown: Shown) -> Received:
    handle = f"f1.{shown.number}.{shown.count}.{shown.group}"
    return Received(shown.number, handle, shown.body, shown.group or None, shown.count)


def _refusal(message: Outgoing) -> str | None:
    for field, value in (("group", message.group), ("dedup id", message.dedup_id or message.id)):
        if value is not None and (len(value) > MAX_NAME_CHARACTERS or not value.isprintable()):
            return f"{field} is too long or unprintable"
    if not 0 <= message.delay_ms <= MAX_DELAY_MS:
        return f"delay must be from 0 to {MAX_DELAY_MS} ms"
    return None


def _new(message: Outgoing) -> NewMessage:
    # The message's own id, so that one whose answer got lost can be sent again.
    return NewMessage(message.body, message.group or "", message.dedup_id or message.id, message.delay_ms)


def _batches(messages: Sequence[Outgoing], places: Sequence[int]) -> Iterator[list[int]]:
    """What goes into one call, which takes all of it or nothing."""
    batch: list[int] = []
    size = 0
    for place in places:
        body_bytes = len(messages[place].body)
        if batch and (len(batch) == _BATCH or size + body_bytes > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(place)
        size += body_bytes
    if batch:
        yield batch


@contextlib.contextmanager
def _as_source_errors(name: str) -> Iterator[None]:
    try:
        yield
    except StateUnavailable as error:
        raise SourceUnavailable(f"queue {name}: {error}") from error
    except StateFull as error:
        raise SourceFull(f"queue {name}: {error}") from error
    except StateError as error:
        raise SourceError(f"queue {name}: {error}") from error
