"""The deliveries that take their time, which a worker tells to people who ask why a message is not through.

Most deliveries are over before anybody could ask. So the heartbeat carries what has lasted a second, and nothing is
written anywhere as a delivery begins or ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fleet.process import MOST_DELIVERIES
from workers.lease import LaneLease

SLOW_MS = 1000.0


def slow_deliveries(
    leases: Iterable[LaneLease], *, boot_ms: float, wall_ms: int, timeout_ms: int, attempts: int
) -> list[dict[str, Any]]:
    """The longest first. `until`: when the attempt is given up, or, between two attempts, when the next begins."""
    slow = [lease for lease in leases if lease.attempt and boot_ms - lease.began_ms >= SLOW_MS]
    slow.sort(key=lambda lease: lease.began_ms)
    shift_ms = wall_ms - boot_ms
    found: list[dict[str, Any]] = []
    for lease in slow[:MOST_DELIVERIES]:
        asking = lease.transfer is not None
        until_ms = lease.began_ms + timeout_ms if asking else lease.resumes_ms
        if not asking and until_ms <= boot_ms:
            continue  # answered, and on its way to be settled
        found.append(
            {
                "pool": lease.link.pool.code,
                "group": lease.lane,
                "messageId": lease.entry.message_id,
                "attempt": lease.attempt,
                "of": attempts,
                "asking": asking,
                "began": round(lease.began_ms + shift_ms),
                "until": round(until_ms + shift_ms),
            }
        )
    return found
