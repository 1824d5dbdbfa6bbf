"""What a queue's new owner does before it polls: shut out the old one, then find what that one left half done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from coordinator.return_ import key_of, return_
from fleet import failpoint
from fleet.errors import Fenced, StateUnavailable
from fleet.sources.base import Source
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.state.queue import Queue, Tracked
from fleet.state.scripts import SEP

log = logging.getLogger("fleet.coordinator")

_AT_ONCE = 32
"""How many pools are fenced side by side. Each call takes a connection."""


async def take_over(
    *,
    client: Client,
    queue: Queue,
    source: Source,
    on_tracked: Callable[[list[Tracked]], None] = lambda _: None,
) -> tuple[int, set[str]]:
    """Returns how many messages went back and come again at once, and which pools did not answer.

    What is tracked and stands in no pool goes back to its source, which shows it again. A pool that did not answer is
    not fenced, and nothing of it goes back: `late.py` does both before it feeds that pool. `on_tracked` is told what
    is tracked, page by page.

    Only pools that something is tracked for are fenced, however many others there are. That is enough. An older owner
    tracks a message, under the name of its pool, before it submits it. It untracks the message only after that call
    has ended, or, if it gave the call up, after it has fenced the pool. And it tracks nothing more since we have the
    lease. So whatever it may still send, now or when it wakes in an hour, is for a pool that we find here. What we
    fence stays fenced for the owners after us, who may find nothing there any more.
    """
    # Since we have the lease, older owners cannot track. They can submit until they are fenced here.
    failpoint.hit("owned")
    codes: set[str] = set()
    async for page in queue.all_tracked():
        on_tracked(page)
        codes |= {tracked.pool for tracked in page}
    silent = await _fence_all(client, queue, sorted(codes))
    failpoint.hit("fenced-pools")
    lost: list[Tracked] = []
    async for page in queue.all_tracked():
        lost += await lost_of(client, queue, [tracked for tracked in page if tracked.pool not in silent])
    returned = await return_lost(client, queue, source, lost)
    if returned:
        log.info("%d messages of %s were tracked and in no pool: taken again from the source", returned, queue.name)
    return returned, silent


async def _fence_all(client: Client, queue: Queue, codes: Sequence[str]) -> set[str]:
    silent: set[str] = set()
    for first in range(0, len(codes), _AT_ONCE):
        part = codes[first : first + _AT_ONCE]
        answers = await asyncio.gather(*(_answers(client, queue, code) for code in part))
        silent.update(code for code, answered in zip(part, answers, strict=True) if not answered)
    return silent


async def _answers(client: Client, queue: Queue, code: str) -> bool:
    try:
        await fence(client, queue, code)
    except StateUnavailable as error:
        log.warning("pool %s does not answer: %s", code, error)
        return False
    return True


async def fence(client: Client, queue: Queue, code: str, *, call: int = 0) -> None:
    pool = Pool(client, code)
    if not await pool.fence(queue.name, queue.epoch, call=call):
        raise Fenced(f"queue {queue.name} has another owner", epoch=await pool.owner_of(queue.name))


async def lost_of(client: Client, queue: Queue, page: list[Tracked]) -> list[Tracked]:
    """Those of a page that are tracked as under way, and stand in no pool and no outbox."""
    by_pool: dict[str, list[Tracked]] = {}
    for tracked in page:
        if tracked.state == "t":
            by_pool.setdefault(tracked.pool, []).append(tracked)
    lost: list[Tracked] = []
    for code, share in by_pool.items():
        queued, outbox_items = await Pool(client, code).queued([key_of(queue.name, t) for t in share])
        lost += standing_nowhere(queue.name, share, queued, outbox_items)
    return lost


def standing_nowhere(
    queue: str, share: Sequence[Tracked], queued: Sequence[bool], outbox_items: Sequence[str]
) -> list[Tracked]:
    """Those that their pool does not queue, and whose outcome is in none of its outboxes."""
    settled = {item.rsplit(SEP, 1)[0] for item in outbox_items}
    return [
        t
        for t, is_queued in zip(share, queued, strict=True)
        if not is_queued and f"{key_of(queue, t)}{SEP}{t.token}" not in settled
    ]


async def return_lost(client: Client, queue: Queue, source: Source, lost: list[Tracked]) -> int:
    """Returns how many the source shows again."""
    return await return_(client, queue, source, await still_lost(queue, lost))


async def still_lost(queue: Queue, lost: list[Tracked]) -> list[Tracked]:
    """Look again: what was settled between the two looks stands in no pool, and is not lost."""
    return unchanged(lost, await queue.tracked([t.broker_id for t in lost]))


def unchanged(lost: Sequence[Tracked], tracked: Iterable[Tracked | None]) -> list[Tracked]:
    """Those that are still tracked as under way, and under the same token."""
    under_way = {(t.broker_id, t.token) for t in tracked if t is not None and t.state == "t"}
    return [t for t in lost if (t.broker_id, t.token) in under_way]
