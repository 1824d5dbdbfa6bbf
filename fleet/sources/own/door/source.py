"""Taking messages out of a queue of the SQS door, and putting them in, as with a queue of our own."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.base import Depth, Outgoing, Receipt, Received, never
from fleet.sources.halfway import told_half_way
from fleet.sources.own.door.address import DoorAddress
from fleet.sources.own.door.queue import DoorQueue, Shown
from fleet.sources.own.source import OwnPublisher, OwnSource
from fleet.sources.sqs.entry import HELD_UP, QueueFacts, refusal, size_bytes
from fleet.state.connect import Client
from fleet.state.engine import Verdict
from fleet.state.own_queue import What

Close = Callable[[], Awaitable[None]]
_BATCH, _BATCH_BYTES = 500, 1024 * 1024
_HANDLE = re.compile(r"s1\.([0-9]{1,20})\.([0-9]{1,10})\.(.*)", re.DOTALL)


class _Door:
    """The queue at the door, from when it is open until it is closed."""

    def __init__(self, address: DoorAddress) -> None:
        self._address = address
        self._queue: DoorQueue | None = None

    def attach(self, client: Client) -> None:
        self._queue = DoorQueue(client, self._address)

    @property
    def queue(self) -> DoorQueue:
        if self._queue is None:
            raise SourceUnavailable(f"queue {self._address.uri} is closed")
        return self._queue

    async def check(self, close: Close) -> None:
        """SourceError if there is no such queue; then nothing stays open."""
        try:
            await self.queue.facts()
        except BaseException:
            await close()
            raise

    async def close(self, close: Close) -> None:
        """`close`: what is behind it, which may still give back what was taken."""
        try:
            if self._queue is not None:
                await self._queue.close()
        finally:
            await close()
            self._queue = None


class DoorSource(OwnSource):
    """Waits as a queue of our own does; only what it asks is another queue."""

    def __init__(self, *, address: DoorAddress, visibility_ms: int, redis_url: str) -> None:
        super().__init__(queue=f"sqs/{address.queue}", visibility_ms=visibility_ms, redis_url=redis_url)
        self._door = _Door(address)
        self.holds_groups = self.shows_in_order = address.is_fifo

    async def open(self) -> None:
        await super().open()
        await self._door.check(self.close)

    def attach(self, client: Client) -> None:
        self._client = client
        self._door.attach(client)

    async def depth(self) -> Depth:
        return await self._door.queue.depth()

    async def close(self) -> None:
        await self._door.close(super().close)

    async def _ask(self, most: int) -> tuple[list[Received], int | None]:
        shown, due_ms = await self._door.queue.receive(most, visibility_ms=self.visibility_ms)
        return [_received(one) for one in shown], due_ms

    async def _conclude(self, receipts: Sequence[tuple[Receipt, What, int]]) -> list[bool]:
        flags = [False] * len(receipts)
        known: list[tuple[int, Verdict]] = []
        for place, (one, what, ms) in enumerate(receipts):
            found = _HANDLE.fullmatch(one.handle)
            if found is not None:
                verb = "d" if what == "delete" else f"{what[0]}{ms}"
                known.append((place, Verdict(found[1], int(found[2]), found[3], verb)))
        for first in range(0, len(known), _BATCH):
            part = known[first : first + _BATCH]
            answers = await self._door.queue.conclude([verdict for _, verdict in part])
            for (place, _), answer in zip(part, answers, strict=True):
                flags[place] = answer
        return flags

    def _on_signal(self, prefix: str) -> None:
        if self._door.queue.is_ours(prefix):
            self._shows.set()


class DoorPublisher(OwnPublisher):
    """Takes what SQS takes. As at SQS, what is behind a refused message of its FIFO group is not sent."""

    def __init__(self, *, address: DoorAddress, redis_url: str) -> None:
        super().__init__(queue=f"sqs/{address.queue}", redis_url=redis_url)
        self._door = _Door(address)

    async def open(self) -> None:
        await super().open()
        await self._door.check(self.close)

    def attach(self, client: Client) -> None:
        self._door.attach(client)

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        door = self._door.queue
        await self._check_memory()
        facts = await door.facts()
        answers = _refusals(messages, facts)
        accepted: set[int] = set()
        for batch in _batches(messages, [place for place, answer in enumerate(answers) if answer is None]):
            try:
                await door.send([messages[place] for place in batch])
            except SourceError as error:
                return told_half_way(answers, accepted=accepted, under_way=set(batch), error=error)
            accepted |= set(batch)
        return answers

    async def close(self) -> None:
        await self._door.close(super().close)


def _received(shown: Shown) -> Received:
    handle = f"s1.{shown.number}.{shown.times}.{shown.lane}"
    return Received(shown.broker_id, handle, shown.body, shown.group, shown.times)


def _refusals(messages: Sequence[Outgoing], facts: QueueFacts) -> list[str | None]:
    answers: list[str | None] = []
    stopped: set[str] = set()
    for one in messages:
        answer: str | None = never(refusal(one, facts))
        if answer is None and one.group in stopped:
            answer = HELD_UP
        if answer is not None and one.group and facts.is_fifo:
            stopped.add(one.group)
        answers.append(answer)
    return answers


def _batches(messages: Sequence[Outgoing], places: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for place in places:
        more = size_bytes(messages[place])
        if batch and (len(batch) == _BATCH or size + more > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(place)
        size += more
    if batch:
        yield batch
