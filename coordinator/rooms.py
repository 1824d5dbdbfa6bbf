"""Waits until the pools have room, so that no more is taken from a source than they can take.

How much to ask for is decided in `room.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from coordinator.answers import Answers, Question
from coordinator.put_off import PoolLimits, PutOff
from coordinator.room import PATIENCE_MS, SWEEP_S, Patience, Poll, Room, Wait, decide, need_of, starves
from fleet.clock import Clock
from fleet.state.connect import Client
from fleet.state.pool import Pool
from fleet.waiting import happens

SOME_SHARE = 0.02
"""A pool that gets less of a queue than this does not count as starving."""
PROBE_EVERY_MS = 2000.0
_ASKED_AT_ONCE = 10


class Rooms:
    """The room of every pool that this process feeds, as last heard. A pool that runs short is asked again."""

    def __init__(
        self, *, client: Client, clock: Clock, limits_of: Callable[[str], PoolLimits], full: Callable[[], bool]
    ) -> None:
        """`full`: whether Redis is short of memory."""
        self._client = client
        self._clock = clock
        self._limits_of = limits_of
        self._full = full
        self._room: dict[str, int] = {}
        self._short_since: dict[str, float] = {}
        self._patience = Patience()
        self.put_off = PutOff(limits_of, self._is_slow, clock)
        self._free, self._to_do = Answers(), Answers()
        self._probed_ms = 0.0
        self._waiting: set[asyncio.Event] = set()

    def note(self, code: str, room: int) -> None:
        self._room[code] = room

    def _is_slow(self, code: str) -> bool:
        since_ms = self._short_since.get(code)
        return since_ms is not None and self._clock.boot_ms() - since_ms >= PATIENCE_MS

    def forget(self) -> None:
        """The pools were changed, and may not have the room they had.

        A new dict, not the same one cleared: an answer that is on its way was given before the change. The wait that
        asked for it writes it into the old dict.
        """
        self._room = {}

    def on_signal(self, _code: str) -> None:
        """A pool that was short of room has some."""
        for waiting in self._waiting:
            waiting.set()

    async def wait(
        self, shares: Mapping[str, float], wanted: int, *, others: bool = False, by_groups: bool = False
    ) -> int:
        """How many messages to ask a source for, if each pool gets its share of them. 0 after a wait: look again.

        `shares` is empty until some of the queue's messages have gone somewhere. `others`: there are pools that none
        has gone to yet. Messages for them may stand behind those for full pools: now and then a few are asked for.
        `by_groups`: judge a pool by how many groups it could work on. Its messages may all belong to a few.
        """
        if not shares:
            return 0 if await self._memory_short() else wanted
        changed = asyncio.Event()
        self._waiting.add(changed)  # before asking: a signal between the answer and the wait counts
        try:
            rooms, now_ms = await self._look(shares, wanted)
            starving = False
            if any(room.busy for room in rooms.values()):
                rooms, starving = await self._look_who_starves(rooms, by_groups)
            may_probe = others and now_ms - self._probed_ms > PROBE_EVERY_MS
            match decide(rooms, wanted, starving=starving, may_probe=may_probe, by_groups=by_groups):
                case Poll(count):
                    if all(room.short_ms is not None for room in rooms.values()):
                        self._probed_ms = now_ms
                    return 0 if await self._memory_short() else count
                case Wait() as pause:
                    await self._pause(pause, changed, now_ms)
        finally:
            self._waiting.discard(changed)
        return 0

    async def _pause(self, pause: Wait, changed: asyncio.Event, since_ms: float) -> None:
        try:
            await happens(changed, within_s=pause.seconds)
        finally:
            if pause.starving:
                now_ms = self._clock.boot_ms()
                for code in pause.patient:
                    self._patience.spend(code, since_ms, now_ms)

    async def _look_who_starves(self, rooms: Mapping[str, Room], by_groups: bool) -> tuple[dict[str, Room], bool]:
        """Whether a pool that has room lacks work. Its messages may stand behind those for others."""
        known, seen = self._room, dict(rooms)
        roomy = [code for code, room in rooms.items() if room.short_ms is None and room.share >= SOME_SHARE]
        for first in range(0, len(roomy), _ASKED_AT_ONCE):
            part = roomy[first : first + _ASKED_AT_ONCE]
            pools = {code: Pool(self._client, code) for code in part}
            answered = await self._free.to({code: pool.room for code, pool in pools.items()})
            for code in part:
                free = known[code] = answered.get(code, 0)
                if code in answered:
                    self.put_off.seen(code, free)
                seen[code] = replace(rooms[code], free=free)
            if by_groups:
                to_do = await self._to_do.to({code: pools[code].lanes_to_do for code in answered})
            else:
                to_do = {code: rooms[code].limits.capacity - free for code, free in answered.items()}
            if any(starves(rooms[code].limits, count, by_groups=by_groups) for code, count in to_do.items()):
                return seen, True
        return seen, False

    async def _look(self, shares: Mapping[str, float], wanted: int) -> tuple[dict[str, Room], float]:
        """Ask the pools that are not known to have enough room. Returns what is known of all, and as of when."""
        known, looked = self._room, {code: self._limits_of(code) for code in shares}
        worth: dict[str, int] = {}
        asking: dict[str, Question] = {}
        for code, share in shares.items():
            need = need_of(share, wanted, looked[code].capacity, known=known.get(code, 0))
            if need is not None:
                worth[code] = need.worth
                asking[code] = partial(Pool(self._client, code).room, need.tell_at)
        answered = await self._free.to(asking)
        for code in asking:
            free = known[code] = answered.get(code, 0)
            if code in answered:
                self.put_off.seen(code, free)
            if free < worth[code]:
                self._short_since.setdefault(code, self._clock.boot_ms())
        for code in shares:
            if code not in worth or known.get(code, 0) >= worth[code]:
                self._short_since.pop(code, None)
        now_ms = self._clock.boot_ms()
        return {
            code: Room(
                shares[code],
                known.get(code, 0),
                limits,
                now_ms - self._short_since[code] if code in self._short_since else None,
                self._patience.spent_ms(code, now_ms),
            )
            for code, limits in looked.items()
        }, now_ms

    async def _memory_short(self) -> bool:
        """Redis is nearly full: what is in flight has to be settled first."""
        if not self._full():
            return False
        await asyncio.sleep(SWEEP_S)
        return True
