"""ActiveMQ when things go wrong: lines cut, brokers and owners killed. Brokers are real."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from subprocess import PIPE
from typing import Any

import pytest

from fleet.errors import SourceUnavailable
from fleet.sources.activemq.address import parse_address
from fleet.sources.activemq.frames import StompCommand
from fleet.sources.activemq.line import StompLine
from fleet.sources.activemq.publisher import ActiveMqPublisher
from fleet.sources.base import Depth, Outgoing, Received
from tests.integration.activemq_source import HEARTBEAT_MS, SOON_MS, emptied, poll_again, source_of
from tests.messages import bodies, held, opened, send
from tests.servers.activemq import MOST_BODY_BYTES, ActiveMqServer, running_activemq
from tests.servers.proxy import proxied


async def test_a_line_that_is_cut_and_mended_loses_nothing_and_keeps_the_order(
    activemq_server: ActiveMqServer, queue: str
) -> None:
    uri = activemq_server.uri(queue)
    numbers = [str(number) for number in range(30)]
    await send(uri, *numbers)
    with proxied(activemq_server.port) as proxy:
        async with opened(source_of(activemq_server.uri(queue, port=proxy.port))) as source:
            before = await source.poll(10, SOON_MS)
            assert await source.ack(held(before[:4])) == [True] * 4
            waiting = asyncio.create_task(source.poll(0, 0))
            assert await waiting == []
            proxy.cut()
            with pytest.raises(SourceUnavailable):
                async with asyncio.timeout(2):
                    while True:
                        await source.ack(held(before[4:5]))
                        await source.extend(held(before[4:5]), 1000)
                        await asyncio.sleep(0)
            for call in (source.poll(1, SOON_MS), source.nack([(held(before)[5], 0)]), source.extend([], 1)):
                async with asyncio.timeout(0.5):
                    with pytest.raises(SourceUnavailable):
                        await call
            proxy.mend()
            after = await poll_again(source)
            while len(after) < 30 - 5:
                after += await source.poll(50, SOON_MS)
            assert bodies(after)[-25:] == numbers[5:]
            # One ack was under way: it was done, or that message came once more.
            assert bodies(after)[:-25] in ([], numbers[4:5])
            assert [one.broker_id for one in after[-25:]][:5] == [one.broker_id for one in before[5:]]
            assert await source.ack(held(before[5:])) == [False] * 5
            assert await source.nack([(held(before)[6], 0)]) == [False]
            assert await source.extend(held(before[5:7]), 1) == [False, False]
            assert all(await source.ack(held(after)))
            await emptied(source)


async def test_a_poll_that_waits_hears_at_once_that_the_line_was_cut(
    activemq_server: ActiveMqServer, queue: str
) -> None:
    with proxied(activemq_server.port) as proxy:
        async with opened(source_of(activemq_server.uri(queue, port=proxy.port))) as source:
            assert await source.poll(1, 0) == []
            waiting = asyncio.create_task(source.poll(1, 60_000))
            await asyncio.sleep(0)
            proxy.cut()
            async with asyncio.timeout(2):
                with pytest.raises(SourceUnavailable):
                    await waiting


async def test_a_broker_that_is_killed_and_started_again_has_what_was_not_acked_in_order(
    mortal: ActiveMqServer, queue: str
) -> None:
    uri = mortal.uri(queue)
    await send(uri, "1", "2", "3", "4")
    async with opened(source_of(uri)) as source:
        before = await source.poll(10, SOON_MS)
        assert await source.ack(held(before[:1])) == [True]
        mortal.restart()
        after = await poll_again(source)
        assert bodies(after) == ["2", "3", "4"]
        assert [one.broker_id for one in after] == [one.broker_id for one in before[1:]]
        assert all(await source.ack(held(after)))
        await emptied(source)


SLOW_HEARTBEAT_MS = 3_000
"""The broker looks at its sessions now and then, and on a busy machine it is late by a second."""
_OWNER = """
import asyncio, sys
from fleet.sources.activemq.source import ActiveMqSource
from fleet.sources.activemq.address import parse_address

async def main():
    source = ActiveMqSource(address=parse_address(sys.argv[1]), visibility_ms=1000, heartbeat_ms=int(sys.argv[2]))
    await source.open()
    print(len(await source.poll(2, 5000)), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_what_a_stopped_owner_was_given_comes_in_order_within_the_crash_wait(
    activemq_server: ActiveMqServer, queue: str
) -> None:
    uri = activemq_server.uri(queue)
    await send(uri, "1", "2", "3")
    command = [sys.executable, "-c", _OWNER, uri, str(SLOW_HEARTBEAT_MS)]
    owner = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    heir = source_of(uri, SLOW_HEARTBEAT_MS)
    try:
        assert owner.stdout is not None
        assert await owner.stdout.readline() == b"2\n"
        owner.send_signal(signal.SIGSTOP)
        await heir.open()
        await send(uri, "4")
        assert (await heir.depth()).invisible > 0
        async with asyncio.timeout(heir.crash_wait_ms / 1000):
            while (await heir.depth()).invisible:
                pass
        received = await heir.poll(10, SOON_MS)
        assert bodies(received) == ["1", "2", "3", "4"]
        assert all(await heir.ack(held(received)))
    finally:
        owner.kill()
        await owner.wait()
        await heir.close()


async def test_a_group_stays_with_the_source_that_has_it_and_goes_on_in_order_when_that_closes(
    activemq_server: ActiveMqServer, queue: str
) -> None:
    uri = activemq_server.uri(queue)
    await send(uri, "a1", group="a")
    first, second = source_of(uri), source_of(uri)
    await first.open()
    await second.open()
    try:
        assert bodies(await first.poll(10, SOON_MS)) == ["a1"]
        assert await second.poll(10, 0) == []
        await send(uri, "a2", "a3", group="a")
        await send(uri, "b1", group="b")
        assert bodies(await second.poll(10, SOON_MS)) == ["b1"]
        await first.close()
        received: list[Received] = []
        while len(received) < 3:
            received += await second.poll(10, SOON_MS)
        assert bodies(received) == ["a1", "a2", "a3"]
    finally:
        await first.close()
        await second.close()


async def test_opening_and_asking_for_the_depth_take_nothing(activemq_server: ActiveMqServer, queue: str) -> None:
    uri = activemq_server.uri(queue)
    await send(uri, "1")
    onlooker, owner = source_of(uri), source_of(uri)
    await onlooker.open()
    await owner.open()
    try:
        assert (await onlooker.depth()) == Depth(waiting=1, invisible=0, oldest_s=None)
        (received,) = await owner.poll(10, SOON_MS)
        assert received.receive_count == 1
        assert (await onlooker.depth()) == Depth(waiting=0, invisible=1, oldest_s=None)
    finally:
        await onlooker.close()
        await owner.close()


async def test_no_more_is_taken_than_the_prefetch_allows(activemq_server: ActiveMqServer, queue: str) -> None:
    uri = activemq_server.uri(queue)
    await send(uri, *(str(number) for number in range(10)))
    source = source_of(uri + "?prefetch=4")
    onlooker = source_of(uri)
    await source.open()
    try:
        received = await source.poll(2, SOON_MS)
        assert (await onlooker.depth()).invisible == 4
        received += await source.poll(10, SOON_MS)
        assert await source.poll(10, 50) == []
        await source.ack(held(received))
        assert bodies(await source.poll(10, SOON_MS))[0] == "4"
    finally:
        await source.close()


async def test_a_body_that_the_broker_refuses_is_named_and_the_others_are_accepted(
    activemq_server: ActiveMqServer, queue: str
) -> None:
    publisher = ActiveMqPublisher(address=parse_address(activemq_server.uri(queue)))
    await publisher.open()
    messages = [Outgoing(id=str(n), body=b"x" * size) for n, size in enumerate((3, 2 * MOST_BODY_BYTES, 5))]
    try:
        results = await publisher.publish([*messages, Outgoing(id="3", body=b"", group="a\0b")])
        assert [result is None for result in results] == [True, False, True, False]
        source = source_of(activemq_server.uri(queue))
        await source.open()
        received = await source.poll(10, SOON_MS)
        assert [len(one.body) for one in received] == [3, 5]
        await source.close()
    finally:
        await publisher.close()


async def test_a_text_message_is_read_as_its_text(activemq_server: ActiveMqServer, queue: str) -> None:
    uri = activemq_server.uri(queue)
    line, source = StompLine(address=parse_address(uri)), source_of(uri)
    await line.open()
    await source.open()
    try:
        # Without a content-length the broker makes it a TextMessage, as a Java producer would.
        assert await line.ask([StompCommand("SEND", {"destination": f"/queue/{queue}"}, "größe".encode())]) == [""]
        (received,) = await source.poll(10, SOON_MS)
        assert (received.body.decode(), received.group) == ("größe", None)
    finally:
        await line.close()
        await source.close()


async def test_a_broker_without_plugins_is_served_too(tmp_path: Any) -> None:
    with running_activemq(tmp_path / "plain", has_plugins=False) as server:
        uri = server.uri("plain")
        async with opened(source_of(uri)) as source:
            await send(uri, "1", "2", "3")
            onlooker = source_of(uri)
            # Whether somebody has them the broker does not say: it is taken as if.
            assert await onlooker.depth() == Depth(waiting=0, invisible=3, oldest_s=None)
            first, second = await source.poll(2, SOON_MS)
            assert await source.depth() == Depth(waiting=1, invisible=2, oldest_s=None)
            assert await source.nack([(held([first])[0], 300), (held([second])[0], 0)]) == [True, True]
            # The broker sends the copy back at once. It is kept here until it is due.
            assert bodies(await source.poll(10, 0)) == ["2", "3"]
            assert await source.poll(10, 0) == []
            (again,) = await source.poll(10, SOON_MS)
            assert (again.broker_id, again.receive_count) == (first.broker_id, 2)


async def test_a_source_closes_at_once_and_leaves_no_thread_also_when_its_broker_hangs(
    mortal: ActiveMqServer, queue: str
) -> None:
    threads = set(threading.enumerate())
    source = source_of(mortal.uri(queue))
    await source.open()
    await source.poll(1, 0)
    mortal.process.pause()
    try:
        began = time.monotonic()
        waiting = asyncio.create_task(source.poll(1, 60_000))
        await asyncio.sleep(0)
        await source.close()
        with pytest.raises(SourceUnavailable):
            await waiting
        assert time.monotonic() - began < 1
        # The event loop keeps those in which it looks up names.
        left = {thread for thread in threading.enumerate() if not thread.name.startswith("asyncio_")}
        assert left <= threads
    finally:
        mortal.process.resume()


async def test_a_source_that_has_nothing_to_say_keeps_its_connection(
    activemq_server: ActiveMqServer, queue: str
) -> None:
    uri = activemq_server.uri(queue)
    await send(uri, "a")
    async with opened(source_of(uri, HEARTBEAT_MS)) as source:
        received = await source.poll(10, SOON_MS)
        assert await source.poll(10, 5 * HEARTBEAT_MS) == []
        assert await source.extend(held(received), 1) == [True]
        assert await source.ack(held(received)) == [True]


async def test_a_broker_that_falls_silent_is_given_up(mortal: ActiveMqServer, queue: str) -> None:
    source = source_of(mortal.uri(queue), HEARTBEAT_MS)
    await source.open()
    await source.poll(1, 0)
    mortal.process.pause()
    try:
        async with asyncio.timeout(4 * HEARTBEAT_MS / 1000):
            with pytest.raises(SourceUnavailable):
                await source.poll(1, 60_000)
    finally:
        mortal.process.resume()
        await source.close()


async def test_a_broker_that_is_not_there_is_unavailable_in_one_line_without_the_password() -> None:
    source = source_of("stomp://user:s3cret@127.0.0.1:1/q")
    with pytest.raises(SourceUnavailable) as caught:
        await source.open()
    assert "s3cret" not in str(caught.value)
    assert str(caught.value) == "stomp://127.0.0.1:1/q: Connection refused"
    await source.close()


async def test_a_foreign_message_whose_id_cannot_be_ours_has_the_brokers_id_through_a_delayed_nack(
    activemq_server: ActiveMqServer, queue: str
) -> None:
    uri = activemq_server.uri(queue)
    line, source = StompLine(address=parse_address(uri)), source_of(uri)
    await line.open()
    await source.open()
    try:
        headers = {"destination": f"/queue/{queue}", "FleetId": "a\x1fb\x1e", "content-length": "1"}
        assert await line.ask([StompCommand("SEND", headers, b"x")]) == [""]
        (first,) = await source.poll(10, SOON_MS)
        assert first.broker_id.isprintable() and first.broker_id != headers["FleetId"]
        assert await source.nack([(held([first])[0], 100)]) == [True]
        (again,) = await source.poll(10, SOON_MS)
        assert (again.broker_id, again.receive_count) == (first.broker_id, 2)
        assert await source.ack(held([again])) == [True]
        await emptied(source)
    finally:
        await source.close()
        await line.close()
