"""What people do to the fleet: new configurations, and pools changed by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fleet.errors import FleetError, StateError
from fleet.operate.skip import skip_head
from fleet.state.by_hand import NO_RATE, PoolByHand
from tests.simulation.fault import CARRIED_OUT, Fault, fault
from tests.simulation.redis import SimulatedClient

if TYPE_CHECKING:
    from tests.simulation.world import World


def _pool(world: World, chance: random.Random) -> dict[str, Any]:
    pools: list[dict[str, Any]] = world.configs["main"]["processingPools"]
    return chance.choice(pools)


@fault("limits")
def _limits(world: World, chance: random.Random) -> str:
    pool = _pool(world, chance)
    pool["concurrency"], pool["capacity"] = chance.choice((1, 2, 4, 10)), chance.choice((8, 15, 40, 100))
    world.reconfigured()
    return f"{pool['code']}: concurrency {pool['concurrency']}, capacity {pool['capacity']}"


@fault("rate")
def _rate(world: World, chance: random.Random) -> str:
    pool = _pool(world, chance)
    pool["rateLimitPerMinute"] = chance.choice((None, 60, 60, 90))
    world.reconfigured()
    return f"{pool['code']}: {pool['rateLimitPerMinute']} a minute"


@fault("policy")
def _policy(world: World, chance: random.Random) -> str:
    pool = _pool(world, chance)
    pool["onFailure"] = chance.choice(("return", "hold", "skip", "park"))
    world.reconfigured()
    return f"{pool['code']}: {pool['onFailure']}"


@fault("nothing new")
def _nothing_new(world: World, chance: random.Random) -> str:
    """A revision that changes nothing for any pool."""
    first = world.configs["main"]["queues"][0]
    first["connections"] = first.get("connections", 1) % 3 + 1 if chance.random() < 0.3 else first.get("connections", 1)
    world.configs["main"]["processingPools"].append(
        {"code": f"X{world.extra_pools}", "concurrency": 1, "onFailure": "return"}
    )
    world.extra_pools += 1
    world.reconfigured()
    return "one more pool"


@fault("pool removed")
def _pool_removed(world: World, chance: random.Random) -> str:
    config = world.configs["main"]
    if len(config["processingPools"]) < 2:
        return "there is only one"
    pool, for_s = _pool(world, chance), chance.choice((3.0, 15.0))
    world.excuses.moved.add(pool["code"])
    config["processingPools"].remove(pool)
    world.reconfigured()

    def put_back() -> None:
        if pool["code"] not in [other["code"] for other in config["processingPools"]]:
            config["processingPools"].append(pool)
            world.reconfigured()

    world.until(for_s, put_back)
    return f"{pool['code']} for {for_s} s"


@fault("rival syncer")
def _rival_syncer(world: World, chance: random.Random) -> str:
    """A second syncer, with another file."""
    rival = world.config_copy()
    rival["processingPools"][0]["concurrency"] = 7
    world.configs["rival"] = rival
    world.excuses.rivals += 1
    world.fleet.start("syncer2", "rival")
    return "syncer2"


def _by_hand(act: Callable[[World, random.Random, SimulatedClient, str], Coroutine[Any, Any, None]]) -> Fault:
    def operate(world: World, chance: random.Random) -> str:
        code = chance.choice(world.scenario.pools).code
        world.operator(act, chance, code)
        return code

    return operate


async def _pause(world: World, chance: random.Random, client: SimulatedClient, code: str) -> None:
    world.until(chance.choice((1.0, 8.0)), lambda: world.operator(resume, chance, code))
    await PoolByHand(client, code).pause(True)


async def resume(world: World, chance: random.Random, client: SimulatedClient, code: str) -> None:
    await _until_done(lambda: PoolByHand(client, code).pause(False))


async def _drain(world: World, chance: random.Random, client: SimulatedClient, code: str) -> None:
    world.excuses.moved.add(code)
    world.until(chance.choice((1.0, 8.0)), lambda: world.operator(undrain, chance, code))
    await PoolByHand(client, code).adjust(draining=True)


async def undrain(world: World, chance: random.Random, client: SimulatedClient, code: str) -> None:
    await _until_done(lambda: PoolByHand(client, code).adjust(draining=False))


async def _until_done(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
    """An operator does not leave a pool paused or draining because one call failed."""
    while True:
        try:
            await call()
            return
        except StateError:
            await asyncio.sleep(0.5)


async def _adjust(world: World, chance: random.Random, client: SimulatedClient, code: str) -> None:
    await PoolByHand(client, code).adjust(
        concurrency=chance.choice((None, 1, 3, 9)), rate=chance.choice((None, NO_RATE, 50))
    )


async def _skip(world: World, chance: random.Random, client: SimulatedClient, code: str) -> None:
    groups = [group.name for group in world.scenario.groups if group.pool == code]
    if groups:
        try:
            world.excuses.put_aside.add(await skip_head(client, code, chance.choice(groups), give_up=0.0))
        except FleetError:
            return  # nothing is waiting there, or a worker has it


async def _release(world: World, chance: random.Random, client: SimulatedClient, code: str) -> None:
    groups = [group.name for group in world.scenario.groups if group.pool == code]
    if groups:
        await PoolByHand(client, code).release(chance.choice(groups))


CARRIED_OUT["pause"] = _by_hand(_pause)
CARRIED_OUT["drain"] = _by_hand(_drain)
CARRIED_OUT["adjust"] = _by_hand(_adjust)
CARRIED_OUT["skip"] = _by_hand(_skip)
CARRIED_OUT["release"] = _by_hand(_release)
