"""A group's order where the source, the coordinator's intake and a pool meet: what was taken comes back, or lapses."""

from __future__ import annotations

from tests.conformance.conftest import Bench
from tests.flow import (
    a_tail_that_went_back_is_not_overtaken,
    flowing,
    what_comes_while_the_head_fails_goes_back,
    what_lapsed_is_not_overtaken,
)
from tests.servers.local import RedisServer


async def test_what_lapsed_in_the_pool_is_not_overtaken_by_what_came_after_it(
    holding_bench: Bench, redis_server: RedisServer
) -> None:
    source = await holding_bench.source(holding_bench.short_ms)
    async with flowing(holding_bench.publisher, source, redis_server.url) as flow:
        await what_lapsed_is_not_overtaken(flow)


async def test_what_comes_while_the_head_of_its_group_fails_waits_for_it(
    holding_bench: Bench, redis_server: RedisServer
) -> None:
    source = await holding_bench.source(holding_bench.short_ms)
    async with flowing(holding_bench.publisher, source, redis_server.url) as flow:
        await what_comes_while_the_head_fails_goes_back(flow)


async def test_the_tail_of_a_group_that_waits_in_place_is_not_overtaken(
    bench: Bench, redis_server: RedisServer
) -> None:
    source = await bench.source()
    async with flowing(bench.publisher, source, redis_server.url, capacity=8, on_failure="hold") as flow:
        await a_tail_that_went_back_is_not_overtaken(flow)
