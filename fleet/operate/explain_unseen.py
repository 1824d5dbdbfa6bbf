"""What can be said about messages in queues that cannot be looked into: to see one there, one has to take it."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.config.router import QueueConfig
from fleet.operate.explanation import Explanation
from fleet.operate.views import AskDepths
from fleet.state.connect import Client
from fleet.state.queue import Hidden, Queue
from fleet.words import at, number


async def given_back(
    client: Client, queues: Sequence[QueueConfig], subject: str, *, pool: str | None, now_ms: str = ""
) -> Explanation | None:
    """What we gave back with a delay is remembered until the delay is over; None if nothing of it belongs to the
    subject."""
    for queue in queues:
        of_group: list[Hidden] = []
        async for page in Queue(client, queue.name, now_ms=now_ms).hidden():
            for one in page:
                if pool not in (None, one.pool):
                    continue
                if subject in (one.message_id, one.broker_id):
                    return _delayed(subject, queue, [one], "It")
                if subject == one.lane:
                    of_group.append(one)
        if of_group:
            return _delayed(subject, queue, of_group, number(len(of_group), "message of it", "messages of it"))
    return None


def _delayed(subject: str, queue: QueueConfig, found: list[Hidden], what: str) -> Explanation:
    first = min(found, key=lambda one: one.until_ms)
    was = "was" if len(found) == 1 else "were"
    details = [
        f"{what} {was} taken for pool {first.pool} and given back to queue {queue.name}, after a failure or because"
        " there was no room.",
        f"The queue was told to show {first.message_id} again {at(first.until_ms)}.",
        "It shows messages only to a receiver: this is what the fleet remembers.",
    ]
    return Explanation(subject, "DELAYED", "its delay to end", first.until_ms, details)


async def where_it_may_be(queues: Sequence[QueueConfig], depths: AskDepths) -> tuple[bool, list[str]]:
    """Whether any of the queues may hold it, and a sentence about each."""
    possible, sentences = False, []
    for queue, (depth, error) in zip(queues, await depths(queues), strict=True):
        looks = f"Queue {queue.name} cannot be searched without receiving its messages"
        if depth is None:
            sentences.append(f"{looks}; it does not say how many it holds: {error.rstrip('.')}.")
        else:
            sentences.append(f"{looks}; it holds {depth.waiting:,} that wait and {depth.invisible:,} that are hidden.")
        possible = possible or depth is None or depth.waiting + depth.invisible > 0
    return possible, sentences
