"""SQS FIFO as AWS promises it, which moto does not do (strict_sqs.py): connections, lapses, old handles."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from fleet.sources.base import Outgoing
from fleet.sources.open import open_publisher
from tests.flow import (
    Flow,
    a_tail_that_went_back_is_not_overtaken,
    flowing,
    what_comes_while_the_head_fails_goes_back,
    what_lapsed_is_not_overtaken,
)
from tests.messages import bodies, held, opened
from tests.servers.local import RedisServer
from tests.servers.moto import aws_settings
from tests.servers.ports import free_port
from tests.servers.strict_sqs import running_strict_sqs, uri_of
from tests.unit.sources.sqs.source import SOON_MS, a_source

CONNECTIONS = 4


@pytest.fixture
def uri(tmp_path: Path) -> Iterator[str]:
    port = free_port()
    with aws_settings(), running_strict_sqs(tmp_path, port=port, fifo=True):
        yield uri_of(port, fifo=True)


async def test_the_tail_of_a_group_that_waits_in_place_is_not_overtaken(uri: str, redis_server: RedisServer) -> None:
    async with (
        opened(open_publisher(uri)) as publisher,
        a_source(uri) as source,
        flowing(publisher, source, redis_server.url, capacity=8, on_failure="hold") as flow,
    ):
        await a_tail_that_went_back_is_not_overtaken(flow)


@pytest.mark.parametrize("case", [what_lapsed_is_not_overtaken, what_comes_while_the_head_fails_goes_back])
async def test_a_group_keeps_its_order_when_its_visibility_lapses(
    uri: str, redis_server: RedisServer, case: Callable[[Flow], Awaitable[None]]
) -> None:
    async with (
        opened(open_publisher(uri)) as publisher,
        a_source(uri, visibility_ms=1000) as source,
        flowing(publisher, source, redis_server.url) as flow,
    ):
        await case(flow)


async def send_to_groups(uri: str, *names: str) -> None:
    """Each in the group that its first letters are."""
    async with opened(open_publisher(uri)) as publisher:
        messages = [Outgoing(name, name.encode(), name.partition(":")[0]) for name in names]
        assert not any(await publisher.publish(messages))


async def test_several_connections_keep_each_group_in_order_and_have_none_of_it_twice_at_once(uri: str) -> None:
    groups, each = 30, 20
    names = [f"g{group}:{number:02d}" for number in range(each) for group in range(groups)]
    seen: dict[str, list[str]] = defaultdict(list)
    out: set[str] = set()
    at_once = 0
    async with a_source(uri, connections=CONNECTIONS) as source:
        await send_to_groups(uri, *names)

        async def work(number: int) -> None:
            nonlocal at_once
            while sum(map(len, seen.values())) < len(names):
                batch = await source.poll(10, 500)
                mine = {one.group or "" for one in batch}
                assert not mine & out, "a group is out already"
                out.update(mine)
                at_once = max(at_once, len(out))
                await asyncio.sleep(0)
                if number == 0 and len(batch) > 1 and len(seen) % 3 == 0:
                    # A tail goes back: it comes before what is behind it.
                    kept, tail = batch[:1], batch[1:]
                    for one in kept:
                        seen[one.group or ""].append(one.body.decode())
                    out.difference_update(mine)
                    assert all(await source.nack([(one, 0) for one in held(tail)]))
                    assert all(await source.ack(held(kept)))
                    continue
                for one in batch:
                    seen[one.group or ""].append(one.body.decode())
                out.difference_update(mine)
                assert all(await source.ack(held(batch)))

        async with asyncio.timeout(60):
            await asyncio.gather(*(work(number) for number in range(CONNECTIONS)))
    assert at_once > 1, "the connections were used one after the other"
    for group in range(groups):
        assert seen[f"g{group}"] == [f"g{group}:{number:02d}" for number in range(each)]


async def test_what_lapses_together_comes_again_oldest_first_and_its_old_handles_do_nothing(uri: str) -> None:
    names = [f"g:{number}" for number in range(8)]
    async with a_source(uri, visibility_ms=1000, connections=CONNECTIONS) as source:
        await send_to_groups(uri, *names)
        first = await source.poll(10, SOON_MS)
        assert bodies(first) == names
        again = await source.poll(10, SOON_MS)
        assert (bodies(again), {one.receive_count for one in again}) == (names, {2})
        assert await source.ack(held(first)) == [False] * 8
        assert await source.nack([(one, 0) for one in held(first)]) == [False] * 8
        assert await source.ack(held(again)) == [True] * 8
