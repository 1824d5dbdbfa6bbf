"""May the target of a job be called now, and when do the jobs of one that is shut come again?"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from fleet.delivery.breaker import ASK, PASS, PROBE, Admit, Open
from fleet.delivery.request import Requests, Ticket
from fleet.processing.targets import PROBED_DELAY_S, Shut, Targets, Turns
from tests.clocks import HandClock
from tests.unit.delivery.noted import NotedBreakers, NotedClient

URL, ORIGIN = "http://a.example:81/orders?id=7", "http://a.example:81"


def admission(breakers: NotedBreakers) -> Targets:
    requests = Requests(
        client=cast(Any, NotedClient()),
        clock=HandClock(),
        breakers=cast(Any, breakers),
        forbids_url=lambda _: False,
        asleep_ms=1000,
        drop_lapsed=lambda: None,
    )
    return Targets(requests)


@pytest.mark.parametrize(
    ("admitted", "delay_s"),
    [
        (Open(4_200.0), 5),
        (Open(4_000.0), 4),
        (Open(0.0), 1),
        (Open(100.0, probed=True), PROBED_DELAY_S),
    ],
)
async def test_a_target_that_is_shut_is_so_until_it_may_be_probed_or_the_probe_is_over(
    admitted: Admit, delay_s: int
) -> None:
    assert await admission(NotedBreakers(admitted)).admit(URL) == Shut(ORIGIN, delay_s)


async def test_what_will_hardly_be_sent_asks_no_breaker() -> None:
    breakers = NotedBreakers(PROBE)
    admission(breakers).unasked(URL).close()
    assert breakers.notes == []


@pytest.mark.parametrize("admitted", [PASS, PROBE])
async def test_one_that_works_or_may_be_probed_is_called(admitted: Admit) -> None:
    breakers = NotedBreakers(admitted)
    assert isinstance(await admission(breakers).admit(URL), Ticket)
    assert breakers.notes == [f"admit {ORIGIN}"]


async def test_whoever_asks_for_the_permit_takes_it_in_the_call_that_says_so_or_asks_again() -> None:
    breakers = NotedBreakers(ASK, ASK, PROBE)
    waiting = asyncio.create_task(admission(breakers).admit(URL))
    for asked in (1, 2):
        await asyncio.sleep(0)
        assert len(breakers.questions) == asked
        decided, _ = breakers.questions[-1]
        before = len(breakers.notes)
        decided()
        assert breakers.notes[before:] == [f"admit {ORIGIN}"], "a permit that nobody has taken by now is given back"
        await asyncio.sleep(0)
    assert isinstance(await waiting, Ticket)


@pytest.mark.parametrize(("decided_first", "notes"), [(False, []), (True, [f"admit {ORIGIN}", "permit back"])])
async def test_who_goes_away_while_asking_is_left_out_and_keeps_no_permit(
    decided_first: bool, notes: list[str]
) -> None:
    breakers = NotedBreakers(ASK, PROBE)
    waiting = asyncio.create_task(admission(breakers).admit(URL))
    await asyncio.sleep(0)
    decided, handle = breakers.questions[0]
    breakers.notes.clear()
    if decided_first:
        decided()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (handle.cancelled(), breakers.notes) == (True, notes)


# When jobs of a target that is shut come again -----------------------------------------------------


def test_few_come_as_soon_as_they_may_and_never_two_at_once() -> None:
    turns = Turns()
    due = [turns.next("http://a", now_ms=1000, not_before_ms=6000) for _ in range(4)]
    assert due == [6000, 6010, 6020, 6030]
    assert turns.next("http://b", now_ms=1000, not_before_ms=2000) == 2000
    assert turns.next("http://a", now_ms=9000, not_before_ms=10_000) == 10_000


def test_however_many_there_are_none_waits_for_longer_than_a_minute_or_its_own_time() -> None:
    turns = Turns()
    due = [turns.next("http://a", now_ms=0, not_before_ms=1000) for _ in range(20_000)]
    assert due == sorted(due)
    assert due[-1] == 60_000
    assert turns.next("http://a", now_ms=0, not_before_ms=90_000) == 90_000


def test_targets_whose_jobs_are_long_gone_take_no_memory() -> None:
    turns = Turns()
    for number in range(5000):
        turns.next(f"http://{number}", now_ms=number * 10_000, not_before_ms=number * 10_000 + 1000)
    assert len(turns._last) <= 1000
