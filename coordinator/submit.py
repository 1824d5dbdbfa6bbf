"""Submits what was tracked to its pools, in order for each pool, and gives back what did not fit.

A pool that does not answer holds up no other. It is *late*: what is for it waits here, tracked and kept invisible, and
goes in as soon as the pool answers. So if one node of a Cluster hangs, a queue that feeds pools on all nodes is still
read. A pool that did not answer when the queue was taken over is late from the start.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from coordinator.answers import PATIENCE_S, SHORT_PATIENCE_S
from coordinator.put_off import PutOff
from coordinator.return_ import expect, untrack_and_nack
from coordinator.route import Routed
from coordinator.takeover import fence, lost_of, still_lost
from fleet.alarms import Alarms
from fleet.errors import Disordered, Fenced, SourceUnavailable, StateUnavailable
from fleet.lease import Lease
from fleet.outcome import CASCADE_RETRY_S
from fleet.sources.base import Receipt, Source
from fleet.state.connect import Client
from fleet.state.entry import Entry
from fleet.state.pool import AWAY_GRACE_MS, Pool
from fleet.state.queue import Queue, Tracked, Tracking
from fleet.waiting import Backoff, cancel

log = logging.getLogger("fleet.coordinator")

NO_SUCH_POOL_RETRY_S = 1
"""For a pool that is configured and not yet known to Redis, or that is just being removed."""
SUBMIT_MOST = 500
"""Entries in one call: a script is not interrupted, and others wait for it."""
LATE_MOST, LATE_MOST_BYTES = 5000, 64 * 1024 * 1024
"""How much may wait for late pools. With more than this the queue is read no further."""
_AGAIN_S, _LOOK_S = (0.25, 2.0), 0.5
FULL_TOLD_EVERY_S = 10.0

Share = list[tuple[Routed, Tracking]]
"""The part of a batch that goes to one pool."""
Returned = list[tuple[Routed, Tracking, int]]
"""What a pool did not take, and after how many seconds each message may come again."""


class Submitter:
    """Submits for one queue while its lease is held."""

    def __init__(
        self,
        *,
        client: Client,
        queue: Queue,
        source: Source,
        lease: Lease,
        on_room: Callable[[str, int, int], None],
        put_off: PutOff,
        alarms: Alarms,
        counts: Counter[str],
        ours: Callable[[], bool],
        rest: Callable[[float], Awaitable[None]],
    ) -> None:
        """`rest`: wait for so many seconds, or until we are stopped."""
        self._client = client
        self._queue = queue
        self._source = source
        self._lease = lease
        self._on_room = on_room
        self._put_off = put_off
        self._alarms = alarms
        self._counts = counts
        self._ours = ours
        self._rest = rest
        self._grace_ms = max(source.visibility_ms, source.crash_wait_ms) + AWAY_GRACE_MS
        self._pools: dict[str, Pool] = {}
        self._told_full: dict[str, tuple[float, int]] = {}
        """By pool, when the log was told that it is full, and how many messages it has refused since."""
        self._late: dict[str, deque[tuple[Share, str]]] = {}
        """What is to go to each late pool, with its batch. The first of them may have been submitted already."""
        self._silent_since_s: dict[str, float] = {}
        """When the call began that a pool has not answered."""
        self._unfenced: set[str] = set()
        """Late pools that an older owner may have left something in."""
        self._fenced: set[str] = set()
        """Late pools that were fenced by now, and are still to be searched for what an older owner left."""
        self._attempts: Counter[str] = Counter()
        """Calls to a pool that were given up. Each may still be on its way, and is fenced off before the next."""
        self._catching_up: set[asyncio.Task[None]] = set()
        self.between_batches = asyncio.Lock()
        """Held from each poll until its batch is admitted."""

    def begin_late(self, codes: set[str]) -> None:
        """These pools did not answer when the queue was taken over."""
        self._unfenced |= codes
        for code in codes:
            self._late[code] = deque()
            self._silent_since_s[code] = -math.inf

    async def bring(self, by_pool: dict[str, Share], batch_id: str) -> Returned:
        """Returns what the pools that answered did not take."""
        calling: dict[str, asyncio.Task[Returned]] = {}
        for code, share in by_pool.items():
            if code in self._late:
                self._late[code].append((share, batch_id))
            else:
                calling[code] = asyncio.create_task(self._submit(code, share, batch_id))
        if not calling:
            return []
        began_s = time.monotonic()
        silent = any(began_s - since_s >= PATIENCE_S for since_s in self._silent_since_s.values())
        try:
            await asyncio.wait(calling.values(), timeout=SHORT_PATIENCE_S if silent else PATIENCE_S)
            ours = self._ours()
            if not ours:
                await asyncio.wait(calling.values())  # nobody will be there to catch up later
        except asyncio.CancelledError:
            await _end(calling.values())
            raise
        returned: Returned = []
        errors: list[BaseException] = []
        for code, call in calling.items():
            error = call.exception() if call.done() else None
            if ours and (not call.done() or isinstance(error, StateUnavailable)):
                log.warning("pool %s does not answer: what %s has for it waits", code, self._queue.name)
                self._late[code] = deque([(by_pool[code], batch_id)])
                self._silent_since_s[code] = began_s
                self._catching_up.add(asyncio.create_task(self._catch_up(code, call)))
            elif error is not None:
                errors.append(error)
            else:
                returned += call.result()
        if errors:
            raise errors[0]
        return returned

    async def expect_no_more(self, by_pool: dict[str, list[tuple[str, str, str, str]]]) -> None:
        """These copies were acked (`Pool.expect_no_more`).

        A pool that does not hear of it waits for them in vain, for twice the grace of what is away.
        """
        calls = [
            asyncio.create_task(self._expect_no_more(code, messages))
            for code, messages in by_pool.items()
            if code not in self._late
        ]
        if not calls:
            return
        try:
            done, pending = await asyncio.wait(calls, timeout=PATIENCE_S)
        except asyncio.CancelledError:
            await _end(calls)
            raise
        self._catching_up |= pending
        for call in done:
            call.result()

    def is_late(self, code: str) -> bool:
        return code in self._late

    @property
    def is_full(self) -> bool:
        """Whether too much waits for late pools."""
        if not self._late:
            return False
        shares = [share for waiting in self._late.values() for share, _ in waiting]
        too_long = sum(map(len, shares)) > LATE_MOST
        return too_long or sum(len(r.received.body) for share in shares for r, _ in share) > LATE_MOST_BYTES

    async def run(self) -> None:
        """Let late pools catch up. Ends with an error if that says that the queue is not ours any more."""
        self._catching_up |= {asyncio.create_task(self._catch_up(code, None)) for code in self._unfenced}
        try:
            while self._ours():
                self._look_at_ended()
                await self._rest(_LOOK_S)
            while self._catching_up:
                await asyncio.wait(self._catching_up, return_when=asyncio.FIRST_COMPLETED)
                self._look_at_ended()
        finally:
            await _end(self._catching_up)

    def _look_at_ended(self) -> None:
        ended = [task for task in self._catching_up if task.done()]
        self._catching_up.difference_update(ended)
        errors = [error for task in ended if (error := task.exception()) is not None]
        if errors:
            raise errors[0]

    async def return_(self, returned: Returned) -> None:
        looked_into = self._source.is_looked_into
        hidden_ms = {} if looked_into else {r.received.broker_id: seconds * 1000 for r, _, seconds in returned}
        gone = await self._queue.untrack([(r.received.broker_id, t.token) for r, t, _ in returned], hidden_ms=hidden_ms)
        if not self._lease.held:
            raise StateUnavailable(f"the lease on queue {self._queue.name} lapsed")
        await self._source.nack(
            [
                (Receipt(r.received.broker_id, gone[r.received.broker_id]), seconds * 1000)
                for r, _, seconds in returned
                if r.received.broker_id in gone
            ]
        )

    # One pool -------------------------------------------------------------------------------------

    async def _catch_up(self, code: str, calling: asyncio.Task[Returned] | None) -> None:
        backoff = Backoff(*_AGAIN_S)
        while True:
            returned: Returned | None = None
            try:
                if calling is not None:
                    returned = await calling
                elif code in self._unfenced:
                    await self._take_over(code)
                else:
                    returned = await self._repeat(code, *self._late[code][0])
                backoff.renew()
                self._silent_since_s.pop(code, None)
            except StateUnavailable as error:
                log.debug("%s", error)
                self._silent_since_s.setdefault(code, time.monotonic())
                await self._rest(backoff.spend())
            calling = None
            if returned is not None:
                self._late[code].popleft()
                if returned:
                    await self.return_(returned)
            if not self._late[code] and code not in self._unfenced:
                del self._late[code]
                self._silent_since_s.pop(code, None)
                log.info("pool %s answers again", code)
                return
            if not self._ours():
                return

    async def _take_over(self, code: str) -> None:
        """Have the source show again what an older owner left for this pool, and behind that all that is newer.

        No batch is taken meanwhile: it would overtake. So all pools that are fenced by then are looked at in one go.
        """
        await fence(self._client, self._queue, code)
        self._fenced.add(code)
        async with self.between_batches:
            if code not in self._unfenced:
                return
            left = await self._left_for_fenced()
            if code not in left:
                raise StateUnavailable(f"pool {code} does not answer")
            lost = await still_lost(self._queue, [one for share in left.values() for one in share])
            # If a pool falls silent here, all of this is done once more: nothing is forgotten yet.
            lost = await expect(self._client, self._queue, lost)
            for each in left:
                self._late[each].clear()
            self._unfenced -= left.keys()
            self._fenced -= left.keys()
            text = f"queue {self._queue.name}: what was left for pool {code} is not all shown again"
            try:
                shown = await untrack_and_nack(self._queue, self._source, lost)
            except (StateUnavailable, SourceUnavailable) as error:
                raise Disordered(f"{text}: {error}") from error
            if shown < len(lost) and self._source.crash_wait_ms:
                raise Disordered(f"{text}: it is out with its last owner")

    async def _expect_no_more(self, code: str, messages: list[tuple[str, str, str, str]]) -> None:
        try:
            await self._pool(code).expect_no_more(messages)
        except StateUnavailable as error:
            log.warning("pool %s does not answer: %s", code, error)

    async def _left_for_fenced(self) -> dict[str, list[Tracked]]:
        """By pool, what older owners left there. A pool that falls silent again is left out, and fenced anew later."""
        left: dict[str, list[Tracked]] = {code: [] for code in sorted(self._fenced)}
        async for page in self._queue.all_tracked():
            for code in list(left):
                try:
                    left[code] += await lost_of(self._client, self._queue, [one for one in page if one.pool == code])
                except StateUnavailable as error:
                    log.debug("%s", error)
                    self._fenced.discard(code)
                    del left[code]
        return left

    async def _repeat(self, code: str, share: Share, batch_id: str) -> Returned:
        self._attempts[code] += 1
        await fence(self._client, self._queue, code, attempt=self._attempts[code])
        return await self._submit(code, await self._not_there(share), batch_id)

    async def _not_there(self, share: Share) -> Share:
        """What did not arrive of a call that was not answered. The rest is under way, or done by now."""
        ids = [r.received.broker_id for r, _ in share]
        tracked = [one for one in await self._queue.tracked(ids) if one is not None]
        found = await still_lost(self._queue, await lost_of(self._client, self._queue, tracked))
        lost = {(one.broker_id, one.token) for one in found}
        return [(r, t) for r, t in share if (r.received.broker_id, t.token) in lost]

    async def _submit(self, code: str, share: Share, batch_id: str) -> Returned:
        pool, name, entries = self._pool(code), self._queue.name, self._entries(share, batch_id)
        returned: Returned = []
        full_s, attempt = self._put_off.seconds(code), self._attempts[code]
        for first in range(0, len(entries), SUBMIT_MOST):
            part = entries[first : first + SUBMIT_MOST]
            answer = await pool.submit(
                name, self._queue.epoch, part, attempt=attempt, full_s=full_s, grace_ms=self._grace_ms
            )
            if answer.tag == "stale":
                raise Fenced(f"queue {name} has another owner")
            waits_s = dict.fromkeys(answer.cascaded, CASCADE_RETRY_S)
            waits_s |= {i: math.ceil(ms / 1000) for i, ms in answer.behind.items()}
            returned += [(*share[first + i], waits_s[i]) for i in sorted(waits_s)]
            if answer.tag != "ok":
                return returned + [(r, t, NO_SUCH_POOL_RETRY_S) for r, t in share[first:]]
            self._on_room(code, answer.room, len(part))
            self._put_off.seen(code, answer.room + answer.accepted - len(waits_s))
            if answer.accepted < len(part):
                self._put_off.refused(code)
                over = len(entries) - first - answer.accepted
                self._counts["refused"] += over
                self._tell_full(code, over, full_s)
                self._alarms.add("QUEUE_FULL", "WARN", f"pool {code} is full, messages of {name} go back", logged=True)
                # Everything behind the first refusal goes back, else later messages of a group would overtake.
                return returned + [(r, t, full_s) for r, t in share[first + answer.accepted :]]
        return returned

    def _pool(self, code: str) -> Pool:
        pool = self._pools.get(code)
        if pool is None:
            pool = self._pools[code] = Pool(self._client, code)
        return pool

    def _entries(self, share: Share, batch_id: str) -> list[Entry]:
        now_ms, name = time.time_ns() // 1_000_000, self._queue.name
        return [
            Entry(
                name,
                r.received.broker_id,
                t.token,
                batch_id,
                r.lane,
                r.group,
                now_ms,
                r.message.id,
                r.message.mediation_target,
                r.message.auth_token,
                r.is_held_by(self._source),
                r.message.high_priority,
                r.policy,
                self._source.shows_in_order,
            )
            for r, t in share
        ]

    def _tell_full(self, code: str, refused: int, full_s: int) -> None:
        """At once, and then only now and then: a slow pool refuses a part of every batch."""
        now_s = time.monotonic()
        told_s, since_then = self._told_full.get(code, (-FULL_TOLD_EVERY_S, 0))
        if now_s - told_s < FULL_TOLD_EVERY_S:
            self._told_full[code] = told_s, since_then + refused
            return
        self._told_full[code] = now_s, 0
        text = "pool %s is full: %d messages of %s go back for %d s"
        log.warning(text, code, since_then + refused, self._queue.name, full_s)


async def _end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """End them, and look at their errors: asyncio prints one that nobody has looked at."""
    tasks = list(tasks)
    await cancel(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()
