"""Names and when each is to be looked at: what is there costs nothing, only what is due.

Whoever takes names has them come due again after a while, should he die with them; what he is done with, he forgets,
unless somebody has asked for another look meanwhile. One process takes at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fleet.state.connect import Client, translated


class Due:
    def __init__(self, client: Client, key: str) -> None:
        self._client = client
        self._key = key

    async def take(self, now_ms: int, *, most: int, again_ms: int, furthest_ms: int) -> list[str]:
        """The names that are due, the longest overdue first. They come due again at `again_ms`.

        Nobody puts one off beyond `furthest_ms`: what stands there was put by a clock that has stepped back since, or
        by another's that is ahead, and is due as well.
        """
        with translated():
            names = list(await self._client.zrangebyscore(self._key, "-inf", now_ms, start=0, num=most))
            names += await self._client.zrangebyscore(self._key, f"({furthest_ms}", "+inf", start=0, num=most)
            if names:
                # Not those that were removed meanwhile.
                await self._client.zadd(self._key, dict.fromkeys(names, again_ms), xx=True)
        return names

    async def done(self, again_ms: int) -> None:
        """Forget what was taken until then, and not put to another time since."""
        with translated():
            await self._client.zremrangebyscore(self._key, again_ms, again_ms)

    async def put(self, at_ms: Mapping[str, int], *, only_new: bool = False) -> None:
        if at_ms:
            with translated():
                await self._client.zadd(self._key, dict(at_ms), nx=only_new)

    async def forget(self, names: Iterable[str]) -> None:
        if gone := list(names):
            with translated():
                await self._client.zrem(self._key, *gone)
