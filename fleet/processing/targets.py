"""May the target of a job be called now? The circuit breaker of its origin is asked before the job is taken.

They are the workers' breakers, with the workers' rules. What differs is the waiting: a worker holds a message for up to
two seconds while another worker probes. A server holds none: a target that hangs would take the places of all others.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import assert_never

from fleet.delivery.breaker import Ask, Open
from fleet.delivery.origin import origin_of
from fleet.delivery.request import Requests, Ticket
from fleet.state.breakers import RULES

PROBED_DELAY_S = math.ceil(RULES.open_ms / 1000)
"""While another probe is out: as long as after a probe that fails. A target that hangs keeps its prober waiting for the
job's timeout; with a shorter delay, all its other messages would come by many times meanwhile."""

_APART_MS, _MOST_MS = 10, 60_000
"""A hundred a second and server. A job that comes after six thousand others waits no longer than they do."""
_ORIGINS = 1000


@dataclass(frozen=True, slots=True)
class Shut:
    """Nothing may be sent, so nothing is taken."""

    origin: str
    delay_s: int


class Turns:
    """When the jobs of a target that is shut come again: one after the other, however many there are.

    Each return costs a message, and what queue and ledger remember of it. If all came at once, one of them would probe
    and the rest would go back. One after the other, there is always a job to make the next probe as soon as it may.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def next(self, origin: str, *, now_ms: int, not_before_ms: int) -> int:
        latest_ms = max(now_ms + _MOST_MS, not_before_ms)
        due_ms = min(max(not_before_ms, self._last.get(origin, 0) + _APART_MS), latest_ms)
        if len(self._last) >= _ORIGINS:
            self._last = {one: last for one, last in self._last.items() if last > now_ms}
        self._last[origin] = due_ms
        return due_ms


class Targets:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def unasked(self, url: str) -> Ticket:
        """For a job that will hardly be sent: it must not take the permit from one that will."""
        return self._requests.unasked(origin_of(url))

    async def admit(self, url: str) -> Ticket | Shut:
        origin = origin_of(url)
        admitted = self._requests.admit(origin)
        while isinstance(admitted, Ask):
            admitted = await self._ask(origin)
        match admitted:
            case Ticket():
                return admitted
            case Open(probed=True):
                return Shut(origin, PROBED_DELAY_S)
            case Open(retry_after_ms=after_ms):
                return Shut(origin, max(1, math.ceil(after_ms / 1000)))
            case _:
                assert_never(admitted)

    async def _ask(self, origin: str) -> Ticket | Ask | Open:
        told: asyncio.Future[Ticket | Ask | Open] = asyncio.get_running_loop().create_future()

        def decided() -> None:
            # Here, not when we wake: a permit that is not taken by the end of this call is given back.
            if not told.done():
                told.set_result(self._requests.admit(origin))

        left_out = self._requests.ask(origin, decided)
        try:
            return await told
        except asyncio.CancelledError:
            left_out.cancel()
            if told.done() and not told.cancelled() and isinstance(ticket := told.result(), Ticket):
                ticket.close()
            raise
