"""Whether this coordinator leads, what it counts as lost, and when it looks again."""

from __future__ import annotations

import logging
import math
from typing import Any, cast

import pytest

from coordinator.lead import Leadership
from fleet.errors import StateUnavailable
from fleet.lease import HeldBy


class Lease:
    """As the server grants it: to us, or to whom `taken_by` says."""

    def __init__(self) -> None:
        self.epoch = ""
        self.lapsed = self.ageing = self.away = False
        self.taken_by: HeldBy | None = None
        self.held_by: HeldBy | None = None
        self.renewals = 0

    @property
    def held(self) -> bool:
        return bool(self.epoch) and not self.lapsed

    async def acquire(self) -> bool:
        self.held_by = self.taken_by
        self.epoch, self.lapsed = ("" if self.taken_by else "7"), False
        return self.held

    async def renew(self) -> bool:
        self.renewals += 1
        if self.taken_by:
            self.drop()
        return self.held

    async def release(self) -> None:
        if self.away:
            raise StateUnavailable
        self.epoch = ""

    def drop(self) -> None:
        self.epoch = ""


class World:
    def __init__(self) -> None:
        self.lease = Lease()
        self.lead = Leadership(name="coordinator-1", lease=cast(Any, self.lease))

    @property
    def lost(self) -> int:
        return self.lead.lost["leader_leases_lost"]


@pytest.fixture
def world() -> World:
    return World()


OTHER = HeldBy("coordinator-2", "9", 4000)


async def test_who_gets_the_lease_leads_and_says_so_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fleet.coordinator")
    for _ in range(3):
        assert await world.lead.keep() == math.inf
    assert (world.lead.held, world.lead.epoch, world.lost) == (True, "7", 0)
    assert [record.getMessage() for record in caplog.records] == ["coordinator-1 leads the fleet"]


async def test_while_another_leads_we_look_when_its_lease_lapses(world: World) -> None:
    world.lease.taken_by = OTHER
    assert await world.lead.keep() == 4000
    assert (world.lead.held, world.lead.epoch, world.lost) == (False, "", 0)


async def test_a_lease_is_renewed_only_when_it_ages(world: World) -> None:
    await world.lead.keep()
    await world.lead.keep()
    assert world.lease.renewals == 0
    world.lease.ageing = True
    await world.lead.keep()
    assert (world.lease.renewals, world.lead.held) == (1, True)


async def test_a_lead_that_another_took_is_counted_as_lost_once(world: World) -> None:
    await world.lead.keep()
    world.lease.ageing, world.lease.taken_by = True, OTHER
    assert await world.lead.keep() == 4000
    await world.lead.keep()
    assert (world.lead.held, world.lost) == (False, 1)


async def test_a_lead_that_lapsed_and_is_ours_again_was_lost_and_is_no_news(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.lead.keep()
    caplog.set_level(logging.INFO, "fleet.coordinator")
    world.lease.lapsed = True
    assert world.lead.epoch == "", "it is not ours to act on"
    await world.lead.keep()
    assert (world.lead.held, world.lost, caplog.records) == (True, 1, [])


async def test_who_drops_the_lead_has_lost_it_if_it_was_had(world: World) -> None:
    world.lead.drop()
    assert world.lost == 0
    await world.lead.keep()
    world.lead.drop()
    assert (world.lead.held, world.lost) == (False, 1)


async def test_what_is_given_back_is_not_lost_and_an_outage_keeps_nobody_from_ending(world: World) -> None:
    await world.lead.keep()
    await world.lead.release()
    assert (world.lead.held, world.lost) == (False, 0)
    world.lease.away = True
    await world.lead.release()
