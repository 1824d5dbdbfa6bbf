"""How much to ask a source for: what is known of the pools goes in, a number or a wait comes out.

Pure: `rooms.py` asks the pools and does the waiting.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from coordinator.put_off import PoolLimits
from fleet.state.pool import SHARE

PATIENCE_MS = 1000.0
"""A pool that has been short of room for less than this is only busy, and is waited for: a refusal would put its
messages off for up to half a minute. One that has been short for longer is slow, and the others go on without it."""
REGAIN = 0.03
"""How fast patience comes back, per ms. So a pool costs the others a thirtieth of their time at most."""
SWEEP_S = 1.0
"""The longest wait. A lost signal costs this much."""
_GLANCE_S = 0.1
"""A pool with few groups may run out of work before it has room for a whole batch, and tells us."""
_LEAST_S = 0.05


@dataclass(frozen=True, slots=True)
class Room:
    """One pool, as one wait sees it. What changes meanwhile counts for the next wait."""

    share: float
    """The part of a batch that goes to this pool."""
    free: int
    limits: PoolLimits
    short_ms: float | None
    """For how long it has been short of room; None: it is not."""
    spent_ms: float
    """How much of the patience with it is used up."""

    @property
    def busy(self) -> bool:
        return self.short_ms is not None and self.short_ms < PATIENCE_MS


@dataclass(frozen=True, slots=True)
class Poll:
    count: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait this long for room. `patient`: the pools waited for. `starving`: another pool pays for the wait."""

    seconds: float
    patient: tuple[str, ...]
    starving: bool


def decide(
    rooms: Mapping[str, Room], wanted: int, *, starving: bool, may_probe: bool = False, by_groups: bool = False
) -> Poll | Wait:
    """How much to ask a source for, or how long to wait for room. `starving`: a pool with room lacks work."""
    roomy = [room for room in rooms.values() if room.short_ms is None]
    patient = tuple(code for code, room in rooms.items() if room.busy and (not starving or room.spent_ms < PATIENCE_MS))
    if roomy and not patient:
        # The next batch may be mixed differently from the last, so reckon with twice the share.
        fits = min(room.free / min(1.0, 2 * room.share + 0.05) for room in roomy)
        return Poll(max(1, min(wanted, math.floor(fits))))
    if may_probe and not roomy and not patient:
        return Poll(min(wanted, SHARE))
    if not starving:
        return Wait(_GLANCE_S if by_groups and roomy else SWEEP_S, patient, starving)
    # The others pay for this wait, so it ends when the patience does.
    left_s = min((PATIENCE_MS - rooms[code].spent_ms) / 1000 for code in patient) if patient else SWEEP_S
    return Wait(max(_LEAST_S, min(SWEEP_S, left_s)), patient, starving)


def starves(limits: PoolLimits, to_do: int, *, by_groups: bool) -> bool:
    """Whether a pool has less to do than it could work on at once.

    Counted in groups it needs twice as much: a group may be done before the wait is, so others must stand behind it.
    """
    return to_do < (2 if by_groups else 1) * limits.concurrency


@dataclass(frozen=True, slots=True)
class Need:
    """The room a pool should have before its queue is polled."""

    worth: int
    """With less than this it is short of room."""
    tell_at: int
    """A pool that is short tells us once it has this much."""


def need_of(share: float, wanted: int, capacity: int, *, known: int) -> Need | None:
    """None if it is known to have enough room: then it is not asked."""
    needed = math.ceil(wanted * share)
    if known >= needed:
        return None
    # A share of a batch makes a poll worthwhile, or a quarter of a pool that is smaller than that.
    quarter = capacity // 4
    worth = max(1, min(SHARE, needed, quarter))
    return Need(worth, max(worth, min(needed, quarter)))


class Patience:
    """How long each pool has kept starving ones waiting: one that is always a little short is slow, too."""

    def __init__(self) -> None:
        self._spent: dict[str, tuple[float, float]] = {}
        """How much of it is used up, and as of when."""

    def spent_ms(self, code: str, now_ms: float) -> float:
        spent_ms, as_of_ms = self._spent.get(code, (0.0, now_ms))
        return max(0.0, spent_ms - (now_ms - as_of_ms) * REGAIN)

    def spend(self, code: str, since_ms: float, now_ms: float) -> None:
        self._spent[code] = self.spent_ms(code, since_ms) + now_ms - since_ms, now_ms
