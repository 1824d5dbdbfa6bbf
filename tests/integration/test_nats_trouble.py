"""JetStream when its line is cut, and when its server is killed, stands still or does not exist."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from fleet.errors import FleetError, SourceUnavailable
from fleet.sources.base import Outgoing, Receipt, Received, Source
from fleet.sources.open import open_publisher, open_source
from tests.integration.place import LONG_MS, SOON_MS, Place, drained, numbers_of
from tests.messages import held
from tests.servers.nats import NatsServer, running_nats
from tests.servers.proxy import proxied
from tests.waiting import answered


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
    handle = Receipt("x", "$JS.ACK.x")
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
    with proxied(nats_server.port) as line:
        source = await place.source(nats_server.uri(stream, port=line.port))
        await source.poll(1, 0)
        line.break_after(bytes_through)
        seen, began = [0], time.monotonic()
        await drained(source, seen, 1_000, most=500)
        assert list(dict.fromkeys(seen)) == list(range(1_000))
        assert time.monotonic() - began < 10  # and not only after the ack wait
        assert line.broke


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
        await answered(source.depth, SourceUnavailable)
        # What the server had not written down of its last moment, it will not know to ack: that is shown again.
        acked = await source.ack(held(out))
        seen += [int(one.body) for one, ok in zip(out, acked, strict=True) if ok]
        await drained(source, seen, count)
        assert await publisher.publish([Outgoing(id="after", body=b"9999")]) == [None]
        await drained(source, seen, count + 1)
    assert set(seen) == {*range(count), 9999}


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
        await answered(source.depth, SourceUnavailable)
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
        # What the server may have sent just then is out, and its owner must not say that all is well.
        with nullcontext() if trouble == "none" else pytest.raises(SourceUnavailable):
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
        with pytest.raises(SourceUnavailable, match="on their way") as unknown:
            await source.close()
        shown.append(str(unknown.value))
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
