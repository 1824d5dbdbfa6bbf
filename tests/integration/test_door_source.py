"""`fleet://sqs/QUEUE` beside the door that its other clients use: the same messages, whoever sends and receives."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from fleet.config.router import parse_router_config
from fleet.errors import SourceError, SourceUnavailable
from fleet.operate import explain_source
from fleet.sources.base import Outgoing, Publisher, Receipt, Received, Source, Surroundings
from fleet.sources.check import problem_of
from fleet.sources.open import open_publisher, open_source
from fleet.sources.own.door import look
from fleet.sources.own.door.address import parse_address
from fleet.state.connect import connected
from tests.servers.local import RedisServer, running_redis
from tests.servers.sqs_door import SqsDoor, running_sqs_door

SOON_MS = 5_000
Run = Callable[..., tuple[int, str, str]]


class World:
    def __init__(self, door: SqsDoor, stack: AsyncExitStack) -> None:
        self.door, self._stack = door, stack
        self.around = Surroundings(redis_url=door.redis_url)

    def queue(self, *, fifo: bool, **attributes: str) -> tuple[str, str]:
        """Its URL at the door, and its URI for the router."""
        url = self.door.make_queue(fifo=fifo, **attributes)
        return url, f"fleet://sqs/{url.rpartition('/')[2]}"

    async def source(self, uri: str, visibility_ms: int = 60_000) -> Source:
        source = open_source("orders", uri, visibility_ms, around=self.around)
        await source.open()
        self._stack.push_async_callback(source.close)
        return source

    async def publisher(self, uri: str) -> Publisher:
        publisher = open_publisher(uri, around=self.around)
        await publisher.open()
        self._stack.push_async_callback(publisher.close)
        return publisher

    def receive(self, url: str, **parameters: Any) -> list[dict[str, Any]]:
        asked = {"MaxNumberOfMessages": 10, "MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        found: list[dict[str, Any]] = self.door.ask("ReceiveMessage", QueueUrl=url, **{**asked, **parameters}).get(
            "Messages", []
        )
        return found


@pytest.fixture
async def world(sqs_door: SqsDoor) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(sqs_door, stack)


def held(received: list[Received]) -> list[Receipt]:
    return [Receipt(one.broker_id, one.handle) for one in received]


@pytest.mark.parametrize("fifo", [True, False])
async def test_what_is_sent_at_one_end_comes_at_the_other_with_one_id(world: World, fifo: bool) -> None:
    url, uri = world.queue(fifo=fifo)
    fields = {"MessageGroupId": "g", **({"MessageDeduplicationId": "d"} if fifo else {})}
    sent = world.door.ask("SendMessage", QueueUrl=url, MessageBody="größe", **fields)
    source, publisher = await world.source(uri), await world.publisher(uri)
    (received,) = await source.poll(10, SOON_MS)
    assert (received.body.decode(), received.group, received.broker_id) == ("größe", "g", sent["MessageId"])
    assert await source.ack(held([received])) == [True]
    assert world.door.counts(url) == (0, 0, 0)

    assert await publisher.publish([Outgoing("id", b"{}", "h"), Outgoing("other", b"{}")]) == [None, None]
    grouped, alone = world.receive(url)
    assert grouped["Body"] == "{}"
    if fifo:
        assert (grouped["Attributes"]["MessageGroupId"], grouped["Attributes"]["MessageDeduplicationId"]) == ("h", "id")
        assert alone["Attributes"]["MessageGroupId"].startswith("fleet.none.")
    else:
        assert grouped["MessageAttributes"]["Fleet-Group"]["StringValue"] == "h"
        assert "MessageAttributes" not in alone


async def test_a_partitioned_queue_gives_each_group_in_order_and_all_of_them(world: World) -> None:
    attributes = {
        "PartitionCount": "4",
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    url, uri = world.queue(fifo=True, **attributes)
    publisher, source = await world.publisher(uri), await world.source(uri)
    sent = [Outgoing(f"{i}", b"%d" % i, f"g{i % 20}") for i in range(200)]
    assert await publisher.publish(sent) == [None] * 200
    assert (await source.depth()).waiting == 200 == world.door.counts(url)[0]
    seen: dict[str | None, list[int]] = {}
    while sum(map(len, seen.values())) < 200:
        received = await source.poll(30, SOON_MS)
        assert received
        for one in received:
            seen.setdefault(one.group, []).append(int(one.body))
        assert all(await source.ack(held(received)))
    assert seen == {f"g{k}": list(range(k, 200, 20)) for k in range(20)}


async def test_a_dead_letter_is_brought_to_its_queue_where_no_door_runs(redis_server: RedisServer) -> None:
    async with AsyncExitStack() as stack:
        with running_sqs_door(redis_server.url) as door:
            world = World(door, stack)
            _, dead = world.queue(fifo=False, name="dead")
            target = "arn:aws:sqs:us-east-1:000000000000:dead"
            policy = json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": 1})
            _, uri = world.queue(fifo=False, name="alive", RedrivePolicy=policy)
        publisher, source, letters = await world.publisher(uri), await world.source(uri), await world.source(dead)
        await publisher.publish([Outgoing("a", b"a")])
        (received,) = await source.poll(10, SOON_MS)
        await source.nack([(held([received])[0], 0)])
        assert await source.poll(10, 0) == []
        (letter,) = await letters.poll(10, SOON_MS)
        assert (letter.body, letter.broker_id) == (b"a", received.broker_id)


async def test_a_delay_of_a_fifo_queue_holds_for_the_router_too_and_counts_as_invisible(world: World) -> None:
    _, uri = world.queue(fifo=True, DelaySeconds="1")
    publisher, source = await world.publisher(uri), await world.source(uri)
    await publisher.publish([Outgoing("a", b"a", "g")])
    assert await source.poll(10, 0) == []
    depth = await source.depth()
    assert (depth.waiting, depth.invisible, depth.delayed) == (0, 1, 1)
    assert len(await source.poll(10, SOON_MS)) == 1


async def test_a_queue_that_is_not_there_is_an_error_that_says_so(world: World) -> None:
    with pytest.raises(SourceError, match=r"fleet://sqs/nowhere: .*does not exist") as caught:
        await world.source("fleet://sqs/nowhere")
    assert not isinstance(caught.value, SourceUnavailable)
    with pytest.raises(SourceError, match="does not exist"):
        await world.publisher("fleet://sqs/nowhere")


async def test_a_queue_that_was_deleted_and_made_anew_is_read_on(world: World) -> None:
    url, uri = world.queue(fifo=True, name="again.fifo")
    publisher, source = await world.publisher(uri), await world.source(uri)
    await publisher.publish([Outgoing("a", b"a", "g")])
    old = held(await source.poll(10, SOON_MS))
    world.door.ask("DeleteQueue", QueueUrl=url)
    with pytest.raises(SourceError, match="does not exist"):
        await source.poll(10, 0)
    world.queue(fifo=True, name="again.fifo")
    await publisher.publish([Outgoing("a", b"b", "g")])
    (received,) = await source.poll(10, SOON_MS)
    assert received.body == b"b"
    assert received.broker_id != old[0].broker_id
    await source.ack(old)
    assert await source.ack(held([received])) == [True]


async def test_what_sqs_does_not_take_is_refused_with_what_is_behind_it_in_its_group(world: World) -> None:
    _, uri = world.queue(fifo=True)
    publisher = await world.publisher(uri)
    sent = [Outgoing("1", b"\xff", "g"), Outgoing("2", b"b", "g"), Outgoing("3", b"c", "h"), Outgoing("4", b"", "h")]
    not_text, behind, taken, empty = await publisher.publish(sent)
    assert taken is None
    assert "not UTF-8" in str(not_text)
    assert "earlier message of its group" in str(behind)
    assert "empty" in str(empty)


async def test_a_redis_that_is_away_is_a_source_that_is_away() -> None:
    with running_redis() as server, running_sqs_door(server.url) as door:
        async with AsyncExitStack() as stack:
            world = World(door, stack)
            _, uri = world.queue(fifo=False)
            source, publisher = await world.source(uri), await world.publisher(uri)
            server.server.kill()
            with pytest.raises(SourceUnavailable):
                await source.poll(10, 0)
            with pytest.raises(SourceUnavailable):
                await publisher.publish([Outgoing("a", b"a")])


# Looking -------------------------------------------------------------------------------------------


def body_of(name: str, group: str) -> bytes:
    target = "http://127.0.0.1:9/"
    return json.dumps({"id": name, "mediationTarget": target, "messageGroupId": group}).encode()


@pytest.mark.parametrize("partitions", ["1", "4"])
async def test_a_message_is_found_by_either_id_and_by_its_group_with_what_holds_it(
    world: World, partitions: str
) -> None:
    more = {"PartitionCount": partitions, "DeduplicationScope": "messageGroup"} if partitions != "1" else {}
    _, uri = world.queue(fifo=True, **more)
    publisher, source = await world.publisher(uri), await world.source(uri)
    await publisher.publish([Outgoing(name, body_of(name, "g"), "g") for name in ("first", "second")])
    address = parse_address(uri)
    async with connected(world.door.redis_url) as client:
        waits = await look.find(client, address, "second")
        assert waits is not None
        assert (waits.group, waits.ahead, waits.head_id, waits.leased) == ("g", 1, "first", False)
        (received,) = await source.poll(1, SOON_MS)
        for subject in ("first", received.broker_id, "g"):
            found = await look.find(client, address, subject)
            assert found is not None
            assert (found.broker_id, found.ahead, found.leased) == (received.broker_id, 0, True)
            assert found.visible_at_ms > 0
        await source.nack([(held([received])[0], 60_000)])
        given_back = await look.find(client, address, "first")
        assert given_back is not None
        assert not given_back.leased
        assert given_back.visible_at_ms > 0
        assert await look.find(client, address, "nobody") is None
        seen = [body async for _, body in look.bodies(client, address, 10, 10_000)]
        assert sorted(seen) == [body_of("first", "g"), body_of("second", "g")]
        assert len([one async for one in look.bodies(client, address, 1, 10_000)]) == 1


async def test_a_message_of_a_standard_queue_is_found_with_its_group_and_nothing_ahead(world: World) -> None:
    _, uri = world.queue(fifo=False)
    publisher, source = await world.publisher(uri), await world.source(uri)
    await publisher.publish([Outgoing("a", body_of("a", "g"), "g"), Outgoing("bad", b"not a message", "g")])
    address = parse_address(uri)
    async with connected(world.door.redis_url) as client:
        found = await look.find(client, address, "a")
        assert found is not None
        assert (found.group, found.ahead, found.visible_at_ms, found.leased) == ("g", 0, 0, False)
        received = await source.poll(10, SOON_MS)
        bad = await look.find(client, address, received[1].broker_id)
        assert bad is not None
        assert (bad.message, bad.leased, bad.head_id) == (None, True, received[1].broker_id)


async def test_explain_says_what_a_message_of_it_waits_for(world: World) -> None:
    _, uri = world.queue(fifo=True)
    publisher = await world.publisher(uri)
    await publisher.publish([Outgoing(name, body_of(name, "g"), "g") for name in ("first", "second")])
    config = parse_router_config(json.dumps({"queues": [{"queueName": "q", "queueUri": uri}]}).encode())
    assert config.remarks == ()
    async with connected(world.door.redis_url) as client:
        behind = await explain_source.look(client, config, "second", pool=None, now_ms=0)
        assert behind is not None
        assert (behind.state, behind.behind) == ("BEHIND_AT_SOURCE", "first")
        first = await explain_source.look(client, config, "first", pool=None, now_ms=0)
        assert first is not None
        assert first.state == "NO_COORDINATOR"


async def test_a_queue_that_is_not_there_is_a_problem_of_its_configuration(world: World) -> None:
    _, uri = world.queue(fifo=False)
    opened = partial(open_source, around=world.around)
    for name, problem in ((uri, ""), ("fleet://sqs/nowhere", "does not exist")):
        config = parse_router_config(json.dumps({"queues": [{"queueName": "q", "queueUri": name}]}).encode())
        assert problem in await problem_of(config.queues[0], open_source=opened)
        assert bool(problem) == bool(await problem_of(config.queues[0], open_source=opened))


# Commands ------------------------------------------------------------------------------------------


def test_the_command_sends_into_it_and_purges_it(fleet: Run, redis_server: RedisServer) -> None:
    with running_sqs_door(redis_server.url) as door:
        url = door.make_queue(fifo=True, name="orders.fifo")
        send = ("send", "fleet://sqs/orders.fifo", "--target", "http://127.0.0.1:9/", "--count", "3")
        assert fleet(*send) == (0, "3 accepted\n", "")
        assert door.counts(url)[0] == 3
        code, _, err = fleet("queue", "purge", "fleet://sqs/orders.fifo")
        assert code == 2
        assert "3 messages of fleet://sqs/orders.fifo would be gone for good; add --yes" in err
        assert fleet("queue", "purge", "fleet://sqs/orders.fifo", "--yes") == (0, "3 messages are gone.\n", "")
        assert door.counts(url) == (0, 0, 0)
        code, out, err = fleet("queue", "purge", "fleet://sqs/none", "--yes")
        assert (code, out) == (1, "")
        assert re.search(r"fleet://sqs/none: .*does not exist", err)
