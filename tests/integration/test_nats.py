"""JetStream as a source and a destination, on a real server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from fleet.errors import InvalidConfig, SourceUnavailable
from fleet.sources.base import Outgoing, Source
from fleet.sources.nats.pull import SILENCE_S
from tests.integration.place import LONG_MS, SOON_MS, Place, numbers_of
from tests.messages import held
from tests.servers.nats import NatsServer

# Polling ------------------------------------------------------------------------------------------------


async def test_one_look_gives_what_is_there(place: Place, nats_server: NatsServer) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    source = await place.source(uri)
    await place.send(uri, range(1200))
    assert numbers_of(await source.poll(500, 0)) == list(range(500))
    assert numbers_of(await source.poll(5000, 0)) == list(range(500, 1200))
    assert await source.poll(500, 0) == []


async def test_a_poll_that_waits_gives_up_in_time_and_takes_nothing_later(
    place: Place, nats_server: NatsServer
) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    one, other = await place.source(uri), await place.source(uri)
    began = time.monotonic()
    assert await one.poll(10, 300) == []
    assert 0.25 < time.monotonic() - began < 1.5
    await place.send(uri, range(3))
    assert numbers_of(await other.poll(10, SOON_MS)) == [0, 1, 2]


async def test_a_poll_may_wait_for_longer_than_the_server_may_be_silent(place: Place, nats_server: NatsServer) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    source = await place.source(uri)
    poll = asyncio.create_task(source.poll(10, SOON_MS))
    assert await asyncio.wait([poll], timeout=2 * SILENCE_S) == (set(), {poll})
    await place.send(uri, range(2))
    began = time.monotonic()
    assert numbers_of(await poll) == [0, 1]
    assert time.monotonic() - began < 0.5


async def test_polls_that_are_cancelled_under_load_lose_nothing(place: Place, nats_server: NatsServer) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    source, publisher = await place.source(uri), await place.publisher(uri)
    count, seen, turn, cancelled = 0, list[int](), 0, 0

    async def feed() -> None:
        nonlocal count
        # Until enough were cancelled: how many are at a time depends on how busy the machine is.
        while count < 4_000 or cancelled <= 200:
            if count >= 4_000 and len(seen) < count:
                await asyncio.sleep(0)
                continue
            first, count = count, count + 50
            batch = [Outgoing(id=f"{n}", body=b"%d" % n, group="g") for n in range(first, first + 50)]
            assert await publisher.publish(batch) == [None] * 50

    feeding = asyncio.create_task(feed())
    async with asyncio.timeout(60):
        while not feeding.done() or len(seen) < count:
            poll = asyncio.create_task(source.poll(5, 1000))
            turn += 1
            for _ in range(turn % 40):  # at every step it takes
                await asyncio.sleep(0)
            if not poll.done():
                cancelled += 1
                poll.cancel()
            try:
                received = await poll
            except asyncio.CancelledError:
                continue
            seen += numbers_of(received)
            assert all(await source.ack(held(received)))
    await feeding
    assert cancelled > 200
    assert seen == list(range(count))
    assert (await source.depth()).invisible == 0


async def test_what_waits_in_the_buffer_for_too_long_is_shown_again_in_its_order(
    place: Place, nats_server: NatsServer
) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    source = await place.source(uri, 400)
    assert await source.poll(3, 0) == []
    await place.send(uri, range(6))
    poll = asyncio.create_task(source.poll(3, SOON_MS))
    assert await asyncio.wait([poll], timeout=0) == (set(), {poll})
    poll.cancel()
    await asyncio.wait([poll])
    other = await place.source(uri, 400)
    assert numbers_of(await other.poll(3, 0)) in ([3, 4, 5], [])  # time for the others to come, and to become old
    await other.poll(10, 200)
    again = await source.poll(3, SOON_MS)
    assert [(int(one.body), one.receive_count) for one in again] == [(0, 2), (1, 2), (2, 2)]


async def test_two_sources_of_one_consumer_share_its_messages(place: Place, nats_server: NatsServer) -> None:
    uri, count = nats_server.uri(nats_server.new_stream()), 2_000
    sources = [await place.source(uri), await place.source(uri)]
    await place.send(uri, range(count))
    seen: list[list[int]] = [[], []]

    async def work(source: Source, mine: list[int]) -> None:
        while received := await source.poll(50, 300):
            mine += numbers_of(received)
            assert all(await source.ack(held(received)))

    await asyncio.gather(*(work(source, mine) for source, mine in zip(sources, seen, strict=True)))
    assert sorted(seen[0] + seen[1]) == list(range(count))
    assert all(mine == sorted(mine) for mine in seen)


async def test_there_is_no_limit_below_what_the_pools_hold(place: Place, nats_server: NatsServer) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    source = await place.source(uri)
    await place.send(uri, range(3_000))
    taken = 0
    while received := await source.poll(500, 0):
        taken += len(received)
    assert taken == 3_000
    assert (await source.depth()).invisible == 3_000


# Settling -----------------------------------------------------------------------------------------------


async def test_another_connection_acks_what_one_was_given(place: Place, nats_server: NatsServer) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    source = await place.source(uri)
    await place.send(uri, range(2))
    received = await source.poll(10, SOON_MS)
    await source.close()
    other = await place.source(uri)
    assert await other.ack(held(received)) == [True, True]
    depth = await other.depth()
    assert (depth.waiting, depth.invisible, depth.oldest_s) == (0, 0, 0.0)


async def test_a_connection_refuses_a_handle_that_it_knows_to_be_old(place: Place, nats_server: NatsServer) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    source = await place.source(uri, 200)
    await place.send(uri, range(1))
    old = held(await source.poll(10, SOON_MS))
    new = held(await source.poll(10, SOON_MS))
    assert await source.ack(old) == [False]
    assert await source.nack([(old[0], 0)]) == [False]
    assert await source.extend(old, 60_000) == [False]
    assert await source.ack(new) == [True]
    assert await source.ack(old + new) == [True, True]


async def test_an_extension_by_the_ack_wait_begins_it_again(place: Place, nats_server: NatsServer) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    source = await place.source(uri, 400)
    await place.send(uri, range(1))
    received = await source.poll(10, SOON_MS)
    began = time.monotonic()
    for _ in range(4):
        assert await source.poll(10, 200) == []
        assert await source.extend(held(received), 400) == [True]
    assert numbers_of(await source.poll(10, SOON_MS)) == [0]
    assert time.monotonic() - began > 1.1


async def test_depth_tells_what_waits_from_what_is_out_and_how_old_the_oldest_is(
    place: Place, nats_server: NatsServer
) -> None:
    for retention in ("workqueue", "limits"):
        uri = nats_server.uri(nats_server.new_stream(retention=retention))
        source = await place.source(uri)
        assert ((await source.depth()).waiting, (await source.depth()).oldest_s) == (0, 0.0)
        await place.send(uri, range(4))
        assert (await source.depth()).waiting == 4
        received = await source.poll(2, SOON_MS)
        depth = await source.depth()
        assert (depth.waiting, depth.invisible) == (2, 2)
        assert depth.oldest_s is not None and 0 < depth.oldest_s < 20
        await source.ack(held(received))
        depth = await source.depth()
        assert (depth.waiting, depth.invisible) == (2, 0)


async def test_who_only_asks_for_the_depth_takes_and_changes_nothing(place: Place, nats_server: NatsServer) -> None:
    stream = nats_server.new_stream()
    uri = nats_server.uri(stream)
    await place.send(uri, range(3))
    looker = await place.source(uri, 1_000)
    assert (await looker.depth()).waiting == 3
    assert nats_server.api(f"CONSUMER.NAMES.{stream}")["consumers"] in (None, [])
    source = await place.source(uri, LONG_MS)
    await source.poll(1, SOON_MS)
    assert (await looker.depth()).invisible == 1
    assert nats_server.api(f"CONSUMER.INFO.{stream}.fleet")["config"]["ack_wait"] == LONG_MS * 1_000_000


# The stream and its consumer ------------------------------------------------------------------------------


async def test_a_stream_that_is_not_there_is_one_clear_error(place: Place, nats_server: NatsServer) -> None:
    uri = nats_server.uri("NONE")
    for attempt in (place.source(uri), place.publisher(uri)):
        with pytest.raises(SourceUnavailable, match="stream NONE: it does not exist: create it, Fleet does not"):
            await attempt


async def test_a_consumer_of_the_operator_gets_our_ack_wait_and_no_limits(
    place: Place, nats_server: NatsServer, said: Callable[[], str]
) -> None:
    stream = nats_server.new_stream()
    theirs = {"durable_name": "fleet", "ack_policy": "explicit", "ack_wait": 5 * 10**9, "max_ack_pending": 7}
    theirs |= {"max_deliver": 3, "description": "theirs"}
    nats_server.api(f"CONSUMER.DURABLE.CREATE.{stream}.fleet", {"stream_name": stream, "config": theirs})
    source = await place.source(nats_server.uri(stream), LONG_MS)
    await source.poll(1, 0)
    config = nats_server.api(f"CONSUMER.INFO.{stream}.fleet")["config"]
    assert (config["ack_wait"], config["max_ack_pending"], config["max_deliver"]) == (LONG_MS * 10**6, -1, -1)
    assert config["description"] == "theirs"
    assert f"ack_wait {5 * 10**9} → {LONG_MS * 10**6}" in said()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"ack_policy": "none"}, "has ack policy none"),
        ({"ack_policy": "explicit", "deliver_subject": "there"}, "is a push consumer"),
        ({"ack_policy": "explicit", "headers_only": True}, "delivers headers only"),
    ],
)
async def test_a_consumer_that_cannot_be_used_is_one_clear_error(
    place: Place, nats_server: NatsServer, config: dict[str, object], why: str
) -> None:
    stream = nats_server.new_stream(retention="limits")
    whole = {"durable_name": "fleet"} | config
    nats_server.api(f"CONSUMER.DURABLE.CREATE.{stream}.fleet", {"stream_name": stream, "config": whole})
    source = await place.source(nats_server.uri(stream))
    with pytest.raises(SourceUnavailable, match=why):
        await source.poll(1, 0)


async def test_a_stream_that_was_deleted_and_created_anew_has_other_ids_and_other_handles(
    place: Place, nats_server: NatsServer
) -> None:
    stream = nats_server.new_stream()
    uri = nats_server.uri(stream)
    source = await place.source(uri)
    await place.send(uri, range(2))
    before = await source.poll(10, SOON_MS)
    nats_server.api(f"STREAM.DELETE.{stream}")
    nats_server.add_stream(stream)
    await place.send(uri, range(2))
    after = await source.poll(10, SOON_MS)
    assert numbers_of(after) == [0, 1]
    assert not {one.broker_id for one in before} & {one.broker_id for one in after}
    assert await source.ack(held(before)) == [False, False]
    fresh = await place.source(uri)
    assert await fresh.ack(held(before)) == [False, False]
    assert (await fresh.depth()).invisible == 2
    assert await fresh.ack(held(after)) == [True, True]


async def test_a_consumer_that_is_deleted_while_we_wait_is_made_again(place: Place, nats_server: NatsServer) -> None:
    stream = nats_server.new_stream()
    uri = nats_server.uri(stream)
    source = await place.source(uri)
    poll = asyncio.create_task(source.poll(10, SOON_MS))
    assert await source.poll(1, 0) == []
    nats_server.api(f"CONSUMER.DELETE.{stream}.fleet")
    await place.send(uri, range(2))
    assert numbers_of(await poll) == [0, 1]


async def test_a_handle_of_a_consumer_that_is_gone_is_answered_and_its_message_comes_again(
    place: Place, nats_server: NatsServer
) -> None:
    stream = nats_server.new_stream()
    uri = nats_server.uri(stream)
    source = await place.source(uri)
    await place.send(uri, range(1))
    (received,) = await source.poll(10, SOON_MS)
    nats_server.api(f"CONSUMER.DELETE.{stream}.fleet")
    began = time.monotonic()
    assert await source.ack(held([received])) == [False]
    assert time.monotonic() - began < 4
    async with asyncio.timeout(10):
        while not (again := await source.poll(10, 1000)):
            pass
    assert [one.broker_id for one in again] == [received.broker_id]
    assert await source.ack(held([received])) == [True]  # the same message, whatever became of the consumer
    assert (await source.depth()).invisible == 0


# Publishing and groups ------------------------------------------------------------------------------------


async def test_the_group_is_a_token_of_the_subject_where_no_header_says_it(
    place: Place, nats_server: NatsServer
) -> None:
    stream = nats_server.new_stream(subjects=["in.*.>"])
    uri = nats_server.uri(stream, options="?subject=in.*.new&groupToken=2")
    publisher, source = await place.publisher(uri), await place.source(uri)
    messages = [Outgoing(id="1", body=b"1", group="order-1"), Outgoing(id="2", body=b"2", group="no token")]
    messages += [Outgoing(id="3", body=b"3")]
    assert await publisher.publish(messages) == [None, *["group cannot stand in a subject of NATS"] * 2]
    plain = await place.publisher(nats_server.uri(stream, options="?subject=in.order-2.new"))
    assert await plain.publish([Outgoing(id="4", body=b"4"), Outgoing(id="5", body=b"5", group="said")]) == [None, None]
    got = await source.poll(10, SOON_MS)
    assert [(one.body, one.group) for one in got] == [(b"1", "order-1"), (b"4", "order-2"), (b"5", "said")]


async def test_what_jetstream_cannot_do_is_refused_for_that_message_alone(
    place: Place, nats_server: NatsServer
) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    publisher = await place.publisher(uri)
    results = await publisher.publish(
        [
            Outgoing(id="1", body=b"", delay_ms=1),
            Outgoing(id="2", body=b"x" * (1 << 20)),
            Outgoing(id="3", body=b"", group="a\r\nNats-Msg-Id: x"),
            Outgoing(id="4", body=b"", group=" padded"),
            Outgoing(id="5", body=b"", group="\ud800"),
            Outgoing(id="6", body=b"fine"),
        ]
    )
    assert [result is None for result in results] == [False] * 5 + [True]
    assert results[0] == "JetStream cannot delay a message"
    assert [one.body for one in await (await place.source(uri)).poll(10, SOON_MS)] == [b"fine"]


async def test_a_full_stream_refuses_and_what_it_took_stays(place: Place, nats_server: NatsServer) -> None:
    uri = nats_server.uri(nats_server.new_stream(max_msgs=2, discard="new"))
    publisher = await place.publisher(uri)
    results = await publisher.publish([Outgoing(id=f"{n}", body=b"") for n in range(4)])
    assert results == [None, None, "maximum messages exceeded", "maximum messages exceeded"]


async def test_a_stream_without_one_subject_to_publish_to_needs_one_in_the_uri(
    place: Place, nats_server: NatsServer
) -> None:
    for subjects in (["a1.x", "a2.x"], ["a3.*"], ["a4.>"]):
        with pytest.raises(InvalidConfig, match=r"add \?subject="):
            await place.publisher(nats_server.uri(nats_server.new_stream(subjects=subjects)))
