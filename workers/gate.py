"""May the next message of a lease go out now? Asked right before each request."""

from __future__ import annotations

from enum import Enum

from workers.lease import LaneLease


class Gate(Enum):
    OPEN = "send it"
    LAPSED = "the lease may be somebody else's by now"
    WAIT = "Redis does not answer just now"
    RELEASE = "what is left of it goes back to its lane, in its order"


def gate(lease: LaneLease, now_ms: float) -> Gate:
    if now_ms >= lease.deadline_ms:
        return Gate.LAPSED
    link = lease.link
    if lease.attempt > 0:
        return Gate.OPEN  # what has begun is finished
    if now_ms >= lease.permit_ms:
        return Gate.RELEASE  # its permit is stale: the answer was late, or a probe was waited for
    if lease.at > 0 and (lease.yielding or link.paused or link.stopping or link.policy.rated):
        return Gate.RELEASE
    if lease.at > 0 and link.is_stalled(now_ms):
        return Gate.WAIT
    return Gate.OPEN
