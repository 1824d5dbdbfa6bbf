"""Owns the sequence of a lease: gate → mediate → settle → the next message, or the end."""

from __future__ import annotations

import asyncio
from typing import assert_never

from fleet import failpoint
from fleet.clock import Clock
from fleet.delivery.classify import classify
from fleet.delivery.reply import Reply
from fleet.outcome import Failed, Outcome, Unreachable
from workers.account import Account
from workers.gate import Gate, gate
from workers.lease import LaneLease
from workers.mediate import Mediator
from workers.settle import settle

ATTEMPTS = 3
BACKOFF_S = (1.0, 2.0)


class Deliveries:
    """The deliveries of one worker. Each step ends by calling the next, so that a message costs no task of its own."""

    def __init__(
        self,
        *,
        mediator: Mediator,
        account: Account,
        clock: Clock,
        backoff_s: tuple[float, float] = BACKOFF_S,
    ) -> None:
        self._mediator = mediator
        self._account = account
        self._clock = clock
        self._backoff_s = backoff_s

    def deliver(self, lease: LaneLease) -> None:
        """Deliver the next message under this lease."""
        lease.attempt = 0
        lease.probed_since_ms = 0.0
        self._attempt(lease)

    def _attempt(self, lease: LaneLease) -> None:
        lease.retry = None
        now_ms = self._clock.boot_ms()
        verdict = gate(lease, now_ms)
        match verdict:
            case Gate.OPEN:
                outcome = self._mediator.send(lease, now_ms, again=self._attempt, answered=self._answered)
                if outcome is not None:
                    # Not at once: a thousand messages for one dead endpoint would be a thousand calls deep.
                    asyncio.get_running_loop().call_soon(self._not_sent, lease, outcome)
            case Gate.WAIT:
                lease.link.hold_back(lease)
            case Gate.RELEASE:
                lease.link.release(lease)
                lease.link.poke()
            case Gate.LAPSED:
                lease.link.drop(lease)
            case _:
                assert_never(verdict)

    def _not_sent(self, lease: LaneLease, outcome: Outcome) -> None:
        if lease.link.leases.get(lease.lane) is lease:
            self._ended(lease, outcome, 0.0)

    def _answered(self, lease: LaneLease, reply: Reply) -> None:
        lease.transfer = None
        now_ms = self._clock.boot_ms()
        if now_ms >= lease.deadline_ms:
            # Read too late: another worker may deliver this lane by now, and its answer counts.
            lease.link.drop(lease)
            return
        failpoint.hit("answered")
        outcome = classify(reply)
        again = isinstance(outcome, Failed | Unreachable) and outcome.worth_another_attempt
        if again and lease.attempt < ATTEMPTS and not lease.link.stopping:
            delay_s = self._backoff_s[lease.attempt - 1]
            lease.resumes_ms = now_ms + delay_s * 1000
            lease.retry = asyncio.get_running_loop().call_later(delay_s, self._attempt, lease)
            return
        self._ended(lease, outcome, reply.seconds)

    def _ended(self, lease: LaneLease, outcome: Outcome, seconds: float) -> None:
        self._account.ended(lease, outcome, seconds)
        if settle(lease, outcome):
            self.deliver(lease)
        lease.link.poke()
