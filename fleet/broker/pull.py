"""Pull, and what becomes of what was pulled: ack, nack, a new deadline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fleet.broker.acks import Showing, decode, encode
from fleet.broker.directory import Directory, Pulled
from fleet.broker.errors import InvalidAckId, InvalidArgument, SubscriptionNotFound
from fleet.broker.message import PulledMessage, time_of, unpack
from fleet.broker.names import message_id
from fleet.broker.options import ACK_DEADLINE_S
from fleet.state import engine as engines
from fleet.state.engine import DONE, Rules, Verdict
from fleet.state.keys import TopicKeys

MOST_PULLED = 1000


class Puller:
    """`on_moved`: something waits in this subscription's outbox."""

    def __init__(self, directory: Directory, on_moved: Callable[[Pulled], Awaitable[None]]) -> None:
        self._directory = directory
        self._on_moved = on_moved

    async def pull(self, subscription: str, most: int) -> tuple[list[PulledMessage], int | None]:
        """What may be shown now; if that is nothing, in how many ms there may be something, or None for never."""
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise InvalidArgument(f"max_messages must be a whole number from 1 on, is {most!r}")

        async def pull(pulled: Pulled) -> tuple[list[PulledMessage], int | None]:
            if pulled.record.detached:
                return [], None
            taking = await pulled.engine.receive(min(most, MOST_PULLED), rules_of(pulled))
            if taking.moved:
                await self._on_moved(pulled)
            return [_message(pulled, showing) for showing in taking.showings], taking.due_ms

        return await self._directory.with_subscription(subscription, pull)

    async def ack(self, ack_id: str) -> None:
        await self._conclude(ack_id, lambda *_: "d")

    async def nack(self, ack_id: str) -> None:
        await self._conclude(ack_id, _nack)

    async def modify_ack_deadline(self, ack_id: str, seconds: float) -> None:
        most_s = ACK_DEADLINE_S[1]
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= most_s:
            raise InvalidArgument(f"seconds must be a number from 0 to {most_s}, is {seconds!r}")
        if seconds == 0:
            await self.nack(ack_id)
            return

        def hide(pulled: Pulled, showing: Showing) -> str:
            return f"h{round(seconds * 1000)}+{_backoff_ms(pulled, showing)}"

        await self._conclude(ack_id, hide)

    async def _conclude(self, ack_id: str, what: Callable[[Pulled, Showing], str]) -> None:
        showing = decode(ack_id)

        async def conclude(pulled: Pulled) -> None:
            if pulled.record.incarnation != showing.incarnation:
                self._directory.forget(subscription=pulled.name)
                raise InvalidAckId(ack_id)
            verdict = Verdict(str(showing.number), showing.count, showing.ordering_key, what(pulled, showing))
            if await pulled.engine.conclude([verdict]) != [DONE]:
                raise InvalidAckId(ack_id)
            if verdict.what[0] == "m":
                await self._on_moved(pulled)

        try:
            await self._directory.with_subscription(showing.subscription, conclude)
        except SubscriptionNotFound as error:
            raise InvalidAckId(ack_id) from error


def rules_of(pulled: Pulled) -> Rules:
    options = pulled.record.options
    retry, letters, flow = options.retry_policy, options.dead_letter_policy, options.flow_control
    return Rules(
        visibility_ms=round(options.ack_deadline_seconds * 1000),
        per_lane=1,
        retention_ms=round(options.message_retention_seconds * 1000),
        max_count=letters.max_delivery_attempts if letters else 0,
        target=letters.dead_letter_topic if letters else "",
        max_out=(flow.max_messages or 0) if flow else 0,
        max_bytes=(flow.max_bytes or 0) if flow else 0,
        backoff_ms=round(retry.minimum_backoff * 1000) if retry else 0,
        most_backoff_ms=round(retry.maximum_backoff * 1000) if retry else 0,
    )


def id_of(pulled: Pulled, number: int, kept: str) -> str:
    """The id of a message of its topic, or the one that it kept when it moved here."""
    return kept or message_id(TopicKeys(pulled.record.topic).prefix, pulled.record.topic_incarnation, 0, number)


def _nack(pulled: Pulled, showing: Showing) -> str:
    letters = pulled.record.options.dead_letter_policy
    if letters and showing.count >= letters.max_delivery_attempts:
        return f"m{letters.dead_letter_topic}"
    return f"s{_backoff_ms(pulled, showing)}"


def _backoff_ms(pulled: Pulled, showing: Showing) -> int:
    return round(pulled.record.options.backoff(showing.count) * 1000)


def _message(pulled: Pulled, showing: engines.Showing) -> PulledMessage:
    header, data = unpack(showing.stored)
    number = int(showing.number)
    return PulledMessage(
        id=id_of(pulled, number, header.id),
        data=data,
        attributes=header.attributes,
        publish_time=time_of(header.published_us or number),
        ordering_key=header.key or None,
        delivery_attempt=showing.times,
        ack_id=encode(Showing(pulled.name, pulled.record.incarnation, number, showing.times, showing.group)),
    )
