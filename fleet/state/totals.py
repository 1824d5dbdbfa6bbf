"""What all processes ever counted, summed up in Redis: the sums go on when a process ends, however it ends.

A process sends what it counted since in numbered pieces, one after the other. Redis keeps the number of the last piece
of each process and takes only the next one: a piece that is sent again, as after a lost reply, counts once. All that is
kept of a process is that number. One that dies loses what it had not sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence

from fleet.metrics.counters import Counted, Counters, Counts, Key
from fleet.state.connect import Client, translated
from fleet.state.keys import FleetKeys
from fleet.state.scan import pages
from fleet.state.scripts import SEP, script

KINDS = ("pool", "delivery", "wait", "queue", "process", "redis_call", "topic", "subscription", "sqs", "sqs_queue")
TTL_MS = 24 * 3600 * 1000
"""For how long a process may be stopped and still be known; it is refreshed each hour."""
_REFRESH_MS = 3600 * 1000
PIECE = 50
"""A call carries at most this many records: half a millisecond here, and less in Redis."""
_PIECES_KEPT = 32
"""A failover of Redis may lose this many that it had confirmed, and they are sent again."""
_READ_AT_ONCE = 1000


class Tally:
    """One process's counters on their way into the totals."""

    def __init__(self, client: Client, name: str, counters: Counters) -> None:
        self._client = client
        self._keys = [FleetKeys.totals, FleetKeys.tallied + name]
        self._counters = counters
        self._sent: deque[list[str]] = deque(maxlen=_PIECES_KEPT)
        """The last pieces that were made; the newest has the number `_made`."""
        self._made = 0
        self._known = 0
        """The number of the last piece that Redis said it has."""
        self._said_ms: float | None = None
        self._one_at_a_time = asyncio.Lock()

    async def tell(self, *, now_ms: float, most: int = PIECE) -> int:
        """Send a piece. Returns how many keys have more to tell. Costs nothing if nothing is new."""
        async with self._one_at_a_time:
            if self._known == self._made:
                records = self._counters.take(min(most, PIECE))
                if records:
                    self._sent.append([_packed(key, counts) for key, counts in records])
                    self._made += 1
                elif self._said_ms is None or now_ms - self._said_ms <= _REFRESH_MS:
                    return 0
            number = min(self._known + 1, self._made)
            # A call with the number of the last piece only keeps us known.
            self._heard(number, await self._call(number))
            self._said_ms = now_ms
            return self._counters.pending + self._made - self._known

    async def tell_all(self, *, now_ms: float) -> None:
        while await self.tell(now_ms=now_ms):
            pass

    async def leave(self, *, now_ms: float) -> None:
        """Tell the rest, and leave nothing behind. Nothing may be counted any more."""
        await self.tell_all(now_ms=now_ms)
        with translated():
            await self._client.delete(self._keys[1])

    async def _call(self, number: int) -> int:
        at = number - self._made + len(self._sent) - 1
        records = self._sent[at] if self._made else []
        return int(await script("tally")(self._client, self._keys, [TTL_MS, number, *records]))

    def _heard(self, number: int, last: int) -> None:
        """`last`: the number that Redis has of us now, after we sent this one."""
        if last == 0 and number > 1:
            # Redis was wiped: the totals begin anew, with all that we know.
            self._counters.take_again()
            self._sent.clear()
            self._made = self._known = 0
            return
        oldest = self._made - len(self._sent) + 1
        if last + 1 < oldest:
            # It lost more than we keep. What we do keep follows what it has.
            self._made -= oldest - (last + 1)
        self._known = min(last, self._made)


async def totals(client: Client, kinds: Sequence[str] = KINDS) -> Counted:
    """The sums of these kinds, each kind read once."""
    found: Counted = {}
    for kind in kinds:
        for of, packed in (await _records(client, kind)).items():
            found[kind, of] = _unpacked(packed)
    return found


async def labels(client: Client, kind: str) -> set[str]:
    """The names for which anything of that kind was counted."""
    return set(await _records(client, kind))


async def forget(client: Client, kind: str, gone: Iterable[str]) -> None:
    """Forget what was counted of pools or queues that are gone: new ones come without end, so old ones must go."""
    names = list(gone)
    for first in range(0, len(names), _READ_AT_ONCE):
        with translated():
            await client.hdel(FleetKeys.totals + kind, *names[first : first + _READ_AT_ONCE])


async def _records(client: Client, kind: str) -> dict[str, str]:
    found: dict[str, str] = {}
    async for page in pages(client.hscan, FleetKeys.totals + kind, count=_READ_AT_ONCE):
        found |= page
    return found


def _packed(key: Key, counts: Counts) -> str:
    words = [*key]
    for which, more in counts.items():
        words += (which, str(more))
    return SEP.join(words)


def _unpacked(packed: str) -> Counts:
    words = packed.split(SEP)
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))
