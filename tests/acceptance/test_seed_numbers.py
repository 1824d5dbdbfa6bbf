"""The numbers of seeds 000 and 002, on real processes and a real endpoint.

Where time is measured it is by the endpoint's own journal, and the best of three counts: these machines are shared.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from fleet.config.router import effective_capacity
from fleet.state.by_hand import PoolByHand
from fleet.state.connect import connected
from fleet.state.entry import Entry
from fleet.state.keys import PoolKeys, QueueKeys
from fleet.state.pool import Pool, PoolSettings
from tests.acceptance.numbers import House, a_house, best_of, peak, spread
from tests.servers.local import RedisServer
from tests.waiting import until

_runs = itertools.count()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One fleet for all of them, a pool each: two workers, as a limit of one process proves nothing."""
    pools = {
        "TEN": {"concurrency": 10},
        "HUNDRED": {"concurrency": 100},
        "MANY": {"concurrency": 50},
        "SLOW": {"concurrency": 10, "rateLimitPerMinute": 1},
        "RATED": {"concurrency": 50, "rateLimitPerMinute": 120},
    }
    with a_house(tmp_path_factory.mktemp("numbers"), pools=pools, ttl_ms=5000) as house:
        house.settle_in()
        house.crew(workers=2)
        yield house


@pytest.mark.parametrize(("groups", "seconds"), [(1, 10.0), (5, 2.0), (10, 1.0), (100, 1.0)])
def test_a_hundred_messages_at_concurrency_ten_take_the_time_of_the_seed(
    house: House, groups: int, seconds: float
) -> None:
    sink = house.sink(latency_ms=100)

    def measure() -> float:
        prefix = f"time{next(_runs)}"
        house.publish(spread(prefix, 100, groups, "TEN", sink.url))
        until(lambda: sink.answered(prefix) == 100, 60, house.logs, every_s=0.1)
        requests = sink.requests(prefix)
        return (max(r.ended_ms for r in requests) - requests[0].began_ms) / 1000

    def good(figure: float) -> bool:
        return abs(figure - seconds) <= 0.15 * seconds + 0.25

    figures = best_of(3, measure, good)
    print(f"{groups} groups: {figures}")
    assert good(figures[-1]), figures


def test_150_groups_fill_a_concurrency_of_100_and_never_pass_it(house: House) -> None:
    sink = house.sink(latency_ms=200)
    leases: list[int] = []

    def measure() -> float:
        prefix = f"limit{next(_runs)}"
        house.publish(spread(prefix, 600, 150, "HUNDRED", sink.url))
        with house.client() as client:
            key, entries, began = PoolKeys("HUNDRED").leases, PoolKeys("HUNDRED").entries, time.monotonic()
            while sink.answered(prefix) < 600:
                leases.extend(int(client.zcard(key)) for _ in range(50))
                assert time.monotonic() - began < 60, house.logs()
            until(lambda: not client.exists(entries), 20, house.logs)
        return peak(sink.requests(prefix))

    peaks = best_of(3, measure, lambda figure: figure >= 95)
    print(f"peaks {peaks}, leases {max(leases)} at most, read {len(leases)} times")
    assert peaks[-1] >= 95, peaks
    assert max(peaks) <= 100, peaks
    assert max(leases) <= 100


def test_200_messages_of_one_group_never_overlap_and_keep_their_order(house: House) -> None:
    sink = house.sink(latency_ms=5)
    prefix = f"one{next(_runs)}"
    house.publish(spread(prefix, 200, 1, "MANY", sink.url))
    until(lambda: sink.answered(prefix) == 200, 60, house.logs, every_s=0.1)
    requests = sink.requests(prefix)
    assert [r.id for r in requests] == sorted(r.id for r in requests)
    assert all(first.ended_ms <= second.began_ms for first, second in itertools.pairwise(requests))


def test_one_a_minute_and_two_messages_deliver_one_and_nack_none(house: House) -> None:
    sink = house.sink(latency_ms=0)
    prefix = f"rate{next(_runs)}"
    house.publish(spread(prefix, 2, 2, "SLOW", sink.url))
    with house.client() as client:
        entries = PoolKeys("SLOW").entries
        until(lambda: sink.answered(prefix) == 1 and client.hlen(entries) == 1, 20, house.logs)
        delivered = sink.requests(prefix)[0].id
        began = time.monotonic()
        while time.monotonic() - began < 2:
            assert sink.answered(prefix) == 1
            assert client.hlen(entries) == 1, "it left the pool without a permit"
            time.sleep(0.05)  # the fact is that nothing happens for two seconds
        left = {i: m for i, m in house.at_source().items() if i.startswith(prefix) and i != delivered}
        assert [(m.is_leased, m.taken) for m in left.values()] == [(True, 1)], "it was nacked"
        assert client.zcard(PoolKeys("SLOW").leases) == 0, "who waits for a permit holds a slot"


@pytest.mark.long
def test_120_a_minute_hold_over_130_real_seconds_and_two_workers(house: House) -> None:
    sink = house.sink(latency_ms=0)
    prefix = f"rated{next(_runs)}"
    house.publish(spread(prefix, 600, 200, "RATED", sink.url))
    until(lambda: sink.answered(prefix) > 0, 20, house.logs)
    first_ms = sink.requests(prefix)[0].began_ms
    while time.time() * 1000 < first_ms + 130_000:
        time.sleep(0.5)  # 130 real seconds are what is asked for
    starts = [r.began_ms for r in sink.requests(prefix) if r.began_ms < first_ms + 130_000]
    for at in starts:
        assert sum(at <= other < at + 60_000 for other in starts) <= 120
    assert len(starts) >= 0.98 * 120 * 130 / 60


async def test_of_60_submits_of_one_message_into_a_paused_pool_of_concurrency_one_50_are_taken(
    redis_server: RedisServer,
) -> None:
    async with connected(redis_server.url) as client:
        pool = Pool(client, "ONE")
        await pool.configure("1", PoolSettings(1, effective_capacity(1)))
        await PoolByHand(client, "ONE").pause(True)
        taken = []
        for i in range(60):
            entry = Entry("q", f"b{i}", "1", f"batch{i}", f"g{i}", f"g{i}", 0, f"m{i}", "http://127.0.0.1/", "", True)
            answer = await pool.submit("q", "1", [entry])
            taken.append((answer.tag, answer.accepted))
        assert taken == [("ok", 1)] * 50 + [("ok", 0)] * 10
        assert await pool.room() == 0
        assert await client.hlen(PoolKeys("ONE").entries) == 50
        assert not await client.exists(QueueKeys("q").settled)
