from __future__ import annotations

import pytest

from fleet.state.keys import FleetKeys
from fleet.state.totals import TTL_MS, Tally, counters_of, forget, totals
from tests.lua.stage import NOON_MS, Stage

SUCCESS = ("pool", "P", "SUCCESS")
FAILED = ("pool", "P", "ERROR_PROCESS")


async def test_what_processes_count_is_summed_up(stage: Stage) -> None:
    a, b = Tally(stage.client, "a"), Tally(stage.client, "b")
    await a.add({SUCCESS: 3}, now_ms=0)
    await b.add({SUCCESS: 4, FAILED: 1}, now_ms=0)
    await a.add({SUCCESS: 5, FAILED: 2}, now_ms=1)
    assert await totals(stage.client) == {SUCCESS: 9, FAILED: 3}


async def test_the_totals_stay_when_a_process_is_gone_and_another_begins_at_0(stage: Stage) -> None:
    await Tally(stage.client, "gone").add({SUCCESS: 7}, now_ms=0)
    await Tally(stage.client, "new").add({SUCCESS: 1}, now_ms=0)
    assert await totals(stage.client) == {SUCCESS: 8}


async def test_what_is_said_again_because_a_reply_was_lost_adds_nothing(stage: Stage) -> None:
    for _ in range(2):
        # A new one: it does not know that this was said already.
        await Tally(stage.client, "a").add({SUCCESS: 7}, now_ms=0)
    assert await totals(stage.client) == {SUCCESS: 7}


async def test_a_late_call_with_an_older_number_takes_nothing_away(stage: Stage) -> None:
    await Tally(stage.client, "a").add({SUCCESS: 7}, now_ms=0)
    await Tally(stage.client, "a").add({SUCCESS: 6}, now_ms=0)
    assert await totals(stage.client) == {SUCCESS: 7}
    await Tally(stage.client, "a").add({SUCCESS: 8}, now_ms=0)
    assert await totals(stage.client) == {SUCCESS: 8}


async def test_nothing_new_costs_no_call_until_an_hour_has_passed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = Tally(stage.client, "a")
    await tally.add({SUCCESS: 1}, now_ms=NOON_MS)
    await stage.client.pexpire(FleetKeys.tallied + "a", 60_000)
    await tally.add({SUCCESS: 1}, now_ms=NOON_MS + 1000)
    assert await stage.client.pttl(FleetKeys.tallied + "a") <= 60_000
    await tally.add({SUCCESS: 1}, now_ms=NOON_MS + 3_700_000)
    assert TTL_MS - 60_000 < await stage.client.pttl(FleetKeys.tallied + "a") <= TTL_MS


async def test_after_a_wipe_the_totals_are_what_the_living_know(stage: Stage) -> None:
    tally = Tally(stage.client, "a")
    await tally.add({SUCCESS: 5, FAILED: 5}, now_ms=0)
    await stage.client.flushall()
    await tally.add({SUCCESS: 6, FAILED: 5}, now_ms=1)
    assert await totals(stage.client) == {SUCCESS: 6, FAILED: 5}


async def test_more_counters_than_one_call_takes(stage: Stage) -> None:
    counted = {("pool", f"P{i}", "SUCCESS"): i + 1 for i in range(2500)}
    tally = Tally(stage.client, "a")
    await tally.add(counted, now_ms=0)
    assert await totals(stage.client) == counted
    await tally.add({**counted, SUCCESS: 1}, now_ms=1)
    assert await totals(stage.client) == {**counted, SUCCESS: 1}


async def test_large_numbers_are_counted_to_the_last_digit(stage: Stage) -> None:
    large = 123_456_789_012_345
    await Tally(stage.client, "a").add({SUCCESS: large}, now_ms=0)
    await Tally(stage.client, "b").add({SUCCESS: 1}, now_ms=0)
    assert await totals(stage.client) == {SUCCESS: large + 1}


async def test_what_is_forgotten_is_gone_and_goes_on_from_nothing(stage: Stage) -> None:
    tally = Tally(stage.client, "a")
    await tally.add({SUCCESS: 5, FAILED: 1}, now_ms=0)
    await forget(stage.client, [SUCCESS])
    assert await totals(stage.client) == {FAILED: 1}
    await tally.add({SUCCESS: 6, FAILED: 1}, now_ms=1)
    assert await totals(stage.client) == {SUCCESS: 1, FAILED: 1}


def test_a_heartbeat_says_all_that_a_process_counts() -> None:
    record = {
        "role": "worker",
        "totals": {"P": {"SUCCESS": 2, "ms": 30}},
        "counts": {"leases_lost": 1, "q": {"received": 9}},
        "histograms": {"delivery": {"P": [0, 2, 0, 55]}},
    }
    assert counters_of(record) == {
        SUCCESS: 2,
        ("pool", "P", "ms"): 30,
        ("process", "worker", "leases_lost"): 1,
        ("queue", "q", "received"): 9,
        ("delivery", "P", "1"): 2,
        ("delivery", "P", "3"): 55,
    }
    assert counters_of({}) == {}
