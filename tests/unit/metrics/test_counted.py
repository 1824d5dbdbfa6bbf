"""Which of what was counted is shown, and under which name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fleet.metrics.counted import add_counted
from fleet.metrics.counters import Counters, Counts, Key
from fleet.metrics.exposition import Exposition


def shown(counted: Mapping[Key, Counts], **those: Any) -> list[str]:
    """The samples, without the zeros of what nobody counted."""
    page = Exposition()
    add_counted(page, counted, **those)
    return [line for line in page.text().splitlines() if line[0] != "#" and not line.endswith(" 0")]


def test_a_pools_outcomes_are_counted_each_by_itself_and_a_wait_for_its_rate_is_none_of_them() -> None:
    assert shown({("pool", "P"): {"SUCCESS": 3, "TIMEOUT": 1, "RATE_LIMITED": 2, "ms": 900}}) == [
        'fleet_messages_total{pool="P",outcome="SUCCESS"} 3',
        'fleet_messages_total{pool="P",outcome="TIMEOUT"} 1',
        'fleet_pool_rate_limited_total{pool="P"} 2',
    ]


def test_what_is_gone_is_not_shown_whatever_was_counted() -> None:
    counters = Counters()
    for pool in ("P", "GONE"):
        counters.observe("wait", pool, 0.1)
    counted = {
        **{("pool", pool): {"SUCCESS": 1, "RATE_LIMITED": 1} for pool in ("P", "GONE")},
        **{("queue", queue): {"acked": 1} for queue in ("q", "gone")},
        **{("wait", pool): counters.of(("wait", pool)) for pool in ("P", "GONE")},
    }
    lines = shown(counted, pools={"P"}, queues={"q"})
    assert not [line for line in lines if "GONE" in line or "gone" in line]
    assert 'fleet_queue_acked_total{queue="q"} 1' in lines
    assert 'fleet_wait_seconds_count{pool="P"} 1' in lines
    assert len([line for line in shown(counted) if "GONE" in line or "gone" in line]) > 3


def test_a_script_is_no_pool_and_is_shown_whatever_pools_there_are() -> None:
    counters = Counters()
    counters.observe("redis_call", "exchange", 0.1)
    lines = shown({("redis_call", "exchange"): counters.of(("redis_call", "exchange"))}, pools=(), queues=())
    assert 'fleet_redis_call_seconds_count{script="exchange"} 1' in lines


def test_a_queue_that_counted_nothing_is_zero_and_a_pool_that_delivered_nothing_is_not_there() -> None:
    page = Exposition()
    add_counted(page, {}, pools={"P"}, queues={"q"})
    text = page.text()
    assert 'fleet_queue_received_total{queue="q"} 0' in text
    assert '"P"' not in text


def test_lost_leases_are_summed_over_roles_by_what_they_were_on() -> None:
    counted = {
        ("process", "worker"): {"leases_lost": 2},
        ("process", "coordinator"): {"queue_leases_lost": 3, "leader_leases_lost": 1},
        ("process", "server"): {"leases_lost": 1},
    }
    assert shown(counted) == [
        'fleet_leases_lost_total{kind="group"} 3',
        'fleet_leases_lost_total{kind="queue"} 3',
        'fleet_leases_lost_total{kind="leader"} 1',
    ]


def test_what_servers_counted_of_jobs_is_shown_by_what_stands_behind_the_dot() -> None:
    counted = {
        ("process", "server"): {"attempt.SUCCESS": 7, "attempt.a.b": 1, "refused.busy": 4, "attempts": 9},
        ("process", "worker"): {"attempt.SUCCESS": 100},
    }
    assert shown(counted) == [
        'fleet_jobs_attempts_total{outcome="SUCCESS"} 7',
        'fleet_jobs_attempts_total{outcome="a.b"} 1',
        'fleet_jobs_claims_refused_total{why="busy"} 4',
    ]


def test_the_feed_shows_only_what_it_counted() -> None:
    page = Exposition()
    add_counted(page, {("process", "feed"): {"sent": 9, "expired": 0}})
    lines = [line for line in page.text().splitlines() if line.startswith("fleet_feed_")]
    assert lines == ["fleet_feed_sent_total 9", "fleet_feed_expired_total 0"]
