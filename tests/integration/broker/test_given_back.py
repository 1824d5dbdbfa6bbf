"""What was pulled and reached nobody: it is as if nobody had pulled it."""

from __future__ import annotations

import asyncio

import pytest

from fleet.broker import acks
from fleet.broker.core import Broker
from fleet.broker.errors import SubscriptionNotFound
from fleet.broker.message import Message
from fleet.broker.options import SubscriptionOptions
from fleet.broker.pull import What, acked, given_back, hidden, nacked
from tests.servers.local import RedisServer


async def subscribed(broker: Broker, *texts: str) -> None:
    await broker.register_topic("topic")
    await broker.register_subscription("sub", "topic", SubscriptionOptions(message_ordering=True))
    await broker.publish("topic", [Message(text.encode(), {}, "key") for text in texts])


@pytest.mark.parametrize("wait_s", [0, 30])
async def test_a_pull_that_is_cancelled_under_way_leaves_nothing_out(redis_server: RedisServer, wait_s: float) -> None:
    async with Broker.connected(redis_server.url) as broker:
        await subscribed(broker)
        assert await broker.pull("sub", 10, wait_s=wait_s and 0.1) == []  # it has read what it has to know for a pull
        await broker.publish("topic", [Message(text.encode(), {}, "key") for text in ("one", "two")])
        redis_server.server.pause()
        try:
            pulling = asyncio.get_running_loop().create_task(broker.pull("sub", 10, wait_s=wait_s))
            for _ in range(10):  # turns of the loop, until Redis is asked
                await asyncio.sleep(0)
            pulling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pulling
        finally:
            redis_server.server.resume()
    async with Broker.connected(redis_server.url) as another:
        [again] = await another.pull("sub", 10)
        assert (again.data, again.delivery_attempt) == (b"one", 1)


async def test_what_is_given_back_counts_as_never_shown_and_stands_where_it_stood(redis_server: RedisServer) -> None:
    async with Broker.connected(redis_server.url) as broker:
        await subscribed(broker, "one", "two")
        broker.give_back("sub", await broker.pull("sub", 10))
        [again] = await broker.pull("sub", 10, wait_s=5)
        assert (again.data, again.delivery_attempt) == (b"one", 1)


async def test_of_many_that_are_settled_at_once_each_is_told_apart(redis_server: RedisServer) -> None:
    async with Broker.connected(redis_server.url) as broker:
        await subscribed(broker)
        await broker.publish("topic", [Message(text.encode()) for text in ("one", "two", "three")])
        one, two, three = [acks.decode(message.ack_id) for message in await broker.pull("sub", 10, ack_deadline_s=600)]
        assert await broker.settle("sub", [(one, acked), (two, nacked), (three, hidden(60_000))]) == [True] * 3
        [again] = await broker.pull("sub", 10)
        assert (again.data, again.delivery_attempt) == (b"two", 2)
        assert await broker.settle("sub", [(one, acked), (two, acked), (three, acked)]) == [False, False, True]
        await broker.unregister_subscription("sub")
        with pytest.raises(SubscriptionNotFound):
            await broker.settle("sub", [(one, acked)])


@pytest.mark.parametrize("then", [nacked, acked, hidden(60_000), given_back])
@pytest.mark.parametrize("first", [nacked, given_back])
async def test_a_showing_that_one_verdict_has_ended_no_other_of_the_same_call_ends_again(
    redis_server: RedisServer, first: What, then: What
) -> None:
    async with Broker.connected(redis_server.url) as broker:
        await subscribed(broker)
        await broker.publish("topic", [Message(b"one")])
        [message] = await broker.pull("sub", 10)
        showing = acks.decode(message.ack_id)
        assert await broker.settle("sub", [(showing, first), (showing, then)]) == [True, False]
        depths = (await broker.all_depths(["sub"]))["sub"]
        assert (depths.messages, depths.hidden, depths.out, depths.out_bytes) == (1, 0, 0, 0)
