"""Whatever is called in whatever order, the scripts do what the models do, and their invariants hold."""

from __future__ import annotations

import fakeredis
import pytest

from fleet.state.connect import Client, connect
from tests.servers.local import RedisServer
from tests.state.driving import Machine, drive, simulated
from tests.state.engine_machine import EngineMachine, StandardMachine, SubscriptionMachine
from tests.state.pool_machine import PoolMachine
from tests.state.queue_machine import QueueMachine

ENGINES = (EngineMachine, StandardMachine, SubscriptionMachine)
MACHINES = pytest.mark.parametrize("machine", [PoolMachine, QueueMachine, *ENGINES])


async def in_memory() -> Client:
    return fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer())


@MACHINES
def test_the_simulation_s_redis_does_what_the_models_do(machine: Machine) -> None:
    drive(machine, simulated, examples=200)


@MACHINES
def test_fakeredis_does_what_the_models_do(machine: Machine) -> None:
    drive(machine, in_memory, examples=40)


@MACHINES
def test_a_real_server_does_what_the_models_do(machine: Machine, redis_server: RedisServer) -> None:
    async def connected() -> Client:
        client = await connect(redis_server.url)
        await client.flushall()
        return client

    drive(machine, connected, examples=50, steps=25)


@pytest.mark.long
@MACHINES
def test_thousands_of_runs_do_what_the_models_do(machine: Machine) -> None:
    drive(machine, simulated, examples=5_000, steps=60)
