"""What a worker tells of its deliveries."""

from __future__ import annotations

from typing import Any, cast

from tests.unit.workers.links import Link, lease_on
from workers import under_way
from workers.lease import LaneLease
from workers.under_way import slow_deliveries

NOW_MS, WALL_MS, TIMEOUT_MS = 50_000.0, 1_700_000_050_000, 60_000


def lease(group: str, *, ago_ms: float, attempt: int = 1, asking: bool = True, resumes_in_ms: float = 0.0) -> LaneLease:
    one = lease_on(Link(), lane=group)
    one.attempt, one.began_ms, one.resumes_ms = attempt, NOW_MS - ago_ms, NOW_MS + resumes_in_ms
    one.transfer = cast(Any, object()) if asking else None
    return one


def told(*leases: LaneLease) -> list[dict[str, Any]]:
    return slow_deliveries(leases, boot_ms=NOW_MS, wall_ms=WALL_MS, timeout_ms=TIMEOUT_MS, attempts=3)


def test_a_request_that_lasts_is_told_with_its_beginning_and_its_end() -> None:
    assert told(lease("g", ago_ms=5_000, attempt=2)) == [
        {
            "pool": "P", "group": "g", "messageId": "mg0", "attempt": 2, "of": 3, "asking": True,
            "began": WALL_MS - 5_000, "until": WALL_MS + 55_000,
        }
    ]  # fmt: skip


def test_a_pause_between_two_attempts_ends_with_the_next() -> None:
    (one,) = told(lease("g", ago_ms=3_000, asking=False, resumes_in_ms=800))
    assert (one["asking"], one["until"]) == (False, WALL_MS + 800)


def test_what_is_quick_not_begun_or_answered_is_not_told() -> None:
    assert (
        told(
            lease("quick", ago_ms=999),
            lease("not begun", ago_ms=9_000, attempt=0),
            lease("answered", ago_ms=9_000, asking=False),
        )
        == []
    )


def test_the_longest_come_first_and_no_more_than_the_limit(monkeypatch: Any) -> None:
    monkeypatch.setattr(under_way, "MOST_DELIVERIES", 2)
    found = told(*(lease(f"g{i}", ago_ms=1_000 * i) for i in (3, 9, 5)))
    assert [one["group"] for one in found] == ["g9", "g5"]
