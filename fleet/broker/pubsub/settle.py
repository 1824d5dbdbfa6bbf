"""Acks and new deadlines, from calls and from streams: what is malformed is refused, what is late is overlooked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleet.broker import acks
from fleet.broker.core import Broker
from fleet.broker.errors import InvalidAckId, InvalidArgument
from fleet.broker.options import ACK_DEADLINE_S
from fleet.broker.pubsub.outstanding import Outstanding
from fleet.broker.pull import What, acked, hidden, nacked


class Settler:
    def __init__(self, broker: Broker, outstanding: Outstanding) -> None:
        self._broker = broker
        self._outstanding = outstanding

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        await self._settle(subscription, [(one, acked) for one in ack_ids])
        self._outstanding.concluded(ack_ids)

    async def modify(self, subscription: str, deadlines: Sequence[tuple[str, int]]) -> None:
        """Each so many seconds from now; 0 is a nack."""
        await self._settle(subscription, [(ack_id, _within(seconds)) for ack_id, seconds in deadlines])
        for ack_id, seconds in deadlines:
            if seconds:
                self._outstanding.extended([ack_id], seconds)
            else:
                self._outstanding.concluded([ack_id])

    async def _settle(self, subscription: str, verdicts: Iterable[tuple[str, What]]) -> None:
        read = [(acks.decode(ack_id), what) for ack_id, what in verdicts]
        for showing, _ in read:
            if showing.subscription != subscription:
                raise InvalidAckId(f"it is of subscription {showing.subscription}, not of {subscription}")
        # Whether each did what it says nobody is told: without exactly-once delivery, a client does not ask.
        await self._broker.settle(subscription, read)


def _within(seconds: int) -> What:
    most_s = ACK_DEADLINE_S[1]
    if not 0 <= seconds <= most_s:
        raise InvalidArgument(f"an ack deadline must be from 0 to {most_s} seconds, is {seconds}")
    return hidden(seconds * 1000) if seconds else nacked
