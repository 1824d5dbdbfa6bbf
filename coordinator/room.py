"""How much the pools can take, so that no more is taken from a source than there is room for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from fleet.state.connect import Client
from fleet.state.pool import Pool

_SWEEP_S = 1.0  # a lost signal costs this long


class Rooms:
    """The room of every pool this process feeds: as of the last answer, asked again when it runs short."""

    def __init__(self, *, client: Client, capacity_of: Callable[[str], int], full: Callable[[], bool]) -> None:
        self._client = client
        self._capacity_of = capacity_of
        self._full = full
        self._room: dict[str, int] = {}
        self._waiting: set[asyncio.Event] = set()

    def note(self, code: str, room: int) -> None:
        self._room[code] = room

    def on_signal(self, _code: str) -> None:
        """A pool that was short of room has some."""
        for waiting in self._waiting:
            waiting.set()

    async def wait(self, pools: Collection[str], wanted: int) -> int:
        """How many messages to ask for: at once if any of these pools has room, else when one has.

        Nothing is known of where a queue's messages go until some have gone there. 0 after a while without room.
        """
        if not pools:
            return 0 if await self._memory_short() else wanted
        changed = asyncio.Event()
        self._waiting.add(changed)  # before asking: a signal between the answer and the wait counts
        try:
            room = 0
            for code in pools:
                if self._room.get(code, 0) < wanted:
                    tell_at = max(1, min(self._capacity_of(code) // 4, wanted))
                    self._room[code] = await Pool(self._client, code).room(tell_at)
                room += self._room[code]
            if room and not await self._memory_short():
                return min(room, wanted)
            async with asyncio.timeout(_SWEEP_S):
                await changed.wait()
        except TimeoutError:
            return 0
        finally:
            self._waiting.discard(changed)
        return 0

    async def _memory_short(self) -> bool:
        """Redis is nearly full: what is in flight has to be settled first."""
        if not self._full():
            return False
        await asyncio.sleep(_SWEEP_S)
        return True
