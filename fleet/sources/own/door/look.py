"""Looking into a queue of the SQS door: read-only, as into a queue of our own."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fleet.broker.sqs.catalogue import PREFIX, Queue, Queues
from fleet.broker.sqs.stored import Header, unpack
from fleet.errors import InvalidMessage
from fleet.message import Message, decode
from fleet.sources.adapter import AtSource
from fleet.sources.own.door.address import DoorAddress
from fleet.sources.own.door.queue import as_source_errors, group_of, id_of
from fleet.state.connect import Client, translated
from fleet.state.engine import every_body
from fleet.state.keys import OwnQueueKeys
from fleet.state.own_queue import OwnQueue, Standing
from fleet.state.scripts import SEP


async def find(client: Client, address: DoorAddress, subject: str) -> AtSource | None:
    """A message by its id or its MessageId, else the oldest of a group."""
    queue = await _queue(client, address)
    for partition in _partitions(client, queue):
        async for number, stored in every_body(client, partition.keys):
            header, body = unpack(stored)
            is_it = subject == partition.id_of(number, header)
            if is_it or (subject in body and _id_of(body) == subject):
                return await partition.at_source(number, header, body)
    group = _partitions(client, queue)[queue.attributes.partition_of(subject)]
    head = await group.head_of(subject)
    stored_head = await group.stored(head) if head is not None else None
    return await group.at_source(head, *unpack(stored_head)) if head is not None and stored_head is not None else None


async def bodies(client: Client, address: DoorAddress, most: int, most_bytes: int) -> AsyncIterator[tuple[str, bytes]]:
    """In no particular order, page by page."""
    queue = await _queue(client, address)
    for partition in _partitions(client, queue):
        async for number, stored in every_body(client, partition.keys):
            header, text = unpack(stored)
            body = text.encode()
            yield partition.id_of(number, header), body
            most, most_bytes = most - 1, most_bytes - len(body)
            if most <= 0 or most_bytes <= 0:
                return


async def _queue(client: Client, address: DoorAddress) -> Queue:
    async def known(queue: Queue) -> Queue:
        return queue

    with as_source_errors(address):
        return await Queues(client).use(address.queue, known)


class _Partition(OwnQueue):
    """One partition: its lists and times stand as those of a queue of the router do."""

    def __init__(self, client: Client, queue: Queue, partition: int) -> None:
        super().__init__(client, queue.name)
        self.keys = OwnQueueKeys(PREFIX + queue.name, partition)
        self._queue = queue
        self._partition = partition

    def id_of(self, number: str, header: Header) -> str:
        return header.id or id_of(self._queue, self._partition, number)

    async def stored(self, number: str) -> str | None:
        with translated():
            found: str | None = await self.client.hget(self.keys.bodies, number)
        return found

    async def standing(self, number: str) -> Standing:
        attributes = self._queue.attributes
        with translated():
            until_ms = await self.client.zscore(self.keys.hidden, number)
            noted = await self.client.hget(self.keys.shown, number)
        count = (noted or "0").partition(SEP)[0]
        if until_ms is None:
            # An ordered queue asks for its delay with each receive.
            delay_ms = attributes.delay_s * 1000 if attributes.fifo else 0
            return Standing(int(number) // 1000 + delay_ms if delay_ms else 0, shown=False)
        return Standing(int(until_ms), shown=float(count) >= 1 and not count.endswith(".5"))

    async def at_source(self, number: str, header: Header, body: str) -> AtSource:
        found = _message(body)
        # The group that its body names counts only if the queue has the message in that list.
        lane = (found.message_group_id if found is not None and self._queue.attributes.fifo else None) or ""
        place = await self.place_in(lane, number) if lane else None
        ahead, head = place if place is not None else (0, number)
        mine, first = await self.standing(number), await self.standing(head)
        stored_head = await self.stored(head) if head != number else None
        head_header, head_body = unpack(stored_head) if stored_head is not None else (header, body)
        named = _message(head_body)
        group = group_of(header, lane if place is not None else "", fifo=self._queue.attributes.fifo)
        return AtSource(
            broker_id=self.id_of(number, header),
            message=found,
            group=group,
            visible_at_ms=mine.visible_at_ms,
            leased=mine.shown,
            ahead=ahead,
            head_id=named.id if named is not None else self.id_of(head, head_header),
            head_visible_at_ms=first.visible_at_ms,
            head_leased=first.shown,
        )


def _partitions(client: Client, queue: Queue) -> list[_Partition]:
    return [_Partition(client, queue, partition) for partition in range(len(queue.engines))]


def _message(body: str) -> Message | None:
    try:
        return decode(body.encode())
    except InvalidMessage:
        return None


def _id_of(body: str) -> str | None:
    message = _message(body)
    return message.id if message is not None else None
