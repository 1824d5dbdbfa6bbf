"""What streams have given and nobody has concluded: a stream gives no more than its client said it holds.

A client acks by calls of their own and not by its stream, so who acks is looked up here, whichever stream it was. What
was acked at another door is out here until its deadline, and no longer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from fleet.broker.message import PulledMessage
from fleet.broker.pubsub.messages import size_of
from fleet.waiting import happens

AT_ONCE = 100
"""Pulled for a stream, at most: other streams of the subscription are to get their part."""


class Outstanding:
    """Of the whole door: which stream waits for which ack id."""

    def __init__(self) -> None:
        self._streams: dict[str, Budget] = {}

    @contextlib.contextmanager
    def budget(self, *, messages: int, size: int, time_s: Callable[[], float]) -> Iterator[Budget]:
        """For a stream, as long as it lasts. 0 or less: no limit."""
        budget = Budget(self._streams, messages, size, time_s)
        try:
            yield budget
        finally:
            budget.close()

    def concluded(self, ack_ids: Iterable[str]) -> None:
        for ack_id in ack_ids:
            if ack_id in self._streams:
                self._streams[ack_id].take_off(ack_id)

    def extended(self, ack_ids: Iterable[str], seconds: int) -> None:
        for ack_id in ack_ids:
            if ack_id in self._streams:
                self._streams[ack_id].put_off(ack_id, seconds)


class Budget:
    """Of one stream."""

    def __init__(self, streams: dict[str, Budget], messages: int, size: int, time_s: Callable[[], float]) -> None:
        self._streams = streams
        self._messages = messages
        self._size = size
        self._time_s = time_s
        self._sizes: dict[str, int] = {}
        self._until_s: dict[str, float] = {}
        self._total = 0
        self._changed = asyncio.Event()

    def put_on(self, messages: Sequence[PulledMessage], deadline_s: float) -> None:
        if self._messages <= 0 and self._size <= 0:
            return
        until_s = self._time_s() + deadline_s
        for one in messages:
            self._sizes[one.ack_id] = size_of(one)
            self._until_s[one.ack_id] = until_s
            self._total += self._sizes[one.ack_id]
            self._streams[one.ack_id] = self

    def take_off(self, ack_id: str) -> None:
        self._total -= self._sizes.pop(ack_id)
        del self._until_s[ack_id]
        # What was given back unseen may be with another stream by now, under the same ack id.
        if self._streams.get(ack_id) is self:
            del self._streams[ack_id]
        self._changed.set()

    def put_off(self, ack_id: str, seconds: int) -> None:
        self._until_s[ack_id] = self._time_s() + seconds
        self._changed.set()  # it may be earlier than what is waited for

    def close(self) -> None:
        for ack_id in list(self._sizes):
            self.take_off(ack_id)

    @property
    def room(self) -> int:
        """For how many messages. By bytes, the one that reaches the limit is still given, as Pub/Sub does it."""
        if self._size > 0 and self._total >= self._size:
            return 0
        return min(AT_ONCE, self._messages - len(self._sizes)) if self._messages > 0 else AT_ONCE

    async def has_room(self) -> int:
        """Waits for it."""
        while self.room <= 0:
            self._changed.clear()
            await happens(self._changed, within_s=max(0.0, min(self._until_s.values()) - self._time_s()))
            now_s = self._time_s()
            for ack_id in [one for one, until_s in self._until_s.items() if until_s <= now_s]:
                self.take_off(ack_id)
        return self.room
