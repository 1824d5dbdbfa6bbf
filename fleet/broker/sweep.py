"""Once a minute: what nobody pulls grows old, what others left undone is finished.

One process does it, by a lease. A pull does the same for its own subscription, so only what is idle waits for this.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from fleet.broker.counts import SUBSCRIPTION
from fleet.broker.directory import Directory, Pulled
from fleet.broker.errors import BrokerError
from fleet.broker.pull import rules_of
from fleet.broker.register import Register
from fleet.metrics.counters import Counters

log = logging.getLogger("fleet.broker")

MOST_CARRIED = 200
"""Subscriptions looked at in one go: each costs a call."""


class Sweeper:
    def __init__(
        self,
        directory: Directory,
        register: Register,
        carry: Callable[[Pulled], Awaitable[object]],
        counters: Counters,
    ) -> None:
        self._directory = directory
        self._register = register
        self._counters = counters
        self._carry = carry
        self._carried = ""
        """Behind which name the next turn begins."""

    async def sweep(self) -> None:
        """Drop what is too old, move what was shown too often, clear what was thrown away."""
        await self._register.finish_removals()
        for name in await self._directory.subscriptions():
            await self._each(name, self._sweep_one)

    async def carry(self) -> None:
        """Dead letters that somebody moved and did not bring: of some subscriptions in turn, if there are many."""
        names = [
            name for name, one in (await self._directory.subscriptions()).items() if one.options.dead_letter_policy
        ]
        behind = [name for name in names if name > self._carried]
        turn = (behind or names)[:MOST_CARRIED]
        for name in turn:
            await self._each(name, self._carry)
        self._carried = turn[-1] if len(names) > MOST_CARRIED else ""

    async def _each(self, name: str, job: Callable[[Pulled], Awaitable[object]]) -> None:
        try:
            await self._directory.with_subscription(name, job)
        except BrokerError as error:
            log.info("subscription %s is left for later: %s", name, error)

    async def _sweep_one(self, pulled: Pulled) -> None:
        if pulled.record.detached:
            # Who deleted its topic may have died before he said so here, and nobody asks it for anything any more.
            await pulled.engine.establish()
        else:
            tidied = await pulled.engine.tidy(rules_of(pulled))
            if tidied.dropped:
                self._counters.add(SUBSCRIPTION, pulled.name, "expired", tidied.dropped)
            if tidied.moved:
                await self._carry(pulled)
        await pulled.engine.clear()
