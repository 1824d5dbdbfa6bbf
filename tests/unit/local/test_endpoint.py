"""The sample endpoint, over real connections."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fleet.delivery.client import HttpClient
from fleet.delivery.reply import Reply
from fleet.local.endpoint import SAMPLES, EndpointOptions, serve
from fleet.operate.journal import End, Start, read
from fleet.operate.send import SAMPLE_ENDPOINTS
from tests.unit.delivery.endpoints import on_uvloop, post


class Running:
    def __init__(self, url: str, journal: Path) -> None:
        self.url = url
        self.port = int(url.rsplit(":", 1)[1])
        self.journal = journal
        self.client = HttpClient()

    async def deliver(self, message_id: str, *, group: str = "g", epoch: int = 1, pool: str = "P") -> Reply:
        named = {"Idempotency-Key": message_id, "Fleet-Pool": pool, "Fleet-Group": group, "Fleet-Epoch": epoch}
        headers = [f"{name}: {value}" for name, value in named.items()]
        return await post(self.client, self.url, headers=headers, body=b'{"messageId":"of the body"}')

    def records(self) -> list[tuple[str, str, int | None]]:
        return [
            (type(record).__name__, record.id, record.status)
            for record in read(self.journal)
            if isinstance(record, Start | End)
        ]


@asynccontextmanager
async def running(tmp_path: Path, **options: Any) -> AsyncIterator[Running]:
    listening: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    journal = tmp_path / "journal"
    task = asyncio.ensure_future(serve(EndpointOptions(journal=journal, **options), listening.set_result))
    endpoint = Running(await listening, journal)
    try:
        yield endpoint
    finally:
        endpoint.client.close()
        if not task.done():
            os.kill(os.getpid(), signal.SIGTERM)
        await task


@on_uvloop
async def test_a_delivery_is_acknowledged_and_journalled_before_the_reply(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        reply = await endpoint.deliver("a", epoch=7)
        assert (reply.status, reply.body) == (200, b'{"ack":true}')
        start, end = read(endpoint.journal)
        assert isinstance(start, Start) and (start.id, start.group, start.epoch) == ("a", "g", 7)
        assert isinstance(end, End) and (end.id, end.group, end.epoch, end.status) == ("a", "g", 7, 200)
        assert (start.pool, end.pool) == ("P", "P")
        assert start.t <= end.t


@on_uvloop
async def test_without_a_header_the_id_is_that_of_the_body(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        await post(endpoint.client, endpoint.url, body=b'{"messageId":"b"}')
        assert [record[1] for record in endpoint.records()] == ["b", "b"]


@on_uvloop
async def test_what_is_no_delivery_is_answered_and_not_journalled(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        for body in (b"", b"hello", b"[]", b'{"x":1}', b"\xff"):
            assert (await post(endpoint.client, endpoint.url, body=body)).status == 200
        assert endpoint.records() == []


@on_uvloop
async def test_a_start_is_journalled_before_the_latency(tmp_path: Path) -> None:
    async with running(tmp_path, latency_ms=100) as endpoint:
        reply = asyncio.ensure_future(endpoint.deliver("a"))
        while not endpoint.records():
            assert not reply.done()
            await asyncio.wait([reply], timeout=0.001)
        assert endpoint.records() == [("Start", "a", None)]
        assert (await reply).seconds >= 0.09  # the loop's timers count whole milliseconds
        assert endpoint.records()[1:] == [("End", "a", 200)]


@on_uvloop
async def test_requests_are_worked_on_side_by_side(tmp_path: Path) -> None:
    async with running(tmp_path, latency_ms=100) as endpoint:
        replies = await asyncio.gather(*(endpoint.deliver(str(number), group=str(number)) for number in range(20)))
        assert {reply.status for reply in replies} == {200}
        assert [kind for kind, _, _ in endpoint.records()] == ["Start"] * 20 + ["End"] * 20


@on_uvloop
async def test_a_share_fails_as_asked(tmp_path: Path) -> None:
    async with running(tmp_path, fail_rate=1.0) as endpoint:
        assert (await endpoint.deliver("a")).status == 500
        assert endpoint.records()[1:] == [("End", "a", 500)]
    async with running(tmp_path, fail_rate=0.5) as endpoint:
        assert {(await endpoint.deliver("a")).status for _ in range(100)} == {200, 500}


@on_uvloop
async def test_a_lower_epoch_than_seen_for_the_group_is_fenced(tmp_path: Path) -> None:
    async with running(tmp_path, fence=True) as endpoint:
        assert (await endpoint.deliver("a", epoch=5)).status == 200
        stale = await endpoint.deliver("b", epoch=4)
        assert (stale.status, stale.fenced) == (412, True)
        assert (await endpoint.deliver("b", epoch=4)).status == 412, "being refused lowers nothing"
        assert (await endpoint.deliver("b", epoch=4, group="other")).status == 200
        assert (await endpoint.deliver("b", epoch=4, pool="other")).status == 200
        assert (await endpoint.deliver("b", epoch=5)).status == 200
        assert (await endpoint.deliver("c", epoch=6)).status == 200
        assert endpoint.records()[2] == ("End", "b", 412), "what is refused at the door never started"


@on_uvloop
async def test_without_fence_any_epoch_is_taken(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        assert [(await endpoint.deliver("a", epoch=epoch)).status for epoch in (5, 4)] == [200, 200]


@on_uvloop
async def test_a_request_overtaken_by_a_newer_epoch_while_it_ran_is_not_accepted(tmp_path: Path) -> None:
    async with running(tmp_path, fence=True, latency_ms=100) as endpoint:
        old = asyncio.ensure_future(endpoint.deliver("a", epoch=1))
        while not endpoint.records():
            await asyncio.wait([old], timeout=0.001)
        assert (await endpoint.deliver("a", epoch=2)).status == 200
        assert (await old).status == 412
        assert ("End", "a", 412) in endpoint.records()


@on_uvloop
async def test_a_request_whose_client_has_gone_ends_with_the_status_it_would_have_had(tmp_path: Path) -> None:
    async with running(tmp_path, latency_ms=100) as endpoint:
        _, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"POST / HTTP/1.1\r\nIdempotency-Key: a\r\nContent-Length: 0\r\n\r\n")
        while not endpoint.records():
            await asyncio.wait([asyncio.ensure_future(writer.drain())], timeout=0.001)
        writer.close()
        await endpoint.deliver("later")
        assert ("End", "a", 200) in endpoint.records()


@on_uvloop
async def test_replies_of_a_pipeline_keep_their_order(tmp_path: Path) -> None:
    async with running(tmp_path, latency_ms=10) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        head = b"POST / HTTP/1.1\r\nIdempotency-Key: %s\r\nContent-Length: 0\r\n"
        writer.write(head % b"a" + b"\r\n" + head % b"b" + b"\r\n" + head % b"c" + b"Connection: close\r\n\r\n")
        answers = await reader.read()
        assert answers.count(b"HTTP/1.1 200 OK") == 3
        assert [(kind, id_) for kind, id_, _ in endpoint.records()] == [
            (kind, id_) for id_ in "abc" for kind in ("Start", "End")
        ]
        writer.close()


@on_uvloop
async def test_what_is_no_http_is_answered_400_and_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"SSH-2.0-client\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()


@on_uvloop
async def test_sigterm_lets_what_is_worked_on_end_and_then_closes(tmp_path: Path) -> None:
    async with running(tmp_path, latency_ms=100) as endpoint:
        replies = asyncio.gather(*(endpoint.deliver(str(number)) for number in range(5)))
        while len(endpoint.records()) < 5:
            await asyncio.wait([replies], timeout=0.001)
        os.kill(os.getpid(), signal.SIGTERM)
        assert [reply.status for reply in await replies] == [200] * 5
        assert [kind for kind, _, _ in endpoint.records()] == ["Start"] * 5 + ["End"] * 5
        assert (await endpoint.deliver("late")).error == "REFUSED"


def test_a_process_says_its_url_at_once_and_ends_on_sigterm(tmp_path: Path) -> None:
    code = "from fleet.local.endpoint import *; run_endpoint(EndpointOptions())"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        said, _, _ = select.select([process.stdout], [], [], 10)
        if not said:
            process.kill()
        assert said
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        process.terminate()
        assert process.wait(10) == 0


@on_uvloop
async def test_a_path_says_how_it_behaves(tmp_path: Path) -> None:
    async with running(tmp_path) as endpoint:
        base, key = endpoint.url, ["Idempotency-Key: a"]
        assert (await post(endpoint.client, f"{base}/fast?x=1", headers=key)).status == 200
        assert (await post(endpoint.client, f"{base}/fail", headers=key)).status == 500
        before = asyncio.get_running_loop().time()
        assert (await post(endpoint.client, f"{base}/slow", headers=key)).status == 200
        assert asyncio.get_running_loop().time() - before >= 0.49
        faulty = [(await post(endpoint.client, f"{base}/faulty", headers=key)).status for _ in range(60)]
        assert set(faulty) == {200, 500}


def test_every_sample_that_seed_knows_is_served() -> None:
    assert set(SAMPLE_ENDPOINTS) == set(SAMPLES) - {"busy"}  # answers 429; for tests of a full endpoint
