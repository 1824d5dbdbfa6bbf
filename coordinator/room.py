"""How much the pools can take, so that no more is taken from a source than there is room for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

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
_GLANCE_S = 0.1
"""Of a few groups a pool may be through with all that it has sooner than it has room for a batch more, and says so."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a pool takes, and how much of that it works on."""

    capacity: int
    concurrency: int


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
        self._probed_ms = 0.0
        self._waiting: set[asyncio.Event] = set()

    def note(self, code: str, room: int) -> None:
        self._room[code] = room

    def forget(self) -> None:
        """Pools were changed: what they had room for they may not have any more."""
        self._room.clear()

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
            await self._ask(shares, wanted)
            now_ms = self._clock.boot_ms()
            roomy = [code for code in shares if code not in self._short_since]
            busy = [code for code in shares if now_ms - self._short_since.get(code, -PATIENCE_MS) < PATIENCE_MS]
            starving = bool(busy) and await self._any_starves(roomy, shares, by_groups)
            patient = [code for code in busy if not starving or self._spent_now(code, now_ms) < PATIENCE_MS]
            if roomy and not patient and not await self._memory_short():
                # The next batch may be made up otherwise than the last: reckon with twice the share.
                fits = min(self._room[code] / min(1.0, 2 * shares[code] + 0.05) for code in roomy)
                return max(1, min(wanted, math.floor(fits)))
            if others and not roomy and not patient and now_ms - self._probed_ms > PROBE_EVERY_MS:
                self._probed_ms = now_ms
                return min(wanted, SHARE)
            try:
                async with asyncio.timeout(self._as_long_as(patient, now_ms, starving, by_groups and bool(roomy))):
                    await changed.wait()
            finally:
                if starving:
                    self._spend(patient, now_ms)
        except TimeoutError:
            return 0
        finally:
            self._waiting.discard(changed)
        return 0

    async def _any_starves(self, roomy: Sequence[str], shares: Mapping[str, float], by_groups: bool) -> bool:
        """Whether one of those that have room has less than it could work on, and its messages stand behind others."""
        for code in roomy:
            if shares[code] >= SOME_SHARE:
                limits, pool = self._limits_of(code), Pool(self._client, code)
                self._room[code] = await pool.room()
                if by_groups:
                    # A wait may be as long as what is there of a group: others have to stand behind those at work.
                    if await pool.groups_to_do() < 2 * limits.concurrency:
                        return True
                elif limits.capacity - self._room[code] < limits.concurrency:
                    return True
        return False

    def _as_long_as(self, patient: Sequence[str], now_ms: float, starving: bool, may_starve: bool) -> float:
        if not starving:
            return _GLANCE_S if may_starve else _SWEEP_S
        # What is left of the patience that the others pay for.
        left_s = min((PATIENCE_MS - self._spent_now(code, now_ms)) / 1000 for code in patient) if patient else _SWEEP_S
        return max(_LEAST_S, min(_SWEEP_S, left_s))

    def _spent_now(self, code: str, now_ms: float) -> float:
        spent, as_of_ms = self._spent.get(code, (0.0, now_ms))
        return max(0.0, spent - (now_ms - as_of_ms) * REGAIN)

    def _spend(self, codes: Sequence[str], since_ms: float) -> None:
        """These were waited for while another starved: a pool that is always a little short is a slow one too."""
        now_ms = self._clock.boot_ms()
        for code in codes:
            self._spent[code] = self._spent_now(code, since_ms) + now_ms - since_ms, now_ms

    async def _ask(self, shares: Mapping[str, float], wanted: int) -> None:
        """Bring the rooms up to date where they are short of what would be asked of them."""
        for code, share in shares.items():
            needed = math.ceil(wanted * share)
            if self._room.get(code, 0) < needed:
                # Worth a poll: a share of a batch, or a quarter of a pool that is smaller than that.
                quarter = self._limits_of(code).capacity // 4
                worth = max(1, min(SHARE, needed, quarter))
                tell_at = max(worth, min(needed, quarter))
                self._room[code] = await Pool(self._client, code).room(tell_at)
                if self._room[code] < worth:
                    self._short_since.setdefault(code, self._clock.boot_ms())
                    continue
            self._short_since.pop(code, None)

    async def _memory_short(self) -> bool:
        """Redis is nearly full: what is in flight has to be settled first."""
        if not self._full():
            return False
        await asyncio.sleep(_SWEEP_S)
        return True
