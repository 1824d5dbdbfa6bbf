"""What a queue's new owner does before it polls: shut out the old one, then find what he left half done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from fleet import failpoint
from fleet.errors import Fenced, StateUnavailable
from fleet.sources.base import Held, Source
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.state.queue import Queue, Tracked
from fleet.state.scripts import SEP

log = logging.getLogger("fleet.coordinator")

_AT_ONCE = 32
"""Pools fenced side by side: each call takes a connection."""
_EXPECTED_AT_ONCE = 500
"""Messages a call: a script is not interrupted, and others wait for it."""


async def take_over(
    *,
    client: Client,
    queue: Queue,
    source: Source,
    on_tracked: Callable[[list[Tracked]], None] = lambda _: None,
) -> tuple[int, set[str]]:
    """Returns how many tracked messages no pool held, and which pools did not answer: those are not fenced.

    The former were dropped and come back from the source. Of the latter nothing is known and nothing dropped: whoever
    feeds them fences them first (`submit.py`). `on_tracked` is told what is tracked, page by page.

    Only pools that something is tracked for are fenced, however many others there are. That is enough: an older owner
    submits nothing that it has not tracked before, under the name of the pool that it goes to, and forgets it again
    only after that call has ended, or after it has fenced one that it gave up. Since we have the lease it tracks
    nothing more. So whatever it still may send, now or when it wakes in an hour, names a pool that we find here; and
    what we fence stays fenced for our own followers, who may find nothing there any more.
    """
    # Tracking is refused to older owners since we have the lease; submitting not before this.
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
    dropped = await drop(client, queue, source, lost)
    if dropped:
        log.info("%d messages of %s were tracked and in no pool: taken again from the source", dropped, queue.name)
    return dropped, silent


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


async def fence(client: Client, queue: Queue, code: str, *, attempt: int = 0) -> None:
    pool = Pool(client, code)
    if not await pool.fence(queue.name, queue.epoch, attempt=attempt):
        raise Fenced(f"queue {queue.name} has another owner", epoch=await pool.owner_of(queue.name))


async def lost_of(client: Client, queue: Queue, page: list[Tracked]) -> list[Tracked]:
    """Those of a page that are tracked as under way and stand in no pool and no outbox."""
    by_pool: dict[str, list[Tracked]] = {}
    for tracked in page:
        if tracked.state == "t":
            by_pool.setdefault(tracked.pool, []).append(tracked)
    lost: list[Tracked] = []
    for code, share in by_pool.items():
        flags, items = await Pool(client, code).held([f"{queue.name}{SEP}{t.broker_id}" for t in share])
        on_the_way = {item.rsplit(SEP, 1)[0] for item in items}
        lost += [
            t
            for t, held in zip(share, flags, strict=True)
            if not held and f"{queue.name}{SEP}{t.broker_id}{SEP}{t.token}" not in on_the_way
        ]
    return lost


async def drop(client: Client, queue: Queue, source: Source, lost: list[Tracked]) -> int:
    """Have them come again. Returns how many do at once."""
    return await forget(queue, source, await expect(client, queue, await still_lost(queue, lost)))


async def still_lost(queue: Queue, lost: list[Tracked]) -> list[Tracked]:
    """One that was settled between the two looks is not in that state any more, and stays."""
    now = {t.broker_id: t for t in await queue.tracked([t.broker_id for t in lost]) if t is not None}
    return [
        t for t in lost if t.broker_id in now and (now[t.broker_id].token, now[t.broker_id].state) == (t.token, "t")
    ]


async def expect(client: Client, queue: Queue, lost: list[Tracked]) -> list[Tracked]:
    """In the order in which they were taken, and before what is newer of their groups.

    Before they are forgotten: whoever ends in between leaves them for the next one to find.
    """
    lost = sorted(lost, key=lambda tracked: int(tracked.token))
    by_pool: dict[str, list[tuple[str, str, str, str]]] = {}
    for t in lost:
        if t.order:
            key = f"{queue.name}{SEP}{t.broker_id}"
            by_pool.setdefault(t.pool, []).append((t.order[0], t.lane, key, t.order[1:]))
    for code, messages in by_pool.items():
        for first in range(0, len(messages), _EXPECTED_AT_ONCE):
            part = messages[first : first + _EXPECTED_AT_ONCE]
            if not await Pool(client, code, now_ms=queue.now_ms).expect(queue.name, queue.epoch, part):
                raise Fenced(f"queue {queue.name} has another owner")
    return lost


async def forget(queue: Queue, source: Source, lost: list[Tracked]) -> int:
    """What is expected is shown again. Returns how many were."""
    if not lost:
        return 0
    gone = await queue.untrack([(t.broker_id, t.token) for t in lost], only_unsettled=True)
    lost = [t for t in lost if t.broker_id in gone]
    known = await source.nack([(Held(t.broker_id, gone[t.broker_id]), 0) for t in lost])
    # Where a source knows no handle of a connection that is gone, what it had given is out until it sees that.
    return sum(known)
