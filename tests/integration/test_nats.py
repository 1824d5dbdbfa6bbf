"""JetStream as a source and a destination, on a real server whose line is cut and which is killed."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.errors import FleetError, InvalidConfig, SourceUnavailable
from fleet.sources.base import Held, Outgoing, Publisher, Received, Source
from fleet.sources.nats_pull import SILENCE_S
from fleet.sources.open import open_publisher, open_source
from tests.nats_server import NatsServer, running_nats
from tests.proxy import proxied

SOON_MS = 5_000
LONG_MS = 60_000


@dataclass
class Place:
    """Opens sources and publishers, and closes them."""

    stack: AsyncExitStack

    async def source(self, uri: str, visibility_ms: int = LONG_MS) -> Source:
        source = open_source("q", uri, visibility_ms)
        await source.open()
        self.stack.push_async_callback(source.close)
        return source

    async def publisher(self, uri: str) -> Publisher:
        publisher = open_publisher(uri)
        await publisher.open()
        self.stack.push_async_callback(publisher.close)
        return publisher

    async def send(self, uri: str, numbers: Sequence[int], *, group: str | None = "g") -> None:
        publisher = await self.publisher(uri)
        outgoing = [Outgoing(id=f"{number}", body=b"%d" % number, group=group) for number in numbers]
        assert await publisher.publish(outgoing) == [None] * len(numbers)


@pytest.fixture
async def place() -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        yield Place(stack)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[[], str]:
    caplog.set_level(logging.DEBUG)
    return lambda: caplog.text


def held(received: Sequence[Received]) -> list[Held]:
    return [Held(one.broker_id, one.handle) for one in received]


def numbers_of(received: Sequence[Received]) -> list[int]:
    return [int(one.body) for one in received]


async def drained(source: Source, seen: list[int], until: int, *, most: int = 50) -> None:
    """Poll and ack until `until` different messages were seen; what cannot be had just now is asked for again."""
    async with asyncio.timeout(40):
        while len(set(seen)) < until:
            try:
                received = await source.poll(most, 1000)
                seen += numbers_of(received)
                assert all(await source.ack(held(received)))
            except SourceUnavailable:
                await asyncio.sleep(0.05)


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
    uri, count = nats_server.uri(nats_server.new_stream()), 4_000
    source, publisher = await place.source(uri), await place.publisher(uri)

    async def feed() -> None:
        for first in range(0, count, 50):
            batch = [Outgoing(id=f"{n}", body=b"%d" % n, group="g") for n in range(first, first + 50)]
            assert await publisher.publish(batch) == [None] * 50

    feeding, seen, turn, cancelled = asyncio.create_task(feed()), list[int](), 0, 0
    async with asyncio.timeout(40):
        while len(seen) < count:
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
        with pytest.raises(SourceUnavailable, match="stream NONE: there is none: create it, Fleet does not"):
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


# Trouble ------------------------------------------------------------------------------------------------


async def test_a_line_that_is_cut_for_a_while_loses_nothing_and_keeps_the_order(
    place: Place, nats_server: NatsServer, said: Callable[[], str]
) -> None:
    stream, count = nats_server.new_stream(), 4_000
    await place.send(nats_server.uri(stream), range(count))
    with proxied(nats_server.port) as proxy:
        source, seen = await place.source(nats_server.uri(stream, port=proxy.port)), list[int]()
        for cut_s in (0.0, 2.0, 0.5):
            await drained(source, seen, len(set(seen)) + 500)
            waiting = asyncio.create_task(source.poll(500, SOON_MS))
            for _ in range(5):
                await asyncio.sleep(0)
            proxy.cut()
            began = time.monotonic()
            try:
                seen += numbers_of(await waiting)
            except SourceUnavailable:
                assert time.monotonic() - began < 4
            await _all_fail_quickly(source, seen)
            await asyncio.sleep(cut_s)
            proxy.mend()
        await drained(source, seen, count)
    first_time = list(dict.fromkeys(seen))
    assert first_time == list(range(count))
    assert "Traceback" not in said()


async def _all_fail_quickly(source: Source, seen: list[int]) -> None:
    handle = Held("x", "$JS.ACK.x")
    for call in (lambda: source.poll(1, 30_000), lambda: source.ack([handle]), source.depth):
        began = time.monotonic()
        try:
            got = await call()
            if got and isinstance(got, list) and isinstance(got[0], Received):
                seen += numbers_of(got)
        except SourceUnavailable:
            pass
        assert time.monotonic() - began < 4


@pytest.mark.parametrize("bytes_through", [300, 3_000, 20_000, 60_000, 150_000])
async def test_what_was_on_the_line_when_it_broke_comes_before_anything_newer(
    place: Place, nats_server: NatsServer, bytes_through: int
) -> None:
    stream = nats_server.new_stream()
    await place.send(nats_server.uri(stream), range(1_000))
    async with leaking(nats_server.port) as leak:
        source = await place.source(nats_server.uri(stream, port=leak.port))
        await source.poll(1, 0)
        leak.cut_after(bytes_through)
        seen, began = [0], time.monotonic()
        await drained(source, seen, 1_000, most=500)
        assert list(dict.fromkeys(seen)) == list(range(1_000))
        assert time.monotonic() - began < 10  # and not only after the ack wait
        assert leak.was_cut


async def test_a_server_that_was_killed_and_is_back_loses_nothing(place: Place, tmp_path: Path) -> None:
    count = 2_000
    with running_nats(tmp_path) as server:
        stream = server.new_stream()
        uri, port = server.uri(stream), server.port
        source = await place.source(uri)
        publisher = await place.publisher(uri)
        await place.send(uri, range(count))
        seen: list[int] = []
        await drained(source, seen, 700)
        out = await source.poll(100, SOON_MS)
        server.server.kill()
        for _ in range(3):
            began = time.monotonic()
            with pytest.raises(SourceUnavailable):
                await source.poll(10, 30_000)
            with pytest.raises(SourceUnavailable):
                await source.ack(held(out))
            with pytest.raises(SourceUnavailable):
                await publisher.publish([Outgoing(id="x", body=b"x")])
            assert time.monotonic() - began < 6
    with running_nats(tmp_path, port=port):
        await _until_it_answers(source)
        # What the server had not written down of its last moment, it will not know to ack: that is shown again.
        acked = await source.ack(held(out))
        seen += [int(one.body) for one, ok in zip(out, acked, strict=True) if ok]
        await drained(source, seen, count)
        assert await publisher.publish([Outgoing(id="after", body=b"9999")]) == [None]
        await drained(source, seen, count + 1)
    assert set(seen) == {*range(count), 9999}


async def _until_it_answers(source: Source) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await source.depth()
                return
            except SourceUnavailable:
                await asyncio.sleep(0.05)


async def test_a_server_that_stands_still_is_told_within_seconds_and_used_again_later(
    place: Place, tmp_path: Path
) -> None:
    with running_nats(tmp_path) as server:
        uri = server.uri(server.new_stream())
        source = await place.source(uri)
        await place.send(uri, range(3))
        assert numbers_of(await source.poll(1, 0)) == [0]
        server.server.pause()
        for call in (source.depth, lambda: source.poll(1, 500)):
            began = time.monotonic()
            with pytest.raises(SourceUnavailable):
                await call()
            assert time.monotonic() - began < 5
        server.server.resume()
        await _until_it_answers(source)
        seen = [0]
        await drained(source, seen, 3)
        assert seen == [0, 1, 2]


@pytest.mark.parametrize("trouble", ["none", "killed", "paused"])
async def test_closing_is_quick_whatever_has_become_of_the_server(tmp_path: Path, trouble: str) -> None:
    with running_nats(tmp_path) as server:
        uri = server.uri(server.new_stream())
        source, publisher = open_source("q", uri, LONG_MS), open_publisher(uri)
        await source.open()
        await publisher.open()
        await source.poll(1, 0)
        waiting = asyncio.create_task(source.poll(1, 30_000))
        await asyncio.sleep(0)
        match trouble:
            case "killed":
                server.server.kill()
            case "paused":
                server.server.pause()
        began = time.monotonic()
        await source.close()
        await publisher.close()
        assert time.monotonic() - began < 2
        with pytest.raises(SourceUnavailable):
            await waiting


async def test_what_a_cancelled_poll_got_is_shown_to_others_when_its_source_closes(
    place: Place, nats_server: NatsServer
) -> None:
    uri = nats_server.uri(nats_server.new_stream())
    source = await place.source(uri)
    await source.poll(1, 0)
    poll = asyncio.create_task(source.poll(5, SOON_MS))
    assert await source.poll(1, 0) == []
    poll.cancel()
    await asyncio.wait([poll])
    await place.send(uri, range(4))
    await source.close()
    other = await place.source(uri)
    assert numbers_of(await other.poll(10, SOON_MS)) == [0, 1, 2, 3]


async def test_neither_an_error_nor_a_log_line_shows_a_secret(
    place: Place, tmp_path: Path, said: Callable[[], str]
) -> None:
    shown = []
    with running_nats(tmp_path, user="fleet", password="s3cret") as server:
        uri = server.uri(server.new_stream())
        source = await place.source(uri)
        assert await source.poll(1, 0) == []
        for wrong in (uri.replace("s3cret", "wr0ng"), uri.replace("fleet:s3cret@", "t0ken@")):
            with pytest.raises(SourceUnavailable, match="(?i)authorization") as caught:
                await place.source(wrong)
            shown.append(str(caught.value))
        server.server.kill()
        with pytest.raises(FleetError) as broken:
            await source.poll(1, 3_000)
        shown.append(str(broken.value))
    text = " ".join([*shown, said(), repr(source)])
    assert not [secret for secret in ("s3cret", "wr0ng", "t0ken") if secret in text]
    assert all("\n" not in one for one in shown)
    assert "Traceback" not in said()


async def test_who_does_not_speak_nats_is_an_error_within_seconds(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(SourceUnavailable, match=f"NATS at 127.0.0.1:{port}: "):
            await place.source(f"nats://127.0.0.1:{port}/S/C")
        assert time.monotonic() - began < 4
    with pytest.raises(SourceUnavailable, match=f"NATS at 127.0.0.1:{port}: "):
        await place.source(f"nats://127.0.0.1:{port}/S/C")


async def test_closing_ends_an_attempt_to_connect_and_who_waits_for_it_hears_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        source = open_source("q", f"nats://127.0.0.1:{deaf.getsockname()[1]}/S/C", LONG_MS)
        opening = asyncio.create_task(source.depth())
        assert await asyncio.wait([opening], timeout=0.1) == (set(), {opening})
        began = time.monotonic()
        await source.close()
        assert time.monotonic() - began < 1
        with pytest.raises(SourceUnavailable):
            await opening


# A line that breaks in the middle of what the server sends --------------------------------------------------


class Leak:
    """Lets through so many bytes of what the server says, and is cut then, perhaps in the middle of a message."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self.was_cut = False
        self._target_port = target_port
        self._left: int | None = None
        self._serving: set[asyncio.Task[None]] = set()

    def cut_after(self, count: int) -> None:
        self._left = count

    def accept(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(near, to_near))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def close(self) -> None:
        while self._serving:
            for serving in self._serving:
                serving.cancel()
            await asyncio.wait(self._serving)

    async def _serve(self, near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        far, to_far = await asyncio.open_connection("127.0.0.1", self._target_port)
        pumps = {asyncio.create_task(_pump(near, to_far)), asyncio.create_task(self._limited(far, to_near))}
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for writer in (to_near, to_far):
                writer.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)

    async def _limited(self, far: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        while chunk := await far.read(4096):
            if self._left is not None:
                chunk, self._left = chunk[: self._left], self._left - len(chunk)
            to_near.write(chunk)
            await to_near.drain()
            if self._left is not None and self._left <= 0:
                self._left, self.was_cut = None, True
                return


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()


@asynccontextmanager
async def leaking(target_port: int) -> AsyncIterator[Leak]:
    leak = Leak(target_port)
    server = await asyncio.start_server(leak.accept, "127.0.0.1", 0)
    leak.port = server.sockets[0].getsockname()[1]
    try:
        yield leak
    finally:
        server.close()
        await leak.close()
