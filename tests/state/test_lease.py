"""The right to one thing, and that its holder stops before somebody else starts."""

from __future__ import annotations

import asyncio

import pytest

from fleet.errors import StateUnavailable
from fleet.lease import HeldBy, Lease, safe_deadline
from fleet.state.connect import Client
from fleet.state.keys import FleetKeys
from tests.clocks import HandClock
from tests.state.stage import NOON_MS, TTL_MS, Stage


class Contender(Lease):
    """One who wants the leadership, with its own clock beside the server's."""

    def __init__(self, client: Client, owner: str) -> None:
        self.hands = HandClock()
        self._server_ms = NOON_MS
        super().__init__(
            client=client, key=FleetKeys.leader, owner=owner, ttl_ms=TTL_MS, clock=self.hands, now_ms=str(NOON_MS)
        )

    def server_passes(self, ms: int) -> None:
        self._server_ms += ms
        self._now_ms = str(self._server_ms)

    def passes(self, ms: int) -> None:
        self.server_passes(ms)
        self.hands.now_ms += ms


@pytest.fixture
def a(stage: Stage) -> Contender:
    return Contender(stage.client, "a")


@pytest.fixture
def b(stage: Stage) -> Contender:
    return Contender(stage.client, "b")


async def test_one_of_two_gets_it_and_the_other_hears_who(a: Contender, b: Contender) -> None:
    assert await a.acquire()
    assert a.held
    b.passes(4000)
    assert not await b.acquire()
    assert not b.held
    assert b.held_by == HeldBy("a", a.epoch, 6000)


async def test_it_is_free_at_the_moment_it_lapses_and_not_before(a: Contender, b: Contender) -> None:
    await a.acquire()
    b.passes(TTL_MS - 1)
    assert not await b.acquire()
    b.passes(1)
    assert await b.acquire()
    assert b.held_by is None
    assert int(b.epoch) > int(a.epoch)


async def test_renewing_keeps_it_and_its_epoch(a: Contender, b: Contender) -> None:
    await a.acquire()
    epoch = a.epoch
    for _ in range(3):
        a.passes(TTL_MS // 2)
        b.passes(TTL_MS // 2)
        assert await a.renew()
    assert a.epoch == epoch
    assert not await b.acquire()


async def test_a_lapsed_lease_is_not_renewable_even_if_nobody_took_it(a: Contender) -> None:
    await a.acquire()
    a.server_passes(TTL_MS)
    assert not await a.renew()
    assert not a.held


async def test_a_lease_taken_over_is_lost(a: Contender, b: Contender) -> None:
    await a.acquire()
    b.passes(TTL_MS)
    await b.acquire()
    assert not await a.renew()
    assert a.epoch == ""


async def test_releasing_lets_the_next_one_in_at_once(a: Contender, b: Contender) -> None:
    await a.acquire()
    await a.release()
    assert not a.held
    assert await b.acquire()
    assert int(b.epoch) > NOON_MS * 1000


async def test_releasing_what_was_taken_over_takes_it_from_nobody(a: Contender, b: Contender) -> None:
    await a.acquire()
    b.passes(TTL_MS)
    await b.acquire()
    await a.release()
    assert await b.renew()


async def test_acquiring_again_voids_the_grant_whose_reply_was_lost(a: Contender, stage: Stage) -> None:
    await a.acquire()
    twin = Contender(stage.client, "a")
    assert await twin.acquire()
    assert int(twin.epoch) == int(a.epoch) + 1
    assert not await a.renew()
    assert await twin.renew()


async def test_epochs_rise_with_a_clock_that_stood_still_or_stepped_back(a: Contender, b: Contender) -> None:
    epochs = []
    for contender in (a, b, a, b):
        assert await contender.acquire()
        epochs.append(int(contender.epoch))
        await contender.release()
        contender.passes(-1000)
    assert epochs == sorted(set(epochs))


async def test_epochs_rise_after_redis_was_wiped(a: Contender, stage: Stage) -> None:
    await a.acquire()
    before = int(a.epoch)
    await stage.client.flushall()
    a.passes(1)
    assert await a.acquire()
    assert int(a.epoch) > before


async def test_a_wiped_lease_is_lost(a: Contender, stage: Stage) -> None:
    await a.acquire()
    await stage.client.flushall()
    assert not await a.renew()


async def test_without_a_time_of_ours_the_servers_clock_counts(stage: Stage) -> None:
    lease = Lease(client=stage.client, key=FleetKeys.leader, owner="a", ttl_ms=TTL_MS, clock=HandClock())
    assert await lease.acquire()
    assert int(lease.epoch) > 1_700_000_000_000_000
    assert await lease.renew()


async def test_a_holder_stops_before_the_server_lets_the_next_one_in(a: Contender, b: Contender) -> None:
    await a.acquire()
    while a.held:
        a.hands.now_ms += 1
        b.server_passes(1)
    assert not await b.acquire()
    assert b.held_by is not None
    assert b.held_by.remaining_ms >= TTL_MS * 0.1 - 1


async def test_a_holder_that_was_suspended_gives_up_by_its_own_clock(a: Contender) -> None:
    await a.acquire()
    a.hands.now_ms += TTL_MS
    assert not a.held
    # The server's clock says that it has it still.
    assert not await a.renew()
    assert a.epoch == ""


async def test_the_clock_is_taken_before_the_call(stage: Stage) -> None:
    slow = Contender(stage.client, "a")
    call = slow._call

    async def slowly(verb: str, epoch: str = "") -> list[str]:
        answer = await call(verb, epoch)
        slow.hands.now_ms += TTL_MS - 500
        return answer

    slow._call = slowly  # type: ignore[method-assign]
    assert not await slow.acquire(), "granted, but the answer came too late to act on it"
    assert not slow.held


async def test_a_renewal_that_redis_did_not_answer_changes_nothing_until_the_deadline(a: Contender) -> None:
    await a.acquire()

    async def away(verb: str, epoch: str = "") -> list[str]:
        raise StateUnavailable

    a._call = away  # type: ignore[method-assign]
    a.hands.now_ms += TTL_MS // 2
    assert await a.renew()
    a.hands.now_ms += TTL_MS // 2
    assert not await a.renew()


async def test_a_dropped_lease_is_not_acted_on_and_not_given_back(a: Contender, b: Contender) -> None:
    await a.acquire()
    a.drop()
    assert not a.held
    await a.release()
    assert not await b.acquire()


@pytest.mark.parametrize("ttl_ms", [50, 400, 1000, 10_000, 60_000])
def test_the_safe_deadline_is_before_the_lapse_and_leaves_time_to_work(ttl_ms: int) -> None:
    left = safe_deadline(0.0, ttl_ms)
    assert ttl_ms * 0.6 <= left < ttl_ms


async def test_of_many_who_ask_at_once_one_gets_it(stage: Stage) -> None:
    contenders = [Contender(stage.client, f"c{i}") for i in range(8)]
    assert sum(await asyncio.gather(*(c.acquire() for c in contenders))) == 1


async def test_who_gets_it_hears_whether_its_last_holder_gave_it_back(a: Contender, b: Contender) -> None:
    assert await a.acquire()
    assert not a.was_released, "nobody had it: after a wipe that may be somebody who died"
    await a.release()
    assert await b.acquire()
    assert b.was_released
    b.server_passes(TTL_MS + 1)
    a.server_passes(TTL_MS + 1)
    assert await a.acquire()
    assert not a.was_released


async def test_a_grant_is_above_an_epoch_that_somebody_else_remembers(a: Contender) -> None:
    assert await a.acquire()
    a.above = str(int(a.epoch) + 3_600_000_000)
    await a.release()
    assert await a.acquire()
    assert int(a.epoch) == int(a.above) + 1
