"""A lease on a lane, as the worker that holds it knows it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fleet.state.entry import Entry
from fleet.state.pool import Claim

if TYPE_CHECKING:
    from fleet.delivery.client import Transfer
    from fleet.delivery.request import Ticket
    from workers.exchange import PoolLink


class LaneLease:
    """The right to deliver a lane, and the messages that were at its head when it was granted."""

    __slots__ = (
        "at",
        "attempt",
        "began_ms",
        "deadline_ms",
        "entries",
        "epoch",
        "lane",
        "link",
        "permit_ms",
        "probed_since_ms",
        "resumes_ms",
        "retry",
        "ticket",
        "transfer",
        "yielding",
    )

    def __init__(self, link: PoolLink, claim: Claim, deadline_ms: float, permit_ms: float = float("inf")) -> None:
        self.link = link
        self.lane = claim.lane
        self.epoch = claim.epoch
        self.entries = claim.entries
        self.deadline_ms = deadline_ms
        self.permit_ms = permit_ms
        """Until when its delivery may begin on the permit it was claimed with."""
        self.at = 0
        self.attempt = 0
        self.began_ms = 0.0
        """When its attempt began. `resumes_ms`: when the next one does, if that failed."""
        self.resumes_ms = 0.0
        self.probed_since_ms = 0.0
        self.yielding = False
        self.ticket: Ticket | None = None
        """The ticket of its request, or of the last one."""
        self.transfer: Transfer | None = None
        self.retry: asyncio.TimerHandle | None = None

    @property
    def entry(self) -> Entry:
        return self.entries[self.at]

    def waits_for_probe(self, now_ms: float, patience_ms: float) -> bool:
        """Whether its message may wait on while a probe finds out if its endpoint works again."""
        self.probed_since_ms = self.probed_since_ms or now_ms
        return now_ms - self.probed_since_ms < patience_ms

    def stop(self) -> None:
        """Abort what is under way for it."""
        if self.transfer is not None:
            self.transfer.abort()
            self.transfer = None
        if self.retry is not None:
            self.retry.cancel()
            self.retry = None
        if self.ticket is not None:
            self.ticket.close()
