"""The right to one thing, such as the lead or a source queue. (Leases on lanes are kept by their pool, many at once.)

The server judges expiry by its own clock. The holder reads its own clock *before* it asks, so for the
holder the lease ends earlier than for the server, and between the two nobody acts.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleet.clock import Clock
from fleet.errors import StateUnavailable
from fleet.state.connect import Client
from fleet.state.scripts import script


def safe_deadline(asked_at_ms: float, ttl_ms: int) -> float:
    """Until when a holder may act on a lease it asked for at `asked_at_ms`, by its own clock."""
    return asked_at_ms + ttl_ms - max(ttl_ms * 0.1, min(200.0, ttl_ms * 0.4))


@dataclass(frozen=True, slots=True)
class HeldBy:
    """Another process has it."""

    owner: str
    epoch: str
    remaining_ms: int


class Lease:
    """One lease as one process sees it."""

    def __init__(self, *, client: Client, key: str, owner: str, ttl_ms: int, clock: Clock, now_ms: str = "") -> None:
        self._client = client
        self._key = key
        self._owner = owner
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._now_ms = now_ms
        self._deadline_ms = 0.0
        self.epoch = ""
        self.above = "0"
        """An epoch that a process remembers, perhaps from before the server lost it: our next grant is above it."""
        self.was_released = False
        """Whether the holder before us gave it back, as far as the server knows."""
        self.held_by: HeldBy | None = None

    @property
    def held(self) -> bool:
        """Whether we may act on it now."""
        return bool(self.epoch) and self._clock.boot_ms() < self._deadline_ms

    @property
    def ageing(self) -> bool:
        """Whether it is time to renew it: a third of its life is over."""
        return self._deadline_ms - self._clock.boot_ms() < self._ttl_ms * 0.6

    async def acquire(self) -> bool:
        asked_at_ms = self._clock.boot_ms()
        answer = await self._call("acquire", self.above)
        if answer[0] == "granted":
            self.epoch = str(answer[1])
            self.was_released = bool(int(answer[2]))
            self._deadline_ms = safe_deadline(asked_at_ms, self._ttl_ms)
            self.held_by = None
            return self.held
        self.epoch = ""
        self.held_by = HeldBy(str(answer[2]), str(answer[1]), int(answer[3]))
        return False

    async def renew(self) -> bool:
        """False once it is lost. A lease that we let lapse by our own clock is lost, whatever the server says."""
        if not self.held:
            self.drop()
            return False
        asked_at_ms = self._clock.boot_ms()
        try:
            answer = await self._call("renew")
        except StateUnavailable:
            # It may still be ours, until the deadline we had.
            return self.held
        if answer[0] != "kept":
            self.drop()
            return False
        self._deadline_ms = safe_deadline(asked_at_ms, self._ttl_ms)
        return True

    async def release(self) -> None:
        """Give it back, so that the next holder need not wait."""
        if self.epoch:
            epoch, self.epoch = self.epoch, ""
            await self._call("release", epoch)

    def drop(self) -> None:
        """Stop acting on it, without telling anybody."""
        self.epoch = ""

    async def _call(self, verb: str, epoch: str = "") -> list[str]:
        arguments: list[str | int] = [self._now_ms, verb, self._owner, self._ttl_ms, epoch or self.epoch]
        answer: list[str] = await script("lease")(self._client, [self._key], arguments)
        return answer
