"""Messages go back to their source, in order.

What is newer of their lanes waits first, then they are untracked, then nacked. In any other order a crash in between
would let what is newer overtake.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.submit import Untaken
from fleet.errors import Fenced, LeaseLapsed
from fleet.lease import Lease
from fleet.sources.base import Receipt, Source
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.state.queue import Queue, Tracked
from fleet.state.scripts import SEP

_EXPECTED_AT_ONCE = 500
"""Messages in one call: a script is not interrupted, and others wait for it."""


async def return_(client: Client, queue: Queue, source: Source, messages: list[Tracked]) -> int:
    """Those that a pool had, or should have had. Returns how many the source shows again."""
    return await untrack_and_nack(queue, source, await expect(client, queue, messages))


async def return_untaken(queue: Queue, source: Source, lease: Lease, untaken: Untaken) -> None:
    """Those that a pool did not take. It has noted already what of them is waited for (`submit.lua`)."""
    hidden_ms = {} if source.is_looked_into else {r.received.broker_id: after_s * 1000 for r, _, after_s in untaken}
    gone = await queue.untrack([(r.received.broker_id, t.token) for r, t, _ in untaken], hidden_ms=hidden_ms)
    if not lease.held:
        raise LeaseLapsed(queue.name)
    await source.nack(
        [
            (Receipt(r.received.broker_id, gone[r.received.broker_id]), after_s * 1000)
            for r, _, after_s in untaken
            if r.received.broker_id in gone
        ]
    )


async def expect(client: Client, queue: Queue, lost: list[Tracked]) -> list[Tracked]:
    """Have newer messages of their groups wait for them. Returns them in the order in which they were taken.

    This comes before they are forgotten: if we end in between, the next owner finds them.
    """
    lost = sorted(lost, key=lambda tracked: int(tracked.token))
    for code, messages in whose_order_is_ours(queue.name, lost).items():
        for first in range(0, len(messages), _EXPECTED_AT_ONCE):
            part = messages[first : first + _EXPECTED_AT_ONCE]
            if not await Pool(client, code, now_ms=queue.now_ms).expect(queue.name, queue.epoch, part):
                raise Fenced(f"queue {queue.name} has another owner")
    return lost


def whose_order_is_ours(queue: str, lost: Iterable[Tracked]) -> dict[str, list[tuple[str, str, str, str]]]:
    """By pool, in their order, as (tier, lane, key, policy) (`Pool.expect`). Others need nothing from us."""
    by_pool: dict[str, list[tuple[str, str, str, str]]] = {}
    for t in lost:
        if t.order:
            by_pool.setdefault(t.pool, []).append((t.order[0], t.lane, key_of(queue, t), t.order[1:]))
    return by_pool


async def untrack_and_nack(queue: Queue, source: Source, lost: list[Tracked]) -> int:
    """Untrack them and have the source show them again. Returns how many it does show."""
    if not lost:
        return 0
    gone = await queue.untrack([(t.broker_id, t.token) for t in lost], only_unsettled=True)
    lost = [t for t in lost if t.broker_id in gone]
    known = await source.nack([(Receipt(t.broker_id, gone[t.broker_id]), 0) for t in lost])
    # Some sources know no handle of a connection that is gone. What they gave there is out until they notice.
    return sum(known)


def key_of(queue: str, tracked: Tracked) -> str:
    return f"{queue}{SEP}{tracked.broker_id}"
