"""How much is asked for, when what the pools can take changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import pytest

from coordinator.put_off import PoolLimits
from coordinator.room import PATIENCE_MS
from coordinator.rooms import Rooms
from fleet.state.connect import Client, connected
from fleet.state.entry import Entry
from fleet.state.pool import Pool, PoolSettings
from tests.clocks import HandClock
from tests.servers.local import RedisServer
from tests.state.stage import in_group, in_groups, submit
from tests.waiting import eventually

LIMITS = {"SLOW": PoolLimits(50, 2), "FAST": PoolLimits(160, 8)}
SHARES = {"SLOW": 0.5, "FAST": 0.5}
FEW, MANY = in_group(40), in_groups(40)
"""More than the fast pool works on at once; of one group, and of enough of them."""


async def test_room_that_was_known_is_asked_for_again_once_pools_were_changed(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as client:
        pool = Pool(client, "P")
        await pool.configure("1", PoolSettings(8, 160))
        rooms = Rooms(client=client, clock=HandClock(), limits_of=lambda _: PoolLimits(160, 8), full=lambda: False)
        assert await rooms.wait({"P": 1.0}, 500) == 160
        await pool.configure("2", PoolSettings(2, 50))
        assert await rooms.wait({"P": 1.0}, 100) == 100, "it was told so"
        rooms.forget()
        assert await rooms.wait({"P": 1.0}, 100) == 50


class SeenClock(HandClock):
    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def boot_ms(self) -> float:
        self.looks += 1
        return super().boot_ms()


class Uneven:
    """One queue feeds a pool that is full and one that has room."""

    def __init__(self, client: Client) -> None:
        self.clock = SeenClock()
        self.rooms = Rooms(client=client, clock=self.clock, limits_of=LIMITS.__getitem__, full=lambda: False)
        self.slow, self.fast = Pool(client, "SLOW"), Pool(client, "FAST")
        self._revision = 0

    async def begin(self) -> None:
        await self._capacity_of(self.slow, LIMITS["SLOW"])
        await self._capacity_of(self.fast, LIMITS["FAST"])
        await submit(self.slow, in_groups(50, "slow"))

    async def _capacity_of(self, pool: Pool, limits: PoolLimits) -> None:
        self._revision += 1
        await pool.configure(str(self._revision), PoolSettings(limits.concurrency, limits.capacity))
        self.rooms.forget()

    async def slow_is_short_anew(self) -> None:
        await self._capacity_of(self.slow, PoolLimits(1050, 2))
        assert await self.asked_for() > 0
        await self._capacity_of(self.slow, LIMITS["SLOW"])

    async def asked_for(self, *, by_groups: bool = False) -> int:
        return await self.rooms.wait(SHARES, 100, by_groups=by_groups)

    async def wait_for_slow(self, ms: float, *, by_groups: bool) -> None:
        """A wait for the pool that is full, which ends after this long by the clock."""
        before = self.clock.looks
        waiting = asyncio.create_task(self.asked_for(by_groups=by_groups))
        # One look when the pool is found to be short, one when the wait begins.
        await eventually(lambda: self.clock.looks == before + 2)
        self.clock.now_ms += round(ms)
        self.rooms.on_signal("SLOW")
        assert await waiting == 0


@pytest.fixture
async def uneven(redis_server: RedisServer) -> AsyncIterator[Uneven]:
    async with connected(redis_server.url) as client:
        made = Uneven(client)
        await made.begin()
        yield made


@pytest.mark.parametrize(
    ("has", "by_groups", "starves"),
    [(MANY[:7], False, True), (FEW, False, False), (FEW, True, True), (MANY, True, False), (MANY[:15], True, True)],
    ids=["few-messages", "one-group-by-messages", "one-group-by-groups", "many-groups", "groups-under-twice-its-limit"],
)
async def test_patience_with_a_full_pool_is_used_up_only_while_another_has_too_little_to_work_on(
    uneven: Uneven, has: list[Entry], by_groups: bool, starves: bool
) -> None:
    await submit(uneven.fast, has)
    for _ in range(2):
        await uneven.slow_is_short_anew()
        await uneven.wait_for_slow(0.6 * PATIENCE_MS, by_groups=by_groups)
    # It has been short for less than is waited for, and was waited for twice.
    assert (await uneven.asked_for(by_groups=by_groups) > 0) is starves


async def test_a_pool_that_is_short_for_longer_than_patience_lasts_is_not_waited_for(uneven: Uneven) -> None:
    await submit(uneven.fast, MANY)
    await uneven.wait_for_slow(PATIENCE_MS, by_groups=True)
    assert await uneven.asked_for(by_groups=True) > 0


async def test_a_look_that_finds_a_pool_idle_shortens_what_it_refuses_is_put_off_for(uneven: Uneven) -> None:
    put_off = uneven.rooms.put_off
    for _ in range(4):
        for code in ("SLOW", "FAST"):
            put_off.refused(code)
        uneven.clock.now_ms += 1000 * put_off.seconds("SLOW")
    assert [put_off.seconds(code) for code in ("SLOW", "FAST")] == [8, 8]
    await uneven.asked_for()
    assert [put_off.seconds(code) for code in ("SLOW", "FAST")] == [8, 4], "one is full, one empty"


class ChangedMeanwhile:
    """Redis, and something that happens to us before its answer is read."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.meanwhile: Callable[[], None] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    async def evalsha(self, *arguments: Any) -> Any:
        return await self._then(self.client.evalsha(*arguments))

    async def eval(self, *arguments: Any) -> Any:
        return await self._then(self.client.eval(*arguments))

    async def _then(self, call: Awaitable[Any]) -> Any:
        answer = await call
        self.meanwhile()
        return answer


ALIKE = PoolLimits(160, 8)


@pytest.fixture
async def changed(redis_server: RedisServer) -> AsyncIterator[ChangedMeanwhile]:
    async with connected(redis_server.url) as client:
        for code in ("P", "Q", "R"):
            await Pool(client, code).configure("1", PoolSettings(8, 160))
        yield ChangedMeanwhile(client)


def rooms_of(changed: ChangedMeanwhile) -> Rooms:
    client = cast(Client, changed)
    return Rooms(client=client, clock=HandClock(), limits_of=lambda _: ALIKE, full=lambda: False)


async def test_a_new_configuration_in_the_middle_of_a_look_at_the_pools_ends_nothing(
    changed: ChangedMeanwhile,
) -> None:
    rooms = rooms_of(changed)
    changed.meanwhile = rooms.forget
    assert await rooms.wait({"P": 0.5, "Q": 0.5}, 1000) == 160


async def test_a_new_configuration_in_the_middle_of_a_look_for_who_starves_ends_nothing(
    changed: ChangedMeanwhile,
) -> None:
    rooms = rooms_of(changed)
    await submit(Pool(changed.client, "R"), in_groups(160, "busy"))

    def forget_and_wake() -> None:
        rooms.forget()
        rooms.on_signal("R")

    changed.meanwhile = forget_and_wake
    # One that waits for a pool in vain, then one whose patience with it is used up by others who starve.
    assert await rooms.wait({"P": 0.3, "Q": 0.3, "R": 0.4}, 200) == 0
    now_ms = HandClock().boot_ms()
    rooms._patience.spend("R", now_ms - PATIENCE_MS, now_ms)
    assert await rooms.wait({"P": 0.3, "Q": 0.3, "R": 0.4}, 200) > 0


async def test_what_was_answered_before_a_change_is_not_remembered_after_it(changed: ChangedMeanwhile) -> None:
    rooms = rooms_of(changed)
    changed.meanwhile = rooms.forget
    assert await rooms.wait({"P": 1.0}, 500) == 160
    changed.meanwhile = lambda: None
    await Pool(changed.client, "P").configure("2", PoolSettings(2, 50))
    assert await rooms.wait({"P": 1.0}, 100) == 50
