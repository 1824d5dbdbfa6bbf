"""How many leases this process may still take, over all its pools."""

from __future__ import annotations

from collections.abc import Callable

from workers.exchange import MAX_CLAIM, PoolLink


class Seats:
    def __init__(self, free: int, is_stopping: Callable[[], bool]) -> None:
        self._free = free
        self._is_stopping = is_stopping
        self._standing: dict[PoolLink, None] = {}
        """Pools that could not ask for work because all seats were taken."""

    @property
    def has_room(self) -> bool:
        return self._free > 0

    def take(self, most: int, link: PoolLink) -> int:
        """As many as are free. A link that gets none is woken when some are."""
        seats = min(most, self._free)
        self._free -= seats
        if not seats:
            self._standing[link] = None
        return seats

    def give(self, seats: int) -> None:
        self._free += seats
        # In the order in which they came, and no more than can sit down: a thousand may stand here.
        room = self._free
        while room > 0 and self._standing and not self._is_stopping():
            link = next(iter(self._standing))
            del self._standing[link]
            link.wake()
            room -= MAX_CLAIM
