"""How much the pools can take, so that no more is taken from a source than there is room for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

from fleet.clock import Clock
from fleet.state.connect import Client
from fleet.state.pool import SHARE, Pool

PATIENCE_MS = 1000.0
"""A pool that has been short of room for less than this is waited for: it is busy, and refusing its messages would
put them off for half a minute. One that is short for longer is slow, and the others go on without it."""
PROBE_EVERY_MS = 2000.0
_SWEEP_S = 1.0  # a lost signal costs this long


class Rooms:
    """The room of every pool this process feeds: as of the last answer, asked again when it runs short."""

    def __init__(
        self, *, client: Client, clock: Clock, capacity_of: Callable[[str], int], full: Callable[[], bool]
    ) -> None:
        self._client = client
        self._clock = clock
        self._capacity_of = capacity_of
        self._full = full
        self._room: dict[str, int] = {}
        self._short_since: dict[str, float] = {}
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

    async def wait(self, shares: Mapping[str, float], wanted: int, *, others: bool = False) -> int:
        """How many messages to ask for, of which each of these pools gets its share. 0 after a while without room.

        Nothing is known of where a queue's messages go until some have gone there. `others`: there are pools that none
        has gone to yet. What stands behind messages for full pools may be for them: now and then a few are asked for.
        """
        if not shares:
            return 0 if await self._memory_short() else wanted
        changed = asyncio.Event()
        self._waiting.add(changed)  # before asking: a signal between the answer and the wait counts
        try:
            await self._ask(shares, wanted)
            now_ms = self._clock.boot_ms()
            roomy = [code for code in shares if code not in self._short_since]
            patient = any(
                now_ms - since_ms < PATIENCE_MS for since_ms in map(self._short_since.get, shares) if since_ms
            )
            if roomy and not patient and not await self._memory_short():
                # The next batch may be made up otherwise than the last: reckon with twice the share.
                fits = min(self._room[code] / min(1.0, 2 * shares[code] + 0.05) for code in roomy)
                return max(1, min(wanted, math.floor(fits)))
            if others and not roomy and not patient and now_ms - self._probed_ms > PROBE_EVERY_MS:
                self._probed_ms = now_ms
                return min(wanted, SHARE)
            async with asyncio.timeout(_SWEEP_S):
                await changed.wait()
        except TimeoutError:
            return 0
        finally:
            self._waiting.discard(changed)
        return 0

    async def _ask(self, shares: Mapping[str, float], wanted: int) -> None:
        """Bring the rooms up to date where they are short of what would be asked of them."""
        for code, share in shares.items():
            needed = math.ceil(wanted * share)
            if self._room.get(code, 0) < needed:
                # Worth a poll: a share of a batch, or a quarter of a pool that is smaller than that.
                worth = max(1, min(SHARE, needed, self._capacity_of(code) // 4))
                tell_at = max(worth, min(needed, self._capacity_of(code) // 4))
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
