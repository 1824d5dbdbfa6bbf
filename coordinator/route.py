"""Where each message of a batch goes. Pure: it reads the batch and the view, and decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleet.errors import InvalidMessage
from fleet.message import DEFAULT_GROUP, MAX_NAME_CHARACTERS, Message, decode
from fleet.sources.base import Received

OWN_LANE = "\x1e"
"""Begins the lane of a message that asks for no order. Unprintable, so that no group can be named like one."""


@dataclass(slots=True)
class Routed:
    received: Received
    message: Message
    pool: str
    group: str
    lane: str


@dataclass(slots=True)
class Malformed:
    """It can never be delivered: acked, and kept with the dead letters."""

    received: Received
    reason: str


def route(batch: Sequence[Received], pool_for: Callable[[str], str]) -> tuple[list[Routed], list[Malformed]]:
    routed: list[Routed] = []
    malformed: list[Malformed] = []
    for received in batch:
        try:
            message = decode(received.body)
            group = received.group or message.message_group_id or DEFAULT_GROUP
            if received.group and (len(group) > MAX_NAME_CHARACTERS or not group.isprintable()):
                raise InvalidMessage("the queue's group name is too long or unprintable")
        except InvalidMessage as error:
            malformed.append(Malformed(received, str(error)))
            continue
        lane = OWN_LANE + received.broker_id if message.dispatch_mode == "IMMEDIATE" else group
        routed.append(Routed(received, message, pool_for(message.pool_code), group, lane))
    return routed, malformed
