"""A pool among others, and a pool that is changed: while everything runs, at real endpoints."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from fleet.state.keys import PoolKeys
from tests.acceptance.numbers import (
    NEVER,
    House,
    Sink,
    a_house,
    a_told_endpoint,
    active_at,
    message,
    peak,
    spread,
)
from tests.stage import FLEET
from tests.waiting import until

ON_ITS_WAY_MS = 60
"""A request that was granted just before the change may arrive just after it."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """The limit changed somewhere between these moments (ms): a command ends some time after it took effect."""

    begun_ms: float
    done_ms: float


def set_in_file(house: House, concurrency: int) -> Change:
    """Rewrite the configuration, until the limit is in force."""
    begun_ms = time.time() * 1000
    house.write(EIGHT={"concurrency": concurrency})
    with house.client() as client:
        key = PoolKeys("EIGHT").settings
        until(lambda: client.hget(key, "concurrency") == str(concurrency), 20, house.logs, every_s=0.002)
    return Change(begun_ms=begun_ms, done_ms=time.time() * 1000)


def set_by_hand(house: House, concurrency: int) -> Change:
    """`fleet pool set`, until it says that it is done."""
    begun_ms = time.time() * 1000
    command = [FLEET, "pool", "set", "EIGHT", "--concurrency", str(concurrency), "--redis", house.redis_server.url]
    subprocess.run(command, check=True, capture_output=True, timeout=30)
    return Change(begun_ms=begun_ms, done_ms=time.time() * 1000)


@pytest.mark.parametrize(
    ("set_concurrency", "options"),
    [(set_in_file, {"capacity": 1000}), (set_in_file, {}), (set_by_hand, {})],
    ids=["configuration", "configuration-implied-capacity", "by-hand-implied-capacity"],
)
def test_concurrency_goes_from_8_to_2_and_back_under_load_and_nothing_is_lost(
    tmp_path: Path, set_concurrency: Callable[[House, int], Change], options: dict[str, int]
) -> None:
    with a_house(tmp_path, pools={"EIGHT": {"concurrency": 8, **options}}) as house:
        sink = house.sink(latency_ms=50)
        count = 560
        house.publish(spread("m", count, 400, "EIGHT", sink.url))
        house.settle_in()
        house.crew(workers=2)
        until(lambda: sink.answered("m") >= 40, 30, house.logs)
        lowered = set_concurrency(house, 2)
        time.sleep(1.5)  # what is lowered is seen by watching it
        raised = set_concurrency(house, 8)
        # Less than the half minute for which a full pool sends back: nothing of it was.
        until(lambda: sink.answered("m") == count, 20, house.logs, every_s=0.1)
        requests = sink.requests("m")
        assert peak(requests) == 8
        late = [
            r
            for r in requests
            if lowered.done_ms + ON_ITS_WAY_MS < r.began_ms < raised.begun_ms and active_at(requests, r.began_ms) >= 2
        ]
        assert late == [], (
            f"{len(late)} began beside two or more, the last {late[-1].began_ms - lowered.done_ms:.0f} ms late"
        )
        back = [r for r in requests if raised.done_ms < r.began_ms < raised.done_ms + 1000]
        assert max(active_at(requests, r.began_ms) for r in back) == 7, "not eight at once within a second"
        until(lambda: not house.at_source(), 20, house.logs)
        assert sorted(r.id for r in requests) == [f"m-{i:05d}" for i in range(count)], "lost, or delivered twice"


def _all_answered(sink: Sink, prefix: str, count: int) -> bool:
    return sink.answered(prefix) == count


@pytest.mark.parametrize(
    ("others", "concurrency", "latency_ms", "count"),
    [(9, 4, 100, 100), pytest.param(99, 2, 300, 60, marks=pytest.mark.long)],
)
def test_a_pool_whose_endpoint_hangs_leaves_the_others_at_nine_tenths_of_their_rate(
    tmp_path: Path, others: int, concurrency: int, latency_ms: int, count: int
) -> None:
    same, other = [f"A{i}" for i in range((others + 1) // 2)], [f"B{i}" for i in range(others // 2)]
    pools = {code: {"concurrency": concurrency} for code in [*same, *other, "HUNG"]}
    with a_house(tmp_path, pools=pools, queues=("same", "other"), ttl_ms=5000) as house:
        sink = house.sink(latency_ms=latency_ms)
        house.settle_in()
        house.crew(workers=2)
        rates: dict[tuple[str, bool], list[float]] = {}
        for run in range(4):
            with a_told_endpoint() as endpoint:
                endpoint.otherwise = NEVER
                hung = [("HUNG", endpoint.url)] if run % 2 else []
                for queue, codes in (("same", same), ("other", other)):
                    told = [(code, sink.url) for code in codes] + (hung if queue == "same" else [])
                    # In turn, so that every batch has some of each.
                    house.publish(
                        (
                            message(f"{run}-{code}-{i:05d}", f"{run}-{code}-{i}", code, url)
                            for i in range(count)
                            for code, url in told
                        ),
                        queue,
                    )
                wanted = count * others
                until(partial(_all_answered, sink, f"{run}-", wanted), 60, house.logs, every_s=0.1)
                if hung:
                    assert len(endpoint.ids()) == concurrency, "its endpoint did not hang"
            for queue, letter in (("same", "A"), ("other", "B")):
                requests = sink.requests(f"{run}-{letter}")
                seconds = (max(r.ended_ms for r in requests) - requests[0].began_ms) / 1000
                rates.setdefault((queue, bool(run % 2)), []).append(len(requests) / seconds)
        for queue in ("same", "other"):
            with_it, without = (statistics.median(rates[queue, hangs]) for hangs in (True, False))
            print(f"{queue} queue: {with_it:.0f} messages/s beside a hanging pool, {without:.0f} without it")
            assert with_it >= 0.9 * without, rates
            possible = len(same if queue == "same" else other) * concurrency * 1000 / latency_ms
            assert without >= 0.5 * possible, "a fleet that crawls anyway proves nothing"
