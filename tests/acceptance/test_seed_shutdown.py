"""How processes end, and who goes on: seed 000, sections 3 and 17, on real processes."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fleet.state.keys import FleetKeys, PoolKeys, QueueKeys
from tests.acceptance.numbers import NEVER, House, a_house, a_told_endpoint, best_of, message
from tests.member import Member
from tests.waiting import until

TTL_MS = 2000


def _owner(house: House) -> str:
    """The process that owns the queue, '' for none."""
    with house.client() as client:
        return str(client.hget(QueueKeys("q").owner, "owner") or "")


def _member(house: House, name: str) -> Member:
    return next(m for m in house.coordinators() if f"-{m.process.pid}-" in name)


def _deliveries_told(house: House) -> list[dict[str, Any]]:
    """What the workers say of deliveries that take long, once they do."""
    found: list[dict[str, Any]] = []

    def told() -> bool:
        with house.client() as client:
            records = [json.loads(body) for body in client.hvals(FleetKeys.processes)]
        found[:] = [delivery for record in records for delivery in record.get("deliveries", ())]
        return bool(found)

    until(told, 20, house.logs, every_s=0.1)
    return found


def test_a_worker_that_is_stopped_finishes_its_requests_and_settles_them(tmp_path: Path) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        endpoint.tell["m1"] = [NEVER]
        house.publish([message("m1", "g", "P", endpoint.url), message("m2", "g", "P", endpoint.url)])
        house.settle_in()
        (worker,) = house.crew()
        until(lambda: endpoint.ids() == ["m1"], 20, house.logs)
        worker.send(signal.SIGTERM)
        time.sleep(1)  # long enough to end, if it did not wait
        assert worker.alive, "it left a request that it had begun"
        endpoint.go.set()
        assert worker.process.wait(15) == 0
        until(lambda: set(house.at_source()) == {"m2"}, 15, house.logs)
        assert endpoint.ids() == ["m1"], "it began another while it stopped"


@pytest.mark.parametrize(
    ("limit_s", "configured"),
    [
        pytest.param(1.0, "1", id="configured"),
        pytest.param(30.0, "", id="default", marks=pytest.mark.long),
    ],
)
def test_a_worker_that_is_stopped_waits_so_long_for_an_endpoint_that_hangs_and_no_longer(
    tmp_path: Path, limit_s: float, configured: str
) -> None:
    with a_told_endpoint() as endpoint, a_house(tmp_path, pools={"P": {"concurrency": 10}}, ttl_ms=TTL_MS) as house:
        endpoint.tell["m1"] = [NEVER]
        house.publish([message("m1", "g", "P", endpoint.url)])
        house.settle_in()
        (worker,) = house.crew(FLEET_WORKER_STOP_WITHIN_S=configured)
        until(lambda: endpoint.ids() == ["m1"], 20, house.logs)
        (told,) = _deliveries_told(house)
        assert (told["messageId"], told["attempt"], told["until"] - told["began"]) == ("m1", 1, 900_000)
        assert abs(told["began"] - endpoint.seen[0][1]) < 2_000
        began = time.monotonic()
        worker.send(signal.SIGTERM)
        assert worker.process.wait(limit_s + 15) == 0
        took_s = time.monotonic() - began
        print(f"a stop with an endpoint that hangs: {took_s:.2f} s, the limit is {limit_s:g} s")
        assert limit_s <= took_s <= limit_s + 3
        assert "stopped with 1 delivery unfinished" in worker.text()
        # Its lease lapses, and what it had not settled is delivered again.
        house.start("worker")
        until(lambda: endpoint.ids() == ["m1", "m1"] and not house.at_source(), 20, house.logs)


def test_what_waits_goes_back_in_order_and_at_once_when_the_last_coordinator_stops(tmp_path: Path) -> None:
    with a_house(tmp_path, pools={"P": {"concurrency": 10}}) as house:
        names = [f"m{i}" for i in range(9)]
        house.publish([message(name, f"g{i % 2}", "P", "http://127.0.0.1:9/") for i, name in enumerate(names)])
        house.settle_in()
        coordinator = house.start("coordinator")
        with house.client() as client:
            until(lambda: client.hlen(PoolKeys("P").entries) == 9, 20, house.logs)
            coordinator.send(signal.SIGTERM)
            assert coordinator.process.wait(15) == 0
            assert not client.exists(PoolKeys("P").entries, QueueKeys("q").tracked)
        left = house.at_source()
        assert list(left) == names, "the queue's own order"
        assert all(not m.is_leased and m.visible_at_ms <= time.time() * 1000 for m in left.values())


def test_what_waits_stays_in_redis_while_another_coordinator_is_left(tmp_path: Path) -> None:
    with a_house(tmp_path, pools={"P": {"concurrency": 10}}, ttl_ms=TTL_MS) as house:
        house.publish([message(f"m{i}", "g", "P", "http://127.0.0.1:9/") for i in range(5)])
        house.settle_in()
        for _ in range(2):
            house.start("coordinator")
        with house.client() as client:
            until(lambda: client.hlen(PoolKeys("P").entries) == 5, 20, house.logs)
            until(lambda: all(" coordinates" in m.text() for m in house.coordinators()), 20, house.logs)
            first = _member(house, _owner(house))
            first.send(signal.SIGTERM)
            assert first.process.wait(15) == 0
            assert client.hlen(PoolKeys("P").entries) == 5
            assert all(m.is_leased and m.taken == 1 for m in house.at_source().values())


def test_another_owns_the_queue_within_a_second_of_a_stop_and_within_the_lease_after_a_kill(tmp_path: Path) -> None:
    with a_house(tmp_path, pools={"P": {"concurrency": 10}}, ttl_ms=TTL_MS) as house:
        house.settle_in()
        house.start("coordinator")
        until(lambda: bool(_owner(house)), 20, house.logs)

        def takeover_s(number: signal.Signals) -> float:
            standby = house.start("coordinator")
            until(lambda: " coordinates" in standby.text(), 20, house.logs)
            before = _owner(house)
            began = time.monotonic()
            _member(house, before).send(number)
            until(lambda: _owner(house) not in ("", before), 20, house.logs, every_s=0.005)
            return time.monotonic() - began

        for number, limit_s in ((signal.SIGTERM, 1.0), (signal.SIGKILL, TTL_MS / 1000 + 2)):
            figures = best_of(3, lambda number=number: takeover_s(number), lambda s, limit_s=limit_s: s <= limit_s)  # type: ignore[misc]
            print(f"{number.name}: {figures}")
            assert figures[-1] <= limit_s, figures
