"""Brings dead letters from the outbox of a subscription to their topic: never lost, never twice, in their order.

Whoever dies half-way is followed by another who begins at the same head of the outbox; the topic knows how far it was.
"""

from __future__ import annotations

import logging

import msgspec

from fleet.broker.counts import SUBSCRIPTION
from fleet.broker.directory import Audience, Directory, Pulled
from fleet.broker.errors import TopicNotFound
from fleet.broker.message import unpack
from fleet.broker.publish import copies
from fleet.broker.pull import id_of
from fleet.metrics.counters import Counters
from fleet.state.engine import Moving
from fleet.state.topic import Copies, Full

log = logging.getLogger("fleet.broker")

_AT_ONCE = 100


class _NoAudience(Exception):
    """The topic would throw them away."""


class Courier:
    def __init__(self, directory: Directory, counters: Counters) -> None:
        self._directory = directory
        self._counters = counters
        self._said: dict[tuple[str, str], str] = {}
        """Why a subscription's dead letters wait, as was said once."""

    async def carry(self, pulled: Pulled) -> int:
        """Everything that waits in its outboxes. Returns how many had to stay."""
        stay = 0
        for topic in sorted(await pulled.engine.targets()):
            why = await self._carry_to(topic, pulled)
            if why and self._said.get((pulled.name, topic)) != why:
                log.warning("dead letters of subscription %s wait: %s", pulled.name, why)
            self._said[pulled.name, topic] = why
            if why:
                stay += len(await pulled.engine.outgoing(topic, _AT_ONCE))
        return stay

    async def _carry_to(self, topic: str, pulled: Pulled) -> str:
        """'' once its outbox for that topic is empty, or why it is not."""
        source = f"{pulled.engine.prefix}{pulled.record.incarnation}"
        while moving := await pulled.engine.outgoing(topic, _AT_ONCE):

            async def bring(audience: Audience, moving: list[Moving] = moving) -> None:
                if not audience.names:
                    raise _NoAudience
                letters = [_letter(pulled, one, audience) for one in moving]
                published = await audience.topic.publish(letters, audience.names, source=source)
                # What has arrived before has the number 0.
                if arrived := sum(map(bool, published.numbers)):
                    self._counters.add(SUBSCRIPTION, pulled.name, "dead_lettered", arrived)

            try:
                await self._directory.with_audience(topic, bring)
            except TopicNotFound as error:
                return error.message
            except _NoAudience:
                return f"topic {topic} has no subscriptions"
            except Full as error:
                return str(error)
            await pulled.engine.leave(topic, moving[-1].place)
        return ""


def _letter(pulled: Pulled, moving: Moving, audience: Audience) -> Copies:
    header, data = unpack(moving.stored)
    number = int(moving.number)
    kept = msgspec.structs.replace(
        header,
        id=id_of(pulled, number, header.id),
        published_us=header.published_us or number,
        origin=pulled.name,
    )
    return copies(audience, kept, data, place=moving.place)
