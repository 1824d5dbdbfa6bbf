"""How much the pools can take, so that no more is taken from a source than there is room for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from coordinator.answers import Answers, Question
from coordinator.put_off import Limits, PutOff
from fleet.clock import Clock
from fleet.state.connect import Client
from fleet.state.pool import SHARE, Pool

PATIENCE_MS = 1000.0
"""A pool that has been short of room for less than this is waited for: it is busy, and refusing its messages would
put them off for half a minute. One that is short for longer is slow, and the others go on without it."""
REGAIN = 0.03
"""Patience with one pool at the cost of another comes back at this rate: for the others that is a thirtieth at most."""
SOME_SHARE = 0.02
"""A pool that gets less of a queue than this is not held up by another that is waited for."""
PROBE_EVERY_MS = 2000.0
_SWEEP_S = 1.0  # a lost signal costs this long
_LEAST_S = 0.05
_ASKED_AT_ONCE = 10
_GLANCE_S = 0.1
"""Of a few groups a pool may be through with all that it has sooner than it has room for a batch more, and says so."""


@dataclass(frozen=True, slots=True)
class Room:
    """One pool as one wait sees it. Whatever is learnt or forgotten of it meanwhile is for the next wait."""

    share: float
    """Of a batch, the part that goes to this pool."""
    free: int
    limits: Limits
    short_ms: float | None
    """For how long it has been short of room; None: it is not."""
    spent_ms: float
    """Of the patience with it, what is used up."""

    @property
    def busy(self) -> bool:
        return self.short_ms is not None and self.short_ms < PATIENCE_MS


@dataclass(frozen=True, slots=True)
class Take:
    count: int


@dataclass(frozen=True, slots=True)
class Wait:
    """For room, so long, with these pools. `starving`: others pay for it."""

    seconds: float
    patient: tuple[str, ...]
    starving: bool


def decide(
    rooms: Mapping[str, Room], wanted: int, *, starving: bool, may_probe: bool = False, by_groups: bool = False
) -> Take | Wait:
    """How much to ask a source for, or how long to wait for room. `starving`: a pool with room lacks work."""
    roomy = [room for room in rooms.values() if room.short_ms is None]
    patient = tuple(code for code, room in rooms.items() if room.busy and (not starving or room.spent_ms < PATIENCE_MS))
    if roomy and not patient:
        # The next batch may be made up otherwise than the last: reckon with twice the share.
        fits = min(room.free / min(1.0, 2 * room.share + 0.05) for room in roomy)
        return Take(max(1, min(wanted, math.floor(fits))))
    if may_probe and not roomy and not patient:
        return Take(min(wanted, SHARE))
    if not starving:
        return Wait(_GLANCE_S if by_groups and roomy else _SWEEP_S, patient, starving)
    # What is left of the patience that the others pay for.
    left_s = min((PATIENCE_MS - rooms[code].spent_ms) / 1000 for code in patient) if patient else _SWEEP_S
    return Wait(max(_LEAST_S, min(_SWEEP_S, left_s)), patient, starving)


class Rooms:
    """The room of every pool this process feeds: as of the last answer, asked again when it runs short."""

    def __init__(
        self, *, client: Client, clock: Clock, limits_of: Callable[[str], Limits], full: Callable[[], bool]
    ) -> None:
        self._client = client
        self._clock = clock
        self._limits_of = limits_of
        self._full = full
        self._room: dict[str, int] = {}
        self._short_since: dict[str, float] = {}
        self._spent: dict[str, tuple[float, float]] = {}
        """Of the patience with a pool: how much is used up, and as of when."""
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
        """Pools were changed: what they had room for they may not have any more.

        Another dict, not the same one cleared: an answer that is under way was given before the change, and a wait
        writes it where it began.
        """
        self._room = {}

    def on_signal(self, _code: str) -> None:
        """A pool that was short of room has some."""
        for waiting in self._waiting:
            waiting.set()

    async def wait(
        self, shares: Mapping[str, float], wanted: int, *, others: bool = False, by_groups: bool = False
    ) -> int:
        """How many messages to ask for, of which each of these pools gets its share. 0 after a while without room.

        Nothing is known of where a queue's messages go until some have gone there. `others`: there are pools that none
        has gone to yet. What stands behind messages for full pools may be for them: now and then a few are asked for.
        `by_groups`: a pool is judged by the groups that it could work on, as its messages may all be of a few.
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
                case Take(count):
                    if all(room.short_ms is not None for room in rooms.values()):
                        self._probed_ms = now_ms
                    return 0 if await self._memory_short() else count
                case Wait() as pause:
                    await self._pause(pause, changed, now_ms)
        finally:
            self._waiting.discard(changed)
        return 0

    async def _pause(self, pause: Wait, changed: asyncio.Event, now_ms: float) -> None:
        try:
            async with asyncio.timeout(pause.seconds):
                await changed.wait()
        except TimeoutError:
            return
        finally:
            if pause.starving:
                self._spend(pause.patient, now_ms)

    async def _look_who_starves(self, rooms: Mapping[str, Room], by_groups: bool) -> tuple[dict[str, Room], bool]:
        """Whether one of those that have room has less than it could work on, and its messages stand behind others."""
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
                # A wait may be as long as what is there of a group: others have to stand behind those at work.
                to_do = await self._to_do.to({code: pools[code].lanes_to_do for code in answered})
                least = {code: 2 * rooms[code].limits.concurrency for code in to_do}
            else:
                to_do = {code: rooms[code].limits.capacity - free for code, free in answered.items()}
                least = {code: rooms[code].limits.concurrency for code in to_do}
            if any(count < least[code] for code, count in to_do.items()):
                return seen, True
        return seen, False

    def _spent_now(self, code: str, now_ms: float) -> float:
        spent, as_of_ms = self._spent.get(code, (0.0, now_ms))
        return max(0.0, spent - (now_ms - as_of_ms) * REGAIN)

    def _spend(self, codes: tuple[str, ...], since_ms: float) -> None:
        """These were waited for while another starved: a pool that is always a little short is a slow one too."""
        now_ms = self._clock.boot_ms()
        for code in codes:
            self._spent[code] = self._spent_now(code, since_ms) + now_ms - since_ms, now_ms

    async def _look(self, shares: Mapping[str, float], wanted: int) -> tuple[dict[str, Room], float]:
        """Bring the rooms up to date where they are short of what would be asked of them. Returns also when."""
        known, looked = self._room, {code: self._limits_of(code) for code in shares}
        worth: dict[str, int] = {}
        asking: dict[str, Question] = {}
        for code, share in shares.items():
            needed = math.ceil(wanted * share)
            if known.get(code, 0) < needed:
                # Worth a poll: a share of a batch, or a quarter of a pool that is smaller than that.
                quarter = looked[code].capacity // 4
                worth[code] = max(1, min(SHARE, needed, quarter))
                asking[code] = partial(Pool(self._client, code).room, max(worth[code], min(needed, quarter)))
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
                self._spent_now(code, now_ms),
            )
            for code, limits in looked.items()
        }, now_ms

    async def _memory_short(self) -> bool:
        """Redis is nearly full: what is in flight has to be settled first."""
        if not self._full():
            return False
        await asyncio.sleep(_SWEEP_S)
        return True
