"""A subscription as the router reads it: what of its options counts there, and what becomes of its topic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partialmethod
from unittest.mock import ANY

import pytest

from fleet.broker.queue import MessageQueue
from fleet.config.router import QueueConfig, RouterConfig
from fleet.errors import SourceError
from fleet.operate.dead_letters import Letter, replay
from fleet.sources import open as opening
from fleet.sources.base import Outgoing, Publisher, Receipt, Received, Surroundings
from fleet.sources.open import open_returner, open_source
from fleet.sources.topics.source import SubscriptionSource
from fleet.state import topic
from fleet.state.connect import connected
from fleet.state.keys import QueueKeys
from tests.clocks import HandClock
from tests.servers.local import RedisServer

VISIBILITY_MS = 30_000


class Reader:
    """A topic and a subscription, read by the clock of the test."""

    def __init__(self, url: str, queue: MessageQueue, clock: HandClock, stack: AsyncExitStack) -> None:
        self.queue = queue
        self._url, self._clock, self._stack = url, clock, stack
        queue.register_topic("topic")

    @property
    def around(self) -> Surroundings:
        return Surroundings(redis_url=self._url)

    def returner(self) -> Publisher:
        return open_returner("fleet://subscription/sub", around=self.around)

    async def source(self) -> SubscriptionSource:
        source = open_source("q", "fleet://subscription/sub", VISIBILITY_MS, around=self.around)
        assert isinstance(source, SubscriptionSource)
        await source.open()
        self._stack.push_async_callback(source.close)
        source._connection.opened.directory.now_ms = lambda: str(self._clock.now_ms)
        return source

    def publish(self, *texts: str, key: str | None = "k", **attributes: str) -> None:
        messages = [{"data": text.encode(), "ordering_key": key, "attributes": attributes} for text in texts]
        self.queue.publish("topic", messages)

    def after(self, seconds: float) -> None:
        self._clock.now_ms += round(seconds * 1000)


@pytest.fixture
async def reader(url: str, message_queue: MessageQueue, clock: HandClock) -> AsyncIterator[Reader]:
    async with AsyncExitStack() as stack:
        yield Reader(url, message_queue, clock, stack)


def texts(received: Sequence[Received]) -> list[str]:
    return [one.body.decode() for one in received]


def held(received: Sequence[Received]) -> list[Receipt]:
    return [Receipt(one.broker_id, one.handle) for one in received]


async def test_the_visibility_timeout_stands_for_the_ack_deadline(reader: Reader) -> None:
    reader.queue.register_subscription("sub", "topic", ack_deadline_seconds=10)
    source = await reader.source()
    reader.publish("a")
    (a,) = await source.poll(10, 0)
    reader.after(29)
    assert await source.poll(10, 0) == []
    assert await source.extend(held([a]), 40_000) == [True]
    reader.after(39)
    assert await source.poll(10, 0) == []
    reader.after(2)
    assert await source.ack(held([a])) == [False]
    (again,) = await source.poll(10, 0)
    assert (again.broker_id, again.receive_count) == (a.broker_id, 2)
    assert await source.ack(held([again])) == [True]


async def test_without_ordering_a_key_is_no_group(reader: Reader) -> None:
    reader.queue.register_subscription("sub", "topic")
    source = await reader.source()
    assert (source.holds_groups, source.shows_in_order) == (False, False)
    reader.publish("a", "b")
    assert [(one.body, one.group) for one in await source.poll(10, 0)] == [(b"a", None), (b"b", None)]


async def test_what_does_not_pass_the_filter_never_comes(reader: Reader) -> None:
    reader.queue.register_subscription("sub", "topic", filter='attributes.kind = "order"')
    source = await reader.source()
    reader.publish("a", kind="order")
    reader.publish("b", kind="other")
    assert texts(await source.poll(10, 0)) == ["a"]


async def test_a_nack_waits_for_its_delay_or_the_backoff_whichever_is_longer(reader: Reader) -> None:
    retry = {"minimum_backoff": 10, "maximum_backoff": 600}
    reader.queue.register_subscription("sub", "topic", retry_policy=retry, message_ordering=True)
    source = await reader.source()
    reader.publish("a", "b")
    for delay_ms, wait_s in ((0, 10), (60_000, 60), (1000, 40)):
        received = await source.poll(10, 0)
        assert texts(received) == ["a", "b"]
        assert await source.nack([(one, delay_ms) for one in held(received)]) == [True, True]
        reader.after(wait_s - 1)
        assert await source.poll(10, 0) == []
        reader.after(2)


async def test_attempts_are_counted_and_the_last_one_moves_the_message(reader: Reader) -> None:
    reader.queue.register_topic("dead")
    reader.queue.register_subscription("letters", "dead")
    policy = {"dead_letter_topic": "dead", "max_delivery_attempts": 2}
    reader.queue.register_subscription("sub", "topic", dead_letter_policy=policy, message_ordering=True)
    source = await reader.source()
    reader.publish("a", "b")
    for attempt in (1, 2):
        # One of a key at a time: what stands behind it must not spend its attempts.
        (a,) = await source.poll(10, 0)
        assert (a.body, a.receive_count) == (b"a", attempt)
        assert await source.nack([(held([a])[0], 0)]) == [True]
    (letter,) = reader.queue.pull("letters", 10)
    assert (letter.data, letter.ordering_key, letter.id) == (b"a", "k", a.broker_id)
    reader.queue.ack(letter.ack_id)
    for attempt in (1, 2):
        (b,) = await source.poll(10, 0)
        assert (b.body, b.receive_count) == (b"b", attempt)
        reader.after(31)  # nobody says anything of it
    assert await source.poll(10, 0) == []
    assert [one.data for one in reader.queue.pull("letters", 10)] == [b"b"]


async def test_who_reads_next_brings_the_dead_letters_that_were_left(reader: Reader) -> None:
    policy = {"dead_letter_topic": "dead", "max_delivery_attempts": 1}
    reader.queue.register_subscription("sub", "topic", dead_letter_policy=policy)
    source = await reader.source()
    reader.publish("a")
    await source.nack([(one, 0) for one in held(await source.poll(10, 0))])
    reader.queue.register_topic("dead")
    reader.queue.register_subscription("letters", "dead")
    assert await (await reader.source()).poll(10, 0) == []
    assert [one.data for one in reader.queue.pull("letters", 10)] == [b"a"]


async def test_flow_control_bounds_what_is_out(reader: Reader) -> None:
    reader.queue.register_subscription("sub", "topic", flow_control={"max_messages": 2})
    source = await reader.source()
    reader.publish("a", "b", "c")
    received = await source.poll(10, 0)
    assert (texts(received), await source.poll(10, 0)) == (["a", "b"], [])
    depth = await source.depth()
    assert (depth.waiting, depth.invisible) == (1, 2)
    await source.ack(held(received[:1]))
    assert texts(await source.poll(10, 0)) == ["c"]


async def test_what_is_too_old_never_comes(reader: Reader) -> None:
    reader.queue.register_subscription("sub", "topic", message_retention_seconds=600, message_ordering=True)
    source = await reader.source()
    reader.publish(*"abcdefgh")
    reader.after(601)
    reader.publish("new")
    assert texts(await source.poll(10, 0)) == ["new"]


async def test_one_that_is_not_there_or_lost_its_topic_is_an_error_until_it_is_made_anew(reader: Reader) -> None:
    with pytest.raises(SourceError, match="Subscription not found: sub"):
        await reader.source()
    reader.queue.register_subscription("sub", "topic")
    source = await reader.source()
    reader.publish("a")
    assert texts(await source.poll(10, 0)) == ["a"]
    reader.queue.unregister_topic("topic")
    for _ in range(2):
        with pytest.raises(SourceError, match="no topic any more: topic was deleted"):
            assert await source.poll(10, 0) == []
            await source.poll(10, 0)
    reader.queue.unregister_subscription("sub")
    with pytest.raises(SourceError, match="Subscription not found: sub"):
        await source.poll(10, 0)
    reader.queue.register_topic("topic")
    reader.queue.register_subscription("sub", "topic", message_ordering=True)
    reader.publish("b")
    assert texts(await source.poll(10, 0)) == ["b"]
    assert source.holds_groups


@pytest.mark.parametrize("topic_goes_too", [True, False])
async def test_what_went_with_its_subscription_or_its_topic_counts_as_acked(
    reader: Reader, topic_goes_too: bool
) -> None:
    reader.queue.register_subscription("sub", "topic")
    source = await reader.source()
    reader.publish("a", "b")
    a, b = held(await source.poll(10, 0))
    if topic_goes_too:
        reader.queue.unregister_topic("topic")
    else:
        reader.queue.unregister_subscription("sub")
    assert await source.ack([a]) == [True]
    assert (await source.nack([(b, 0)]), await source.extend([b], 1)) == ([False], [False])
    if topic_goes_too:
        reader.queue.unregister_subscription("sub")
        reader.queue.register_topic("topic")
    reader.queue.register_subscription("sub", "topic")
    assert (await source.ack([a]), await source.poll(10, 0)) == ([True], [])


async def test_what_a_poll_did_not_return_is_shown_again_at_once_when_it_is_closed(reader: Reader) -> None:
    reader.queue.register_subscription("sub", "topic")
    source = await reader.source()
    reader.publish("a")
    poll = asyncio.create_task(source.poll(10, 0))
    for _ in range(3):
        await asyncio.sleep(0)  # by now it has begun to ask
    poll.cancel()
    with pytest.raises(asyncio.CancelledError):
        await poll
    await source.close()
    assert texts(await (await reader.source()).poll(10, 0)) == ["a"]


async def test_an_ack_id_of_another_subscription_acks_nothing(reader: Reader) -> None:
    for name in ("sub", "other"):
        reader.queue.register_subscription(name, "topic")
    source = await reader.source()
    reader.publish("a")
    (other,) = reader.queue.pull("other", 1)
    assert await source.ack([Receipt("x", other.ack_id)]) == [False]
    reader.queue.ack(other.ack_id)


# Dead letters of the router -------------------------------------------------------------------------


async def test_a_dead_letter_goes_back_into_the_subscription_that_it_came_from_and_no_other(reader: Reader) -> None:
    for name in ("sub", "other"):
        reader.queue.register_subscription(name, "topic", message_ordering=True, filter="attributes:kind")
    source = await reader.source()
    returner = reader.returner()
    await returner.open()
    one = Outgoing("m", b"body", "g", "replay-1")
    assert await returner.publish([one, Outgoing("n", b"", "k" * 1025)]) == [None, ANY]
    await returner.close()
    (received,) = await source.poll(10, 0)
    assert (received.body, received.group, received.receive_count) == (b"body", "g", 1)
    assert reader.queue.pull("other", 10) == []


async def test_a_replay_goes_by_the_adapter_that_takes_letters_back(
    reader: Reader, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.queue.register_subscription("sub", "topic", message_ordering=True)
    source = await reader.source()
    monkeypatch.setattr(opening, "_around", reader.around)
    content = {"messageId": "m", "mediationTarget": "http://h/", "poolCode": "P", "messageGroupId": "g"}
    raw = json.dumps({"kind": "parked", **content})
    config = RouterConfig(queues=(QueueConfig(name="q", uri="fleet://subscription/sub"),))
    async with connected(redis_server.url) as client:
        await client.lpush(QueueKeys("q").dead, raw)
        replayed = await replay(client, config, [Letter("q", raw, json.loads(raw))])
        assert (replayed.sent, replayed.left, await client.llen(QueueKeys("q").dead)) == (1, [], 0)
    (received,) = await source.poll(10, 0)
    assert (json.loads(received.body)["id"], received.group) == ("m", "g")


async def test_what_a_full_subscription_has_no_room_for_stays_a_letter(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic.Topic, "publish", partialmethod(topic.Topic.publish, most=2))
    reader.queue.register_subscription("sub", "topic")
    returner = reader.returner()
    await returner.open()
    answers = await returner.publish([Outgoing(str(n), b"x", None) for n in range(3)])
    await returner.close()
    assert answers == [None, None, "subscription sub is full"]


async def test_of_one_that_is_gone_letters_stay(reader: Reader) -> None:
    with pytest.raises(SourceError, match="Subscription not found: sub"):
        await reader.returner().open()
    reader.queue.register_subscription("sub", "topic")
    returner = reader.returner()
    await returner.open()
    reader.queue.unregister_topic("topic")
    with pytest.raises(SourceError, match="Topic not found: topic"):
        await returner.publish([Outgoing("m", b"x", None)])
    reader.queue.register_topic("topic")
    with pytest.raises(SourceError, match="no topic any more"):
        await returner.publish([Outgoing("m", b"x", None)])
    await returner.close()
