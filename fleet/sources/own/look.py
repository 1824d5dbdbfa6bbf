"""Looking into a queue of our own: read-only, about a hundred messages at a time.

There is no index on message ids, because only an operator asks for one: every body in the queue is searched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from fleet.errors import InvalidMessage
from fleet.message import Message, decode
from fleet.sources.adapter import AtSource
from fleet.state.connect import Client
from fleet.state.own_queue import OwnQueue


async def find(client: Client, queue_name: str, subject: str) -> AtSource | None:
    """A message by its id or its number, else the oldest of a group."""
    queue = OwnQueue(client, queue_name)
    async for number, body in queue.bodies():
        if number == subject or (subject.encode() in body and _id_of(body) == subject):
            return await _at_source(queue, number, body)
    head = await queue.head_of(subject)
    if head is None:
        return None
    body_of_head = await queue.body(head)
    return None if body_of_head is None else await _at_source(queue, head, body_of_head)


async def bodies(client: Client, queue_name: str, most: int, most_bytes: int) -> AsyncIterator[tuple[str, bytes]]:
    """In no particular order, page by page."""
    async for number, body in OwnQueue(client, queue_name).bodies():
        yield number, body
        most, most_bytes = most - 1, most_bytes - len(body)
        if most <= 0 or most_bytes <= 0:
            return


async def _at_source(queue: OwnQueue, number: str, body: bytes) -> AtSource | None:
    message = _message(body)
    group = message.message_group_id if message is not None else ""
    ahead, head = 0, number
    # The group in the body need not be the one it was sent with: it counts only if the queue has the message in its
    # list.
    place = await queue.place_in(group, number) if group else None
    if place is not None:
        ahead, head = place
    mine, first = await queue.standing(number), await queue.standing(head)
    body_of_head = body if head == number else await queue.body(head)
    named = _message(body_of_head) if body_of_head is not None else None
    return AtSource(
        broker_id=number,
        message=message,
        group=group if place is not None else None,
        visible_at_ms=mine.visible_at_ms,
        leased=mine.shown,
        ahead=ahead,
        head_id=named.id if named is not None else head,
        head_visible_at_ms=first.visible_at_ms,
        head_leased=first.shown,
    )


def _message(body: bytes) -> Message | None:
    try:
        return decode(body)
    except InvalidMessage:
        return None


def _id_of(body: bytes) -> str | None:
    message = _message(body)
    return message.id if message is not None else None
