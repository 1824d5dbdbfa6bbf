"""The one way a request leaves Fleet: egress → breaker → sign → post → record. Workers and jobs both use it.

A caller first asks whether it may send (`admit`), as it may have to wait, or to claim something before it sends. Then
it posts on the ticket that it got. What came of that is recorded before the caller hears of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from fleet.clock import Clock
from fleet.delivery.breaker import Ask, Open, Probe, spoke
from fleet.delivery.breakers import Breakers
from fleet.delivery.client import BadUrl, HttpClient, Transfer
from fleet.delivery.origin import origin_of
from fleet.delivery.reply import Reply
from fleet.outcome import Failed, NotSent, Uncallable
from fleet.sign import Signer


class Ticket:
    """Permission to send one request to an origin. Its holder posts on it, or closes it."""

    __slots__ = ("_breakers", "_probes", "origin")

    def __init__(self, breakers: Breakers, origin: str, *, probes: bool = False) -> None:
        self._breakers = breakers
        self.origin = origin
        self._probes = probes
        """Whether it holds the fleet's permit to probe: until it is closed, or its answer is recorded."""

    def record(self, reply: Reply, now_ms: float) -> None:
        works = spoke(reply)
        if works is None:
            self.close()  # no endpoint was asked, so nothing is known
            return
        probes, self._probes = self._probes, False
        self._breakers.record(self.origin, works, now_ms, probe=probes)

    def close(self) -> None:
        """Give the permit back if nothing was found out with it. Idempotent."""
        if self._probes:
            self._probes = False
            self._breakers.release(self.origin)


class Requests:
    """The requests of one process. `drop_lapsed` aborts what may not be sent any more."""

    def __init__(
        self,
        *,
        client: HttpClient,
        clock: Clock,
        breakers: Breakers,
        forbids_url: Callable[[str], bool],
        asleep_ms: float,
        drop_lapsed: Callable[[], None],
    ) -> None:
        self._client = client
        self._clock = clock
        self._breakers = breakers
        self._forbids_url = forbids_url
        self._asleep_ms = asleep_ms
        self._drop_lapsed = drop_lapsed
        self._awake_ms = clock.boot_ms()
        client.before_io = self._before_io

    def forbidden(self, url: str) -> NotSent | None:
        """Judged by its name, here and in `post`; its address is judged when a connection is opened to it.

        Ask before `admit`: what may not be sent needs no permit, and spends no attempt.
        """
        if self._forbids_url(url):
            return NotSent(f"egress rules forbid {origin_of(url)}", warn=True)
        return None

    def admit(self, origin: str) -> Ticket | Ask | Open:
        """May a request go there now? At `Ask` the caller has to wait: see `ask`."""
        admitted = self._breakers.admit(origin, self._clock.boot_ms())
        if isinstance(admitted, Ask | Open):
            return admitted
        return Ticket(self._breakers, origin, probes=isinstance(admitted, Probe))

    def unasked(self, origin: str) -> Ticket:
        """For a request that will hardly be sent: it may not take the permit from one that will."""
        return Ticket(self._breakers, origin)

    def ask(self, origin: str, decided: Callable[[], object]) -> asyncio.TimerHandle:
        """Ask the fleet for the permit. `decided` is called once, later: admit again then. See `Breakers.ask`."""
        return self._breakers.ask(origin, decided)

    def post(
        self,
        ticket: Ticket,
        url: str,
        headers: list[str],
        body: bytes,
        *,
        message_id: str,
        signer: Signer | None,
        timeout_ms: int,
        done: Callable[[Reply], None],
    ) -> Transfer | NotSent | Failed | Uncallable:
        """`done` gets the reply, in a later turn of the loop. If an outcome is returned instead, nothing was sent."""
        forbidden = self.forbidden(url)
        if forbidden is not None:
            ticket.close()
            return forbidden
        if signer is not None:
            headers += signer.headers(message_id, self._clock.wall_ms() // 1000, body)
        try:
            return self._client.post(
                url, headers, body, timeout_ms=timeout_ms, done=partial(self._answered, ticket, done)
            )
        except Exception as error:
            ticket.close()
            if isinstance(error, BadUrl):
                return Uncallable(f"not a URL that can be called: {error}")
            # Whatever it is, it is not an answer from the endpoint: never an ack.
            return Failed(f"the request cannot be made ({type(error).__name__}: {error})", unexpected=True)

    def _answered(self, ticket: Ticket, done: Callable[[Reply], None], reply: Reply) -> None:
        ticket.record(reply, self._clock.boot_ms())
        done(reply)

    def _before_io(self) -> None:
        """A process that was stopped, or hung, wakes with requests that libcurl has not written yet."""
        now_ms = self._clock.boot_ms()
        slept, self._awake_ms = now_ms - self._awake_ms > self._asleep_ms, now_ms
        if slept:
            self._drop_lapsed()
