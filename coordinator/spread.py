"""How a queue's messages were spread over the pools, which tells where the next batch will go. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

REMEMBERED = 5000
"""How many messages are remembered. Older ones count less and less."""


class Spread:
    def __init__(self) -> None:
        self._fed: Counter[str] = Counter()

    def found(self, pools: Iterable[str]) -> None:
        """An earlier owner had messages for these."""
        self._fed.update(pools)

    def taken(self, pool: str, count: int) -> None:
        self._fed[pool] += count
        if sum(self._fed.values()) > REMEMBERED:
            self._fed = Counter({code: count // 2 for code, count in self._fed.items() if count > 1})

    def shares(self, pools: Collection[str]) -> dict[str, float]:
        """The part of a batch that goes to each of these pools, judging by the last batches.

        A pool that is no longer configured never has room. Its messages go elsewhere now.
        """
        fed = {code: count for code, count in self._fed.items() if code in pools}
        total = sum(fed.values())
        return {code: count / total for code, count in fed.items()}
