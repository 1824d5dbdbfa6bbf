"""Whatever is called in whatever order, the scripts do what the models do, and their invariants hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import fakeredis
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from fleet.state.connect import Client, connect
from tests.servers.local import RedisServer
from tests.simulation.direct import DirectClient
from tests.state.engine_machine import EngineMachine, StandardMachine, SubscriptionMachine
from tests.state.pool_machine import PoolMachine
from tests.state.queue_machine import QueueMachine

Connected = Callable[[], Awaitable[Client]]
Machine = Callable[[Connected], RuleBasedStateMachine]
ENGINES = (EngineMachine, StandardMachine, SubscriptionMachine)
MACHINES = pytest.mark.parametrize("machine", [PoolMachine, QueueMachine, *ENGINES])


def drive(machine: Machine, connected: Connected, *, examples: int, steps: int = 40, **more: Any) -> None:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    profile = settings(
        max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=slow, **more
    )
    # Any factory will do, whatever its type says.
    made = cast("type[RuleBasedStateMachine]", partial(machine, connected))
    run_state_machine_as_test(made, settings=profile)


async def simulated() -> Client:
    client: Client = DirectClient()
    return client


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
