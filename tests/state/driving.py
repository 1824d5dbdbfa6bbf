"""How hypothesis drives a machine against a Redis of some kind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from fleet.state.connect import Client
from tests.simulation.direct import DirectClient

Connected = Callable[[], Awaitable[Client]]
Machine = Callable[[Connected], RuleBasedStateMachine]


def drive(machine: Machine, connected: Connected, *, examples: int, steps: int = 40) -> None:
    _drive(machine, connected, settings(max_examples=examples, stateful_step_count=steps))


def drive_by_rote(machine: Machine, connected: Connected, *, examples: int) -> None:
    """The same each time, and what fails is not shrunk."""
    _drive(machine, connected, settings(max_examples=examples, derandomize=True, phases=[Phase.generate]))


def _drive(machine: Machine, connected: Connected, chosen: settings) -> None:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    profile = settings(chosen, deadline=None, suppress_health_check=slow)
    # Any factory will do, whatever its type says.
    made = cast("type[RuleBasedStateMachine]", partial(machine, connected))
    run_state_machine_as_test(made, settings=profile)


async def simulated() -> Client:
    client: Client = DirectClient()
    return client
