"""What the owner of a queue remembers of it: since when each tracked message is invisible.

All that is tracked passes through its owner's hands, so it can note in a hundred nanoseconds what an index in Redis
would cost every message in bytes and calls. What it does not know of, because a failover of Redis lost the last writes,
is redelivered, recognised by `track.lua` and known again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from fleet.clock import Clock
from fleet.state.connect import Client
from fleet.state.queue import Queue, Tracking

_OLD_MS = 24 * 3600 * 1000.0
"""Longer than any message stays invisible."""


class Alive:
    """The tracked messages, in the order in which their visibility last began as far as we know."""

    def __init__(self) -> None:
        self._since_ms: dict[str, float] = {}
        """A dict keeps the order of insertion, which is the order of time."""

    def __len__(self) -> int:
        return len(self._since_ms)

    def seen(self, broker_ids: Sequence[str], now_ms: float) -> None:
        """They were taken from the source or extended there, just now."""
        since_ms = self._since_ms
        if not since_ms.keys().isdisjoint(broker_ids):
            self.gone(broker_ids)  # else they would keep their old places
        since_ms.update(dict.fromkeys(broker_ids, now_ms))

    def gone(self, broker_ids: Iterable[str]) -> None:
        forget = self._since_ms.pop
        for broker_id in broker_ids:
            forget(broker_id, None)

    def due(self, before_ms: float) -> list[str]:
        """The oldest. The younger ones are not looked at."""
        return [broker_id for broker_id, _ in takewhile(lambda one: one[1] <= before_ms, self._since_ms.items())]


class OwnedQueue(Queue):
    """A queue as its owner sees it: it notes what is tracked and what is untracked."""

    def __init__(self, client: Client, name: str, *, epoch: str, clock: Clock) -> None:
        super().__init__(client, name, epoch=epoch)
        self.alive = Alive()
        self._clock = clock

    async def track(
        self,
        messages: Sequence[tuple[str, str, str, str, str]],
        *,
        targets: Sequence[str] = (),
        orders: Sequence[str] = (),
    ) -> list[Tracking]:
        now_ms = self._clock.boot_ms()
        tracking = await super().track(messages, targets=targets, orders=orders)
        # A copy is not tracked: only its original is.
        ours = [m[0] for m, t in zip(messages, tracking, strict=True) if t.verdict != "copy"]
        self.alive.seen(ours, now_ms)
        return tracking

    async def untrack(
        self,
        messages: Sequence[tuple[str, str]],
        *,
        only_unsettled: bool = False,
        hidden_ms: Mapping[str, int] | None = None,
    ) -> dict[str, str]:
        gone = await super().untrack(messages, only_unsettled=only_unsettled, hidden_ms=hidden_ms)
        self.alive.gone(gone)
        return gone

    def inherit(self, found: Sequence[tuple[int, str]], redis_ms: int) -> None:
        """Take over what an earlier owner tracked, each with the time by Redis's clock.

        Only that owner knew when it was last extended.
        """
        now_ms = self._clock.boot_ms()
        # A time in the future says nothing of an age: that clock was set right since. The message is due.
        ages_ms = ((redis_ms - at_ms if at_ms <= redis_ms else _OLD_MS, broker_id) for at_ms, broker_id in found)
        for age_ms, broker_id in sorted(ages_ms, reverse=True):
            self.alive.seen([broker_id], now_ms - age_ms)
