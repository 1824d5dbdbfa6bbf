"""Pull, and what becomes of what was pulled: ack, nack, a new deadline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fleet.broker.acks import Showing, decode, encode
from fleet.broker.counts import SUBSCRIPTION
from fleet.broker.directory import Directory, Pulled
from fleet.broker.errors import InvalidAckId, InvalidArgument, SubscriptionNotFound
from fleet.broker.message import PulledMessage, time_of, unpack
from fleet.broker.names import message_id
from fleet.broker.options import ACK_DEADLINE_S
from fleet.metrics.counters import Counters
from fleet.state import engine as engines
from fleet.state.engine import DONE, GONE, Rules, Stale, Taking, Verdict
from fleet.state.keys import TopicKeys

MOST_PULLED = 1000
What = Callable[[Pulled, Showing], str]
"""What becomes of a showing, as lua/own/conclude.lua has it."""
Choice = Callable[[Pulled], Rules] | None
"""Of the rules of a pull; None: those of the subscription."""


class Pull(NamedTuple):
    messages: list[PulledMessage]
    due_ms: int | None
    """If there are none: in how many ms there may be something, or None for never."""
    prefix: str
    """What a signal says of its messages."""


class Puller:
    """`on_moved`: something waits in this subscription's outbox."""

    def __init__(self, directory: Directory, on_moved: Callable[[Pulled], Awaitable[None]], counters: Counters) -> None:
        self._directory = directory
        self.on_moved = on_moved
        self._counters = counters

    async def pull(self, subscription: str, most: int, rules: Choice = None) -> Pull:
        """What may be shown now."""
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise InvalidArgument(f"max_messages must be a whole number from 1 on, is {most!r}")

        read_again = False

        async def pull(pulled: Pulled) -> Pull:
            nonlocal read_again
            if pulled.record.detached and not read_again:
                # Nobody tells us when it is made anew.
                read_again = True
                raise Stale(pulled.engine.prefix)
            if pulled.record.detached:
                return Pull([], None, pulled.engine.prefix)
            taking = await self._take(pulled, min(most, MOST_PULLED), (rules or rules_of)(pulled))
            messages = [_message(pulled, showing) for showing in taking.showings]
            return Pull(messages, taking.due_ms, pulled.engine.prefix)

        return await self._directory.with_subscription(subscription, pull)

    async def _take(self, pulled: Pulled, most: int, rules: Rules) -> Taking:
        taking = await pulled.engine.receive(most, rules)
        moved, dropped = taking.moved, taking.dropped
        if moved + dropped and not taking.showings:
            # What has left may have been in the way, and more that has to leave may stand behind it.
            tidied = await pulled.engine.tidy(rules)
            taking = await pulled.engine.receive(most, rules)
            moved, dropped = moved + tidied.moved + taking.moved, dropped + tidied.dropped + taking.dropped
        self._count(pulled.name, pulled=len(taking.showings), expired=dropped)
        if moved:
            await self.on_moved(pulled)
        return taking

    async def ack(self, ack_id: str) -> None:
        await self._conclude_one(ack_id, acked)

    async def nack(self, ack_id: str) -> None:
        await self._conclude_one(ack_id, nacked)

    async def modify_ack_deadline(self, ack_id: str, seconds: float) -> None:
        most_s = ACK_DEADLINE_S[1]
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= most_s:
            raise InvalidArgument(f"seconds must be a number from 0 to {most_s}, is {seconds!r}")
        if seconds == 0:
            await self.nack(ack_id)
            return

        await self._conclude_one(ack_id, hidden(round(seconds * 1000)))

    async def _conclude_one(self, ack_id: str, what: What) -> None:
        showing = decode(ack_id)
        try:
            [done] = await self.settle(showing.subscription, [(showing, what)])
        except SubscriptionNotFound as error:
            raise InvalidAckId(ack_id) from error
        if done != DONE:
            raise InvalidAckId(ack_id)

    async def conclude(self, subscription: str, verdicts: Sequence[tuple[str, What]]) -> list[bool]:
        """Many of one subscription. What is gone counts as acked; False: it was shown again, or its time is over."""
        flags = [False] * len(verdicts)
        known: list[tuple[int, tuple[Showing, What]]] = []
        for place, (ack_id, what) in enumerate(verdicts):
            try:
                showing = decode(ack_id)
            except InvalidAckId:
                continue
            if showing.subscription == subscription:
                known.append((place, (showing, what)))
        try:
            results = await self.settle(subscription, [one for _, one in known]) if known else []
        except SubscriptionNotFound:
            results = [GONE] * len(known)
        for (place, (_, what)), result in zip(known, results, strict=True):
            flags[place] = result == DONE or (result == GONE and what is acked)
        return flags

    async def settle(self, subscription: str, verdicts: Sequence[tuple[Showing, What]]) -> list[int]:
        """What came of each, as the engine has it."""
        read_again = False

        async def conclude(pulled: Pulled) -> list[int]:
            nonlocal read_again
            # What it held before it was made anew, or lost its topic, is gone.
            ours, results = pulled.record.incarnation, [GONE] * len(verdicts)
            if not read_again and any(showing.incarnation > ours for showing, _ in verdicts):
                # It was made anew, and we remember the one before.
                read_again = True
                raise Stale(pulled.engine.prefix)
            places, asked = [], []
            for place, (showing, what) in enumerate(verdicts):
                if showing.incarnation == ours:
                    places.append(place)
                    asked.append(_verdict(pulled, showing, what))
            answers = await pulled.engine.conclude(asked) if asked else []
            for place, answer in zip(places, answers, strict=True):
                results[place] = answer
            self._count_verdicts(subscription, zip(asked, answers, strict=True))
            if any(one.what[0] == "m" and answer == DONE for one, answer in zip(asked, answers, strict=True)):
                await self.on_moved(pulled)
            return results

        return await self._directory.with_subscription(subscription, conclude)

    def _count_verdicts(self, subscription: str, answered: Iterable[tuple[Verdict, int]]) -> None:
        done = Counter(verdict.what[0] for verdict, answer in answered if answer == DONE)
        self._count(subscription, acked=done["d"], nacked=done["s"] + done["m"])

    def _count(self, subscription: str, **counts: int) -> None:
        for which, count in counts.items():
            if count:
                self._counters.add(SUBSCRIPTION, subscription, which, count)


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


def rules_within(ack_deadline_s: float) -> Choice:
    """Those of the subscription, but for its deadline."""
    visibility_ms = round(check_ack_deadline(ack_deadline_s) * 1000)
    return lambda pulled: replace(rules_of(pulled), visibility_ms=visibility_ms)


def check_ack_deadline(seconds: float) -> float:
    least_s, most_s = ACK_DEADLINE_S
    if not least_s <= seconds <= most_s:
        raise InvalidArgument(f"an ack deadline must be from {least_s} to {most_s} seconds, is {seconds:g}")
    return seconds


def id_of(pulled: Pulled, number: int, kept: str) -> str:
    """The id of a message of its topic, or the one that it kept when it moved here."""
    return kept or message_id(TopicKeys(pulled.record.topic).prefix, pulled.record.topic_incarnation, 0, number)


def acked(_pulled: Pulled, _showing: Showing) -> str:
    return "d"


def nacked(pulled: Pulled, showing: Showing, *, least_ms: int = 0) -> str:
    """Shown again after its backoff, or where the letters go if that was the last attempt."""
    letters = pulled.record.options.dead_letter_policy
    if letters and showing.count >= letters.max_delivery_attempts:
        return f"m{letters.dead_letter_topic}"
    return f"s{max(least_ms, backoff_ms(pulled, showing))}"


def hidden(visibility_ms: int) -> What:
    """With whoever has it for so long from now, and then away for its backoff."""
    return lambda pulled, showing: f"h{visibility_ms}+{backoff_ms(pulled, showing)}"


def given_back(_pulled: Pulled, _showing: Showing) -> str:
    """As if it had not been shown: nobody has got it."""
    return "u"


def backoff_ms(pulled: Pulled, showing: Showing) -> int:
    return round(pulled.record.options.backoff(showing.count) * 1000)


def _verdict(pulled: Pulled, showing: Showing, what: What) -> Verdict:
    return Verdict(str(showing.number), showing.count, showing.ordering_key, what(pulled, showing))


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
