"""One message as it stands in a pool: packed by the coordinator, read by the worker.

In Redis an entry is a field of the pool's `entries`: its key is (queue, broker id), its value the rest.
Scripts read the token and the batch, which come first, the fourth field, and the last one (`lua/with/away.lua`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fleet.state.scripts import SEP

Tier = Literal["r", "h"]


@dataclass(slots=True)
class Entry:
    queue: str
    broker_id: str
    token: str
    """The number of this stay of the message in the fleet. A redelivery after a nack gets a new one."""
    batch: str
    lane: str
    """What is delivered one at a time: the group, or the message itself where no order is asked for."""
    group: str
    submitted_ms: int
    message_id: str
    target: str
    auth_token: str
    source_holds_groups: bool
    high_priority: bool = False
    policy: str = ""
    """What the message itself asks for after a failure, '' for what its pool does."""
    source_has_order: bool = True
    """Whether its source shows a group's messages in their order, at least the first time."""
    tries: int = 0
    """How often it failed in place before this claim."""

    @property
    def key(self) -> str:
        return f"{self.queue}{SEP}{self.broker_id}"

    def fields(self) -> tuple[str, str, str, str, str]:
        """Key, lane, tier, batch and value, as `submit` takes them."""
        value = SEP.join(
            (
                self.token,
                self.batch,
                str(self.submitted_ms),
                "1" if self.source_holds_groups else "0" if self.source_has_order else "-",
                self.message_id,
                self.target,
                self.auth_token,
                "" if self.group == self.lane else self.group,
                self.policy,
            )
        )
        return self.key, self.lane, "h" if self.high_priority else "r", self.batch, value


_FIELDS = 9


def unpack(key: str, value: str, lane: str, tier: str) -> Entry:
    queue, _, broker_id = key.rpartition(SEP)
    fields = value.split(SEP)
    # A value from an older release has fewer. A new field goes before the policy, which scripts read as the last one.
    fields += [""] * (_FIELDS - len(fields))
    token, batch, submitted_ms, holds, message_id, target, auth_token, group, policy = fields[:_FIELDS]
    return Entry(
        queue,
        broker_id,
        token,
        batch,
        lane,
        group or lane,
        int(submitted_ms),
        message_id,
        target,
        auth_token,
        holds == "1",
        tier == "h",
        policy,
        holds != "-",
    )


ACK = "a"
ITEM_SEP = "\x1e"
"""Between the items that one call settled, as the outbox keeps them."""


def park(letter: str) -> str:
    """Acked at its source, and put aside with this letter, a JSON object."""
    return f"p{letter}"


def nack(delay_ms: int) -> str:
    return f"n{delay_ms}"


def outbox_item(entry: Entry, verdict: str) -> str:
    return f"{entry.queue}{SEP}{entry.broker_id}{SEP}{entry.token}{SEP}{verdict}"


def unpack_item(item: str) -> tuple[str, tuple[str, str, str]]:
    """Its queue, and (broker id, token, verdict), as `report` takes them."""
    queue, broker_id, token, verdict = item.rsplit(SEP, 3)
    return queue, (broker_id, token, verdict)
