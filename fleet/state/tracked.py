"""Finding one message among all that were taken from queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.state.connect import Client, translated
from fleet.state.keys import FleetKeys, QueueKeys
from fleet.state.queue import Queue, Tracked
from fleet.state.scripts import SEP

_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class FoundMessage:
    queue: str
    message: Tracked


async def by_id(client: Client, queues: Sequence[str], wanted: str) -> FoundMessage | None:
    """Find a message by its id, or by its broker id. Two calls, however much is tracked."""
    for queue, broker in (await brokers_of(client, queues, wanted)).items():
        for candidate in {broker or wanted, wanted}:
            (message,) = await Queue(client, queue).tracked([candidate])
            if message is not None and wanted in (message.message_id, message.broker_id):
                return FoundMessage(queue, message)
    return None


async def brokers_of(client: Client, queues: Sequence[str], message_id: str) -> dict[str, str | None]:
    """For each queue, the broker id of the message that has this id, the newest if there are several."""
    pipeline = client.pipeline(transaction=False)
    for queue in queues:
        pipeline.hget(QueueKeys(queue).apps, message_id)
    with translated():
        noted = await pipeline.execute() if queues else []
    return {q: one and one.partition(SEP)[0] for q, one in zip(queues, noted, strict=True)}


async def which_are_tracked(client: Client, ids: Sequence[str]) -> set[str]:
    """Those that a router has in hand, from whichever queue it took them."""
    pipeline = client.pipeline(transaction=False)
    found: set[str] = set()
    with translated():
        queues = list(await client.hkeys(FleetKeys.queues)) if ids else []
        for queue in queues:
            for first in range(0, len(ids), _AT_ONCE):
                pipeline.hmget(QueueKeys(queue).apps, list(ids[first : first + _AT_ONCE]))
        answers = await pipeline.execute() if queues else []
    places = [first for _ in queues for first in range(0, len(ids), _AT_ONCE)]
    for first, answer in zip(places, answers, strict=True):
        found |= {ids[first + place] for place, broker_id in enumerate(answer) if broker_id is not None}
    return found


async def settled_of(client: Client, queues: Sequence[str], wanted: str) -> FoundMessage | None:
    """A message that gave up its id, as it was settled as ack or a newer one took it. Looks at all that is tracked."""
    for queue in queues:
        async for page in Queue(client, queue).all_tracked():
            for message in page:
                if message.message_id == wanted:
                    return FoundMessage(queue, message)
    return None
