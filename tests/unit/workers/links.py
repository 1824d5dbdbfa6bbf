"""A pool's link as the other parts of a worker see it, and leases on it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from fleet.state.pool import Claim, Policy, Settlement
from tests.state.stage import in_group
from workers.lease import LaneLease
from workers.waking import UNPLACED

EPOCH = "7"
FAR_MS = 1e12


class Link:
    """It holds leases and what is owed of them as the real one does, and counts how often it is woken."""

    def __init__(self, code: str = "P", policy: Policy | None = None) -> None:
        self.pool = SimpleNamespace(code=code)
        self.policy = policy or Policy()
        self.paused = self.stopping = self.stalled = self.closed = False
        self.place = UNPLACED
        self.leases: dict[str, LaneLease] = {}
        self.owed: dict[LaneLease, Settlement] = {}
        self.dropped: list[LaneLease] = []
        self.held_back: list[LaneLease] = []
        self.trimmed: list[int] = []
        self.pokes = self.wakes = self.looks = 0
        """A look wakes it, too."""
        self.dues: list[int | None] = []
        self.due = SimpleNamespace(told=self.dues.append)

    @property
    def busy(self) -> bool:
        return bool(self.leases)

    def close(self) -> None:
        self.closed = True

    def is_stalled(self, now_ms: float) -> bool:
        return self.stalled

    def owe(self, lease: LaneLease) -> Settlement:
        return self.owed.setdefault(lease, Settlement(lease.lane, lease.epoch))

    def release(self, lease: LaneLease, how: str = "ready") -> Settlement:
        self.leases.pop(lease.lane, None)
        settlement = self.owe(lease)
        settlement.release = how
        return settlement

    def drop(self, lease: LaneLease) -> None:
        lease.stop()
        self.leases.pop(lease.lane, None)
        self.dropped.append(lease)

    def hold_back(self, lease: LaneLease) -> None:
        self.held_back.append(lease)

    def trim(self, call: int) -> None:
        self.trimmed.append(call)

    def poke(self, *, urgent: bool = False) -> None:
        self.pokes += 1

    def wake(self) -> None:
        self.wakes += 1

    def look(self) -> None:
        self.looks += 1
        self.wake()


def lease_on(
    link: Link, count: int = 1, *, lane: str = "g", deadline_ms: float = FAR_MS, permit_ms: float = FAR_MS, **each: Any
) -> LaneLease:
    """A lease of so many messages; `each` is what they have in common."""
    entries = [replace(entry, **each) for entry in in_group(count, lane)]
    lease = LaneLease(cast(Any, link), Claim(lane, EPOCH, entries), deadline_ms, permit_ms)
    link.leases[lane] = lease
    return lease
