"""Where each message of a batch goes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from fleet.errors import InvalidMessage
from fleet.message import DEFAULT_GROUP, MAX_NAME_CHARACTERS, POLICY_OF, Message, decode
from fleet.sources.base import Received, Source

OWN_LANE = "\x1e"
"""Begins the lane of a message that asks for no order. It is unprintable, so no group has such a name."""


@dataclass(slots=True)
class Routed:
    received: Received
    message: Message
    pool: str
    group: str
    lane: str

    @property
    def policy(self) -> str:
        """What the message itself asks for after a failure; '' for whatever its pool does."""
        mode = self.message.dispatch_mode
        return "" if mode is None else POLICY_OF[mode]

    def is_held_by(self, source: Source) -> bool:
        """Whether its source holds back newer messages of its group. A group in the body is unknown to the source."""
        return source.holds_groups and self.received.group is not None

    def order(self, source: Source) -> str:
        """See `Tracked.order`."""
        if self.lane != self.group or self.is_held_by(source) or not source.shows_in_order:
            return ""
        return ("h" if self.message.high_priority else "r") + self.policy


@dataclass(slots=True)
class Malformed:
    """It can never be delivered, so it is acked and kept with the dead letters."""

    received: Received
    reason: str


def route(batch: Sequence[Received], pool_for: Callable[[str], str]) -> tuple[list[Routed], list[Malformed]]:
    routed: list[Routed] = []
    malformed: list[Malformed] = []
    for received in batch:
        try:
            message = decode(received.body)
            group = received.group or message.message_group_id or DEFAULT_GROUP
            if not received.broker_id.isprintable():
                # Our records separate their fields with such characters.
                raise InvalidMessage("the queue's id of it holds an unprintable character")
            if received.group and (len(group) > MAX_NAME_CHARACTERS or not group.isprintable()):
                raise InvalidMessage("the queue's group name is too long or unprintable")
        except InvalidMessage as error:
            malformed.append(Malformed(received, str(error)))
            continue
        lane = OWN_LANE + received.broker_id if message.dispatch_mode == "IMMEDIATE" else group
        routed.append(Routed(received, message, pool_for(message.pool_code), group, lane))
    return routed, malformed


def overtaking(routed: Sequence[Routed], verdicts: Sequence[str]) -> Iterator[int]:
    """The new messages of a batch whose groups have older ones under way. Its source holds groups.

    Such a source gives both only if it took the older ones for lost: their visibility lapsed while we were away, or
    its clock stepped. How the older ones end is not known yet. Taken in now, the newer ones would be another batch.
    """
    under_way: set[str] = set()
    for i, (r, verdict) in enumerate(zip(routed, verdicts, strict=True)):
        if r.lane != r.group or r.received.group is None:
            continue  # it asks for no order, or its source does not know its group
        if verdict == "redelivered":
            under_way.add(r.group)
        elif verdict == "new" and r.group in under_way:
            yield i
