"""What an outcome means for the lease and its message: what is owed to the pool, and whether the lease goes on."""

from __future__ import annotations

import logging
from typing import assert_never

from fleet.letter import parked
from fleet.outcome import (
    CASCADE_RETRY_S,
    Delivered,
    Failed,
    NotSent,
    Outcome,
    Refenced,
    Rejected,
    Uncallable,
    Unreachable,
    retry_delay_s,
)
from fleet.state.entry import ACK, nack, outbox_item, park
from fleet.state.pool import failed, fenced, in_place
from workers.lease import LaneLease

log = logging.getLogger("fleet.worker")

FENCED_PAUSE_MS = 1000
"""A group whose endpoint refused our epoch rests this long: if Redis thinks the lease is ours, asking again at
once would be refused again at once."""
TOO_MANY_REQUESTS = 429


def settle(lease: LaneLease, outcome: Outcome) -> bool:
    """Owe the outcome to the pool. True if the lease goes on with its next message."""
    match outcome:
        case Delivered():
            return _go_on(lease, ACK)
        case Rejected():
            # Acked too: an endpoint that answers 404 today would do so for ever.
            return _give_up(lease, ACK)
        case Uncallable(reason=reason):
            # Kept: no endpoint has had it, and with another URL it can be sent again.
            return _give_up(lease, park(parked(lease.entry, pool=lease.link.pool.code, reason=reason)))
        case Failed(retry_s=seconds, status=status, reason=reason):
            # Busy says nothing about the message: it is not a reason to put it aside.
            return _fail(lease, retry_delay_s(seconds), reason, counts=status != TOO_MANY_REQUESTS)
        case Unreachable(reason=reason) | NotSent(reason=reason):
            return _fail(lease, retry_delay_s(None), reason, counts=False)
        case Refenced():
            lease.link.release(lease, fenced(FENCED_PAUSE_MS))
            return False
        case _:
            assert_never(outcome)


def _fail(lease: LaneLease, delay_s: int, reason: str, *, counts: bool) -> bool:
    """Do what the message asks for after a failure, or else what its pool does."""
    policy = lease.link.policy
    on_failure = lease.entry.policy or policy.on_failure
    if policy.draining and on_failure == "hold":
        on_failure = "return"  # a pool that is going away would wait for its endpoint
    match on_failure:
        case "skip":
            return _go_on(lease, nack(delay_s * 1000))
        case "park" if counts and lease.entry.tries + 1 >= policy.park_after:
            return _give_up(lease, park(parked(lease.entry, pool=lease.link.pool.code, reason=reason)))
        case "hold" | "park":
            delay_ms = delay_s * 1000
            lease.link.release(lease, in_place(delay_ms) if counts else str(delay_ms))
            return False
        case _:
            _return(lease, delay_s)
            return False


def _go_on(lease: LaneLease, verdict: str) -> bool:
    """The message is done with here; the next of its group follows."""
    item = outbox_item(lease.entry, verdict)
    lease.at += 1
    if lease.at < len(lease.entries):
        lease.link.owe(lease).items.append(item)
        return True
    lease.link.release(lease).items.append(item)
    return False


def _give_up(lease: LaneLease, verdict: str) -> bool:
    """Newer messages of its group wait until the pool knows: if it never did, this one would be sent after them."""
    item = outbox_item(lease.entry, verdict)
    lease.at += 1
    lease.link.release(lease).items.append(item)
    return False


def _return(lease: LaneLease, delay_s: int) -> None:
    """Nack the message, and what its group still holds of its batch, or of its queue if that holds groups."""
    entry = lease.entry
    settlement = lease.link.release(lease)
    settlement.items.append(outbox_item(entry, nack(delay_s * 1000)))
    # Siblings come back sooner only where the source will not show them before the head of their group.
    cascade_s = CASCADE_RETRY_S if entry.source_holds_groups else max(CASCADE_RETRY_S, delay_s)
    queue = entry.queue if entry.source_holds_groups else ""
    settlement.release = failed(cascade_s * 1000, entry.batch, queue)
