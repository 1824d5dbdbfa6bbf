"""SQS as moto knows it: the line cut, the server gone, two sources, and what the conformance suite has no fact for."""

from __future__ import annotations

import asyncio

import pytest

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.base import Outgoing, Surroundings
from fleet.sources.open import open_publisher, open_source
from fleet.sources.sqs.source import SqsSource
from tests.messages import bodies, held, opened, send
from tests.servers.moto import REGION, MotoServer, running_moto
from tests.servers.proxy import proxied
from tests.unit.sources.sqs.source import SOON_MS, a_source


@pytest.mark.parametrize(("fifo", "group"), [(False, "größe 1"), (True, "order/1:a~"), (True, None), (False, None)])
async def test_text_and_group_come_as_they_were_sent(moto_server: MotoServer, fifo: bool, group: str | None) -> None:
    uri = moto_server.make_queue(fifo=fifo)
    text = 'größe \t"{}"\n\U0001f600 &lt;'
    async with a_source(uri) as source:
        await send(uri, text, group=group)
        (received,) = await source.poll(10, SOON_MS)
        assert (received.body.decode(), received.group, received.receive_count) == (text, group, 1)


async def test_a_fifo_queue_tells_its_depth(moto_server: MotoServer) -> None:
    uri = moto_server.make_queue(fifo=True)
    async with a_source(uri) as source:
        await send(uri, "1", "2", "3")
        received = await source.poll(1, SOON_MS)
        depth = await source.depth()
        assert (depth.waiting, depth.invisible, depth.oldest_s) == (2, 1, None)
        await source.ack(held(received))
        assert (await source.depth()).invisible == 0


async def test_a_nacked_message_of_a_fifo_queue_holds_its_group_for_its_delay(moto_server: MotoServer) -> None:
    uri = moto_server.make_queue(fifo=True)
    async with a_source(uri) as source:
        await send(uri, "1", "2", "3")
        received = held(await source.poll(2, SOON_MS))
        await source.nack([(received[0], 2000), (received[1], 0)])
        assert await source.poll(10, 1000) == []
        assert bodies(await source.poll(10, SOON_MS)) == ["1", "2", "3"]


@pytest.mark.parametrize("fifo", [False, True])
async def test_a_queue_named_by_region_is_found_at_the_endpoint_of_the_settings(
    moto_server: MotoServer, fifo: bool
) -> None:
    name = moto_server.make_queue(fifo=fifo).rpartition("/")[2]
    around = Surroundings(sqs_endpoint=moto_server.url)
    publisher = open_publisher(f"sqs://{REGION}/{name}", around=around)
    source = open_source("orders", f"sqs://{REGION}/{name}", 30_000, connections=2, around=around)
    await publisher.open()
    await source.open()
    assert source.holds_groups is fifo
    assert await publisher.publish([Outgoing("1", b"1")]) == [None]
    assert bodies(await source.poll(10, SOON_MS)) == ["1"]
    await publisher.close()
    await source.close()
    missing = open_source("orders", f"sqs://{REGION}/not-{name}", 1000, around=around)
    with pytest.raises(SourceError, match=f"there is no SQS queue not-{name}") as caught:
        await missing.open()
    assert not isinstance(caught.value, SourceUnavailable)


@pytest.mark.parametrize("fifo", [False, True])
async def test_a_cut_line_is_told_and_once_mended_everything_goes_on(moto_server: MotoServer, fifo: bool) -> None:
    uri = moto_server.make_queue(fifo=fifo)
    with proxied(moto_server.port) as line:
        behind = uri.replace(f":{moto_server.port}/", f":{line.port}/")
        async with a_source(behind, connections=2) as source, opened(open_publisher(behind)) as publisher:
            await send(uri, "1")
            first = await source.poll(10, SOON_MS)
            assert bodies(first) == ["1"]
            poll = asyncio.create_task(source.poll(10, SOON_MS))
            assert await source.poll(10, 0) == []  # by now the other one waits
            line.cut()
            with pytest.raises(SourceUnavailable):
                await poll
            for call in (source.poll(10, SOON_MS), source.ack(held(first)), source.depth()):
                with pytest.raises(SourceUnavailable):
                    await call
            with pytest.raises(SourceUnavailable):
                await publisher.publish([Outgoing("2", b"2")])
            line.mend()
            assert await publisher.publish([Outgoing("2", b"2", group="g")]) == [None]
            assert await source.ack(held(first)) == [True]
            assert bodies(await source.poll(10, SOON_MS)) == ["2"]


async def test_a_source_outlives_a_restart_of_its_server() -> None:
    with running_moto() as first:
        uri = first.make_queue(fifo=True, name="orders.fifo")
        async with a_source(uri) as source:
            await send(uri, "1")
            assert bodies(await source.poll(10, SOON_MS)) == ["1"]
            first.server.stop()
            with pytest.raises(SourceUnavailable):
                await source.poll(10, SOON_MS)
            with running_moto(port=first.port) as second:
                # moto keeps nothing over a restart, which AWS does.
                with pytest.raises(SourceError, match="there is no SQS queue"):
                    await source.poll(10, SOON_MS)
                assert second.make_queue(fifo=True, name="orders.fifo") == uri
                await send(uri, "2")
                assert bodies(await source.poll(10, SOON_MS)) == ["2"]


@pytest.mark.parametrize("fifo", [False, True])
async def test_two_sources_of_one_queue_share_its_messages(moto_server: MotoServer, fifo: bool) -> None:
    uri = moto_server.make_queue(fifo=fifo)
    sent = [f"{group}{number}" for number in range(15) for group in "abcd"]
    for group in "abcd":
        await send(uri, *[body for body in sent if body.startswith(group)], group=group)
    seen: list[str] = []

    async def work(source: SqsSource) -> None:
        while len(seen) < len(sent):
            batch = await source.poll(10, 500)
            seen.extend(bodies(batch))
            assert all(await source.ack(held(batch)))

    async with a_source(uri) as one, a_source(uri) as two:
        async with asyncio.timeout(30):
            await asyncio.gather(work(one), work(two))
    # No word of order: moto gives two receives at once messages of one group (tests/servers/moto.py).
    assert sorted(seen) == sorted(sent)
