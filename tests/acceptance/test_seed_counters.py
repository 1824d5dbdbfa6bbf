"""What `/monitoring/pool-stats` counts: seed 000, sections 10 and 13, on real processes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from fleet.state.keys import PoolKeys
from tests.acceptance.numbers import Answer, House, a_house, a_told_endpoint, message
from tests.servers.ports import free_port
from tests.waiting import until

BEAT_S = 1.0
"""A worker reports what it counted at least so often."""


class Shown:
    """A fleet, and its numbers over HTTP."""

    def __init__(self, house: House) -> None:
        self.house = house
        server = house.start("server", "--port", "0")
        until(lambda: "answers at" in server.text(), 20, server.text)
        found = re.search(r"answers at (http://\S+)", server.text())
        assert found is not None
        self._address = found[1]

    def pool(self, code: str) -> dict[str, Any]:
        answer = requests.get(f"{self._address}/monitoring/pool-stats", timeout=10)
        stats: dict[str, Any] = answer.json().get(code, {})
        return stats

    def queue(self) -> dict[str, Any]:
        stats: dict[str, Any] = requests.get(f"{self._address}/monitoring/queue-stats", timeout=10).json()["q"]
        return stats

    def totals(self, code: str) -> dict[str, Any]:
        return {name: value for name, value in self.pool(code).items() if name.startswith("total")}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    pools = {"AGAIN": {}, "COUNTED": {"concurrency": 10}, "SLOW": {"concurrency": 10, "rateLimitPerMinute": 1}}
    with a_house(tmp_path_factory.mktemp("counters"), pools=pools, ttl_ms=5000) as house:
        house.settle_in()
        house.crew()
        yield Shown(house)


def test_a_message_counts_at_its_queue_each_time_it_is_taken(shown: Shown) -> None:
    names = ("totalMessages", "totalConsumed", "totalFailed", "totalDeferred", "currentSize")
    again: Answer = (200, {}, {"ack": False, "delaySeconds": 1})
    with a_told_endpoint() as endpoint:
        endpoint.tell = {"twice": [again, again]}
        before = shown.queue()
        shown.house.publish([message("twice", "twice", "AGAIN", endpoint.url)])
        until(lambda: shown.queue()["totalConsumed"] > before["totalConsumed"], 30, shown.house.logs, every_s=0.1)
        after = shown.queue()
        assert [after[name] - before[name] for name in names] == [3, 1, 2, 0, 0]


def test_a_success_a_failure_and_neither_are_counted_apart(shown: Shown) -> None:
    nobody = f"http://127.0.0.1:{free_port()}/"
    with a_told_endpoint() as endpoint:
        endpoint.tell = {
            "rejected": [(404, {}, {})],
            "unimplemented": [(501, {}, {})],
            "not-yet": [(200, {}, {"ack": False, "delaySeconds": 43_200})],
            "busy": [(429, {"Retry-After": "43200"}, {})],
        }
        targets = dict.fromkeys(("good-1", "good-2", "good-3", *endpoint.tell), endpoint.url) | {"nobody": nobody}
        shown.house.publish([message(id_, id_, "COUNTED", url) for id_, url in targets.items()])
        expected = {
            "totalProcessed": 8,
            "totalSucceeded": 3,
            "totalFailed": 3,  # two ERROR_CONFIG, one ERROR_CONNECTION
            "successRate": 0.5,
            "totalRateLimited": 0,
        }

        def counted() -> bool:
            return bool(shown.pool("COUNTED")["totalProcessed"] >= 8)

        until(counted, 30, lambda: f"{shown.pool('COUNTED')}\n{shown.house.logs()}", every_s=0.1)
        found = shown.pool("COUNTED")
        assert {name: found[name] for name in expected} == expected


def test_one_a_minute_and_two_messages_are_one_wait_shown_within_two_heartbeats(shown: Shown) -> None:
    with a_told_endpoint() as endpoint, shown.house.client() as client:
        shown.house.publish([message(f"slow-{i}", f"slow-{i}", "SLOW", endpoint.url) for i in range(2)])
        keys = PoolKeys("SLOW")
        until(lambda: client.hlen(keys.entries) == 1 and len(endpoint.ids()) == 1, 20, shown.house.logs, every_s=0.01)
        began = time.monotonic()
        until(lambda: shown.pool("SLOW")["totalRateLimited"] > 0, 20, shown.house.logs, every_s=0.05)
        assert time.monotonic() - began < 2 * BEAT_S + 0.5
        found = shown.pool("SLOW")
        assert (found["totalRateLimited"], found["totalProcessed"], found["queueSize"]) == (1, 1, 1)


def test_after_flushall_the_totals_are_those_of_the_processes_that_live(shown: Shown) -> None:
    before = shown.totals("COUNTED")
    assert before["totalProcessed"] >= 8
    with shown.house.client() as client:
        client.flushall()
        until(lambda: shown.totals("COUNTED") == before, 20, lambda: f"{shown.totals('COUNTED')} was {before}")
        for worker in shown.house.workers():
            worker.kill()
        another = shown.house.start("worker")
        until(lambda: "delivers" in another.text(), 20, another.text)
        assert shown.totals("COUNTED") == before, "without FLUSHALL the dead are counted"
        client.flushall()
        began = time.monotonic()
        until(lambda: bool(shown.totals("COUNTED")), 20, shown.house.logs)
        until(lambda: time.monotonic() - began > 2 * BEAT_S, 20, shown.house.logs)
    assert set(shown.totals("COUNTED").values()) == {0}
