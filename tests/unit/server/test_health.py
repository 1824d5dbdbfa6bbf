"""What makes a fleet HEALTHY, WARNING or DEGRADED."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from fleet.operate.status import Status, problems
from fleet.operate.views import QueueNow
from fleet.server.health import STATE_AWAY, Health, judge
from fleet.sources.base import Depth
from fleet.state.observe import LeaseView, PoolView, QueueView, ServerView
from fleet.state.pool import PoolSettings
from fleet.state.registry import ConfigRevision
from fleet.state.warnings import Severity, WarningView

MB = 2**20


def pool(*, messages: int = 0, paused: bool = False, draining: bool = False) -> PoolView:
    return PoolView("SECRET-POOL", PoolSettings(2, 50, draining=draining), paused, messages, 0, 0, 0)


def queue(*, owner: str = "c", error: str = "") -> QueueNow:
    return QueueNow(QueueView("secret-queue", owner, 0, 0, 0), None if error else Depth(0, 0, 0.0), error)


def warning(severity: Severity) -> WarningView:
    return WarningView("1", "C", severity, "secret", "s", 1, 0, 0, False)


def records(*roles: str) -> list[dict[str, Any]]:
    return [{"role": role, "name": role} for role in roles]


WELL = Status(
    leader=LeaseView("c", "1"),
    config=ConfigRevision("1", b"{}", 0),
    records=records("syncer", "coordinator", "worker"),
    pools=[pool()],
    queues=[queue()],
    servers=[ServerView("7.0", "noeviction", 10 * MB, 100 * MB)],
)


OFF = [*records("syncer", "worker"), {"role": "coordinator", "name": "off", "enabled": False}]


def judged(breakers: int = 0, warnings: list[WarningView] | None = None, **changes: Any) -> Health:
    return judge(dataclasses.replace(WELL, **changes), warnings or [], breakers)


def test_a_fleet_that_has_nothing_to_do_is_well() -> None:
    health = judged(queues=[], pools=[])
    assert health.status == "HEALTHY"
    assert health.to_json()["parts"]["redis"] == {"status": "HEALTHY"}


def test_a_pool_whose_endpoint_says_no_is_well() -> None:
    failing = pool(messages=10)
    failing.outcomes.update({"ERROR_PROCESS": 1000})
    assert judged(pools=[failing]).status == "HEALTHY"


@pytest.mark.parametrize(
    ("part", "level", "changes"),
    [
        ("redis", "DEGRADED", {"servers": [ServerView("7.0", "noeviction", 95 * MB, 100 * MB)]}),
        ("redis", "WARNING", {"servers": [ServerView("7.0", "allkeys-lru", 1, 0)]}),
        ("configuration", "DEGRADED", {"config": None}),
        ("configuration", "WARNING", {"records": records("coordinator", "worker")}),
        ("coordinators", "DEGRADED", {"records": records("syncer", "worker")}),
        ("coordinators", "WARNING", {"leader": LeaseView("", "1")}),
        ("coordinators", "WARNING", {"records": OFF, "queues": [queue(owner="")]}),
        ("workers", "DEGRADED", {"records": records("syncer", "coordinator")}),
        ("workers", "WARNING", {"records": [*WELL.records, {"role": "worker", "redisAvailable": False}]}),
        ("queues", "WARNING", {"queues": [queue(), queue(error="secret")]}),
        ("queues", "WARNING", {"queues": [queue(owner="")]}),
        ("pools", "WARNING", {"pools": [pool(messages=50)]}),
        ("pools", "WARNING", {"pools": [pool(paused=True)]}),
        ("circuitBreakers", "WARNING", {"breakers": 2}),
        ("warnings", "WARNING", {"warnings": [warning("CRITICAL")]}),
        ("warnings", "WARNING", {"warnings": [warning("ERROR")]}),
        ("warnings", "HEALTHY", {"warnings": [warning("WARN"), warning("INFO")]}),
        ("pools", "HEALTHY", {"pools": [pool(messages=50, draining=True)]}),
    ],
)
def test_each_part_is_judged_by_itself_and_the_worst_counts(part: str, level: str, changes: dict[str, Any]) -> None:
    health = judged(**changes)
    assert (health.parts[part].status, health.status) == (level, level)
    assert [name for name, p in health.parts.items() if p.status != "HEALTHY"] == ([part] if level != "HEALTHY" else [])
    # Everybody may read it.
    assert "secret" not in str(health.to_json()).lower()


def test_a_router_that_is_switched_off_is_said_to_be_that_and_nothing_else() -> None:
    off = dataclasses.replace(WELL, records=OFF, leader=LeaseView("", "1"), queues=[queue(owner="")])
    assert problems(off) == [
        "the router is switched off (MESSAGE_ROUTER_ENABLED=false): nothing is taken from the queues"
    ]
    one_is_on = dataclasses.replace(off, records=[*OFF, *records("coordinator")])
    assert problems(one_is_on) == [
        "no coordinator leads at the moment",
        "queue secret-queue has no owner at the moment",
    ]


def test_without_redis_nothing_more_can_be_said() -> None:
    assert STATE_AWAY.to_json() == {
        "status": "DEGRADED",
        "parts": {"redis": {"status": "DEGRADED", "detail": "cannot be reached"}},
    }
