"""Late pools: those that do not answer, and what waits for each until it does.

A pool that does not answer holds up no other. What is for it waits here, tracked and kept invisible, and goes in as
soon as the pool answers. So if one node of a Cluster hangs, a queue that feeds pools on all nodes is still read. A pool
that did not answer when the queue was taken over is late from the start.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable

from coordinator.answers import PATIENCE_S
from coordinator.return_ import expect, return_untaken, untrack_and_nack
from coordinator.submit import Portion, Submitter, Untaken
from coordinator.takeover import fence, lost_of, still_lost
from fleet.errors import Disordered, SourceUnavailable, StateUnavailable
from fleet.lease import Lease
from fleet.sources.base import Source
from fleet.state.connect import Client
from fleet.state.queue import Queue, Tracked
from fleet.waiting import Backoff, end

log = logging.getLogger("fleet.coordinator")

LATE_MOST, LATE_MOST_BYTES = 5000, 64 * 1024 * 1024
"""How much may wait for late pools. With more than this the queue is read no further."""
_AGAIN_S, _LOOK_S = (0.25, 2.0), 0.5


class LatePools:
    """Those of one queue, while its lease is held."""

    def __init__(
        self,
        *,
        client: Client,
        queue: Queue,
        source: Source,
        lease: Lease,
        submitter: Submitter,
        ours: Callable[[], bool],
        rest: Callable[[float], Awaitable[None]],
    ) -> None:
        """`rest`: wait for so many seconds, or until we are stopped."""
        self._client = client
        self._queue = queue
        self._source = source
        self._lease = lease
        self._submitter = submitter
        self._ours = ours
        self._rest = rest
        self._waiting: dict[str, deque[tuple[Portion, str]]] = {}
        """What is to go to each late pool, with its batch. The first of them may have been submitted already."""
        self._silent_since_s: dict[str, float] = {}
        """When the call began that a pool has not answered."""
        self._unfenced: set[str] = set()
        """Late pools that an older owner may have left something in."""
        self._fenced: set[str] = set()
        """Late pools that were fenced by now, and are still to be searched for what an older owner left."""
        self._catching_up: set[asyncio.Task[None]] = set()
        self.between_batches = asyncio.Lock()
        """Held from each poll until its batch is admitted."""

    def begin(self, codes: set[str]) -> None:
        """These pools did not answer when the queue was taken over."""
        self._unfenced |= codes
        for code in codes:
            self._waiting[code] = deque()
            self._silent_since_s[code] = -math.inf

    def __contains__(self, code: object) -> bool:
        return code in self._waiting

    def is_known_silent(self, now_s: float) -> bool:
        """Whether one of them has let a whole patience go by."""
        return any(now_s - since_s >= PATIENCE_S for since_s in self._silent_since_s.values())

    @property
    def is_full(self) -> bool:
        """Whether too much waits for them."""
        if not self._waiting:
            return False
        portions = [portion for waiting in self._waiting.values() for portion, _ in waiting]
        too_long = sum(map(len, portions)) > LATE_MOST
        return too_long or sum(len(r.received.body) for portion in portions for r, _ in portion) > LATE_MOST_BYTES

    def wait(self, code: str, portion: Portion, batch_id: str) -> None:
        """One more portion for a pool that is late."""
        self._waiting[code].append((portion, batch_id))

    def fell_silent(
        self, code: str, since_s: float, call: asyncio.Task[Untaken], portion: Portion, batch_id: str
    ) -> None:
        """This call was not answered, and may be on its way still."""
        log.warning("pool %s does not answer: what %s has for it waits", code, self._queue.name)
        self._waiting[code] = deque([(portion, batch_id)])
        self._silent_since_s[code] = since_s
        self._catching_up.add(asyncio.create_task(self._catch_up(code, call)))

    def see_to_the_end(self, calls: set[asyncio.Task[None]]) -> None:
        """Nobody waits for these; an error of theirs is ours."""
        self._catching_up |= calls

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
            await end(self._catching_up)

    def _look_at_ended(self) -> None:
        ended = [task for task in self._catching_up if task.done()]
        self._catching_up.difference_update(ended)
        errors = [error for task in ended if (error := task.exception()) is not None]
        if errors:
            raise errors[0]

    # One pool -------------------------------------------------------------------------------------

    async def _catch_up(self, code: str, calling: asyncio.Task[Untaken] | None) -> None:
        backoff = Backoff(*_AGAIN_S)
        while True:
            untaken: Untaken | None = None
            try:
                if calling is not None:
                    untaken = await calling
                elif code in self._unfenced:
                    await self._take_over(code)
                else:
                    untaken = await self._repeat(code, *self._waiting[code][0])
                backoff.renew()
                self._silent_since_s.pop(code, None)
            except StateUnavailable as error:
                log.debug("%s", error)
                self._silent_since_s.setdefault(code, time.monotonic())
                await self._rest(backoff.spend())
            calling = None
            if untaken is not None:
                self._waiting[code].popleft()
                if untaken:
                    await return_untaken(self._queue, self._source, self._lease, untaken)
            if not self._waiting[code] and code not in self._unfenced:
                del self._waiting[code]
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
            lost = await still_lost(self._queue, [one for part in left.values() for one in part])
            # If a pool falls silent here, all of this is done once more: nothing is forgotten yet.
            lost = await expect(self._client, self._queue, lost)
            for each in left:
                self._waiting[each].clear()
            self._unfenced -= left.keys()
            self._fenced -= left.keys()
            text = f"queue {self._queue.name}: what was left for pool {code} is not all shown again"
            try:
                shown = await untrack_and_nack(self._queue, self._source, lost)
            except (StateUnavailable, SourceUnavailable) as error:
                raise Disordered(f"{text}: {error}") from error
            if shown < len(lost) and self._source.crash_wait_ms:
                raise Disordered(f"{text}: it is out with its last owner")

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

    async def _repeat(self, code: str, portion: Portion, batch_id: str) -> Untaken:
        await fence(self._client, self._queue, code, call=self._submitter.give_up(code))
        return await self._submitter.submit(code, await self._not_there(portion), batch_id)

    async def _not_there(self, portion: Portion) -> Portion:
        """What did not arrive of a call that was not answered. The rest is under way, or done by now."""
        ids = [r.received.broker_id for r, _ in portion]
        tracked = [one for one in await self._queue.tracked(ids) if one is not None]
        found = await still_lost(self._queue, await lost_of(self._client, self._queue, tracked))
        lost = {(one.broker_id, one.token) for one in found}
        return [(r, t) for r, t in portion if (r.received.broker_id, t.token) in lost]
