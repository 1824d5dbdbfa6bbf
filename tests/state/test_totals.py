from __future__ import annotations

import pytest

from fleet.errors import StateError, StateUnavailable
from fleet.metrics.counters import Counted, Counters
from fleet.state import totals as module
from fleet.state.keys import FleetKeys
from fleet.state.scripts import SEP, script
from fleet.state.totals import PIECE, TTL_MS, Tally, forget, labels, totals
from tests.state.stage import NOON_MS, Stage

P = ("pool", "P")


class Teller:
    """A process that counts and tells."""

    def __init__(self, stage: Stage, name: str = "a") -> None:
        self.stage = stage
        self.key = FleetKeys.tallied + name
        self.counters = Counters()
        self.tally = Tally(stage.client, name, self.counters)

    async def tell(self, *, success: int = 0, error: int = 0, now_ms: float = 0) -> None:
        for which, more in (("SUCCESS", success), ("ERROR_PROCESS", error)):
            if more:
                self.counters.add(*P, which, more)
        await self.tally.tell_all(now_ms=now_ms)


async def told(stage: Stage) -> Counted:
    return await totals(stage.client)


async def test_what_processes_count_is_summed_up(stage: Stage) -> None:
    a, b = Teller(stage, "a"), Teller(stage, "b")
    await a.tell(success=3)
    await b.tell(success=4, error=1)
    await a.tell(success=2, error=2)
    assert await told(stage) == {P: {"SUCCESS": 9, "ERROR_PROCESS": 3}}


async def test_the_totals_stay_when_a_process_is_gone_and_another_begins_at_0(stage: Stage) -> None:
    await Teller(stage, "gone").tell(success=7)
    await Teller(stage, "new").tell(success=1)
    assert await told(stage) == {P: {"SUCCESS": 8}}


async def test_a_reply_that_was_lost_makes_nothing_count_twice(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    teller = Teller(stage)
    await teller.tell(success=1)
    call = Tally._call

    async def lost(tally: Tally, number: int) -> int:
        await call(tally, number)
        raise StateUnavailable("the answer was lost")

    monkeypatch.setattr(Tally, "_call", lost)
    for _ in range(3):
        with pytest.raises(StateError):
            await teller.tell(success=2)
    monkeypatch.setattr(Tally, "_call", call)
    await teller.tell(error=1)
    assert await told(stage) == {P: {"SUCCESS": 7, "ERROR_PROCESS": 1}}


async def test_a_piece_that_is_late_or_early_adds_nothing(stage: Stage) -> None:
    teller = Teller(stage)
    for _ in range(3):
        await teller.tell(success=1)
    keys, record = [FleetKeys.totals, teller.key], SEP.join((*P, "SUCCESS", "1"))
    for number in (1, 3, 5):
        assert await script("tally")(stage.client, keys, [TTL_MS, number, record]) == 3
    assert await told(stage) == {P: {"SUCCESS": 3}}
    assert await script("tally")(stage.client, keys, [TTL_MS, 4, record]) == 4
    assert await told(stage) == {P: {"SUCCESS": 4}}


async def test_all_that_is_kept_of_a_process_is_a_number_and_nothing_once_it_has_left(stage: Stage) -> None:
    teller = Teller(stage)
    for number in range(3 * PIECE):
        teller.counters.add("pool", f"P{number}", "SUCCESS")
    await teller.tell()
    assert await stage.client.get(teller.key) == "3"
    teller.counters.add(*P, "SUCCESS", 2)
    await teller.tally.leave(now_ms=0)
    assert not await stage.client.exists(teller.key)
    assert (await told(stage))[P] == {"SUCCESS": 2}


async def test_nothing_new_costs_no_call_until_an_hour_has_passed(stage: Stage) -> None:
    teller = Teller(stage)
    await teller.tell(success=1, now_ms=NOON_MS)
    await stage.client.pexpire(teller.key, 60_000)
    await teller.tell(now_ms=NOON_MS + 1000)
    assert await stage.client.pttl(teller.key) <= 60_000
    await teller.tell(now_ms=NOON_MS + 3_700_000)
    assert TTL_MS - 60_000 < await stage.client.pttl(teller.key) <= TTL_MS
    assert await told(stage) == {P: {"SUCCESS": 1}}


async def test_after_a_wipe_the_totals_are_what_the_living_know(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PIECES_KEPT", 1)
    teller = Teller(stage)
    await teller.tell(success=5, error=5)
    await teller.tell(success=1)
    await stage.client.flushall()
    await teller.tell(success=1)
    assert await told(stage) == {P: {"SUCCESS": 7, "ERROR_PROCESS": 5}}
    await stage.client.flushall()
    await teller.tell(success=1)
    await teller.tell(success=1)
    assert await told(stage) == {P: {"SUCCESS": 9, "ERROR_PROCESS": 5}}


async def failed_over(stage: Stage) -> Teller:
    """It has told seven, one by one, and a failover lost the second to the sixth."""
    teller = Teller(stage)
    await teller.tell(success=1)
    kept = await _image(stage)
    for _ in range(5):
        await teller.tell(success=1)
    await _restore(stage, kept)
    await teller.tell(success=1)
    return teller


async def test_what_a_failover_lost_is_said_again(stage: Stage) -> None:
    await failed_over(stage)
    assert await told(stage) == {P: {"SUCCESS": 7}}


async def test_a_failover_that_lost_more_than_is_kept_loses_that_and_counts_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PIECES_KEPT", 2)
    teller = await failed_over(stage)
    # The sixth was kept, and the seventh is new.
    assert await told(stage) == {P: {"SUCCESS": 3}}
    await teller.tell(success=1)
    assert await told(stage) == {P: {"SUCCESS": 4}}


async def _image(stage: Stage) -> dict[str, bytes | str | dict[str, str]]:
    return {
        FleetKeys.totals + "pool": await stage.client.hgetall(FleetKeys.totals + "pool"),
        FleetKeys.tallied + "a": await stage.client.get(FleetKeys.tallied + "a"),
    }


async def _restore(stage: Stage, image: dict[str, bytes | str | dict[str, str]]) -> None:
    for key, value in image.items():
        await stage.client.delete(key)
        if isinstance(value, dict):
            await stage.client.hset(key, mapping=value)
        else:
            await stage.client.set(key, value)


async def test_a_call_carries_a_bounded_piece_and_says_of_how_many_keys_there_is_more(stage: Stage) -> None:
    teller = Teller(stage)
    for number in range(PIECE + 50):
        teller.counters.add("pool", f"P{number}", "SUCCESS", number + 1)
    assert await teller.tally.tell(now_ms=0, most=10 * PIECE) == 50
    assert len(await told(stage)) == PIECE
    assert await teller.tally.tell(now_ms=0, most=20) == 30
    await teller.tell()
    assert await told(stage) == {("pool", f"P{n}"): {"SUCCESS": n + 1} for n in range(PIECE + 50)}


async def test_large_numbers_are_counted_to_the_last_digit(stage: Stage) -> None:
    large = 123_456_789_012_345
    await Teller(stage, "a").tell(success=large)
    await Teller(stage, "b").tell(success=1)
    assert await told(stage) == {P: {"SUCCESS": large + 1}}


async def test_what_is_forgotten_is_gone_and_goes_on_from_nothing(stage: Stage) -> None:
    teller = Teller(stage)
    teller.counters.add("pool", "Q", "SUCCESS")
    await teller.tell(success=5)
    assert await labels(stage.client, "pool") == {"P", "Q"}
    await forget(stage.client, "pool", ["P"])
    assert await told(stage) == {("pool", "Q"): {"SUCCESS": 1}}
    await teller.tell(success=1)
    assert await told(stage) == {("pool", "Q"): {"SUCCESS": 1}, P: {"SUCCESS": 1}}


async def test_only_the_kinds_that_are_asked_for_are_read(stage: Stage) -> None:
    teller = Teller(stage)
    teller.counters.observe("wait", "P", 0.002)
    await teller.tell(success=1)
    assert await totals(stage.client, ["pool"]) == {P: {"SUCCESS": 1}}
    assert await told(stage) == {P: {"SUCCESS": 1}, ("wait", "P"): {"1": 1, "18": 2000}}
