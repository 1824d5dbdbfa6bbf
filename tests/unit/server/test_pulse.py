from __future__ import annotations

from fleet.server.pulse import QUIET_MS, Pulse
from tests.clocks import HandClock


def test_it_has_started_with_its_first_heartbeat_and_is_ready_for_as_long_as_the_last_is_recent() -> None:
    clock = HandClock()
    pulse = Pulse(clock=clock)
    assert (pulse.started, pulse.ready) == (False, False)
    pulse.beat(set())
    clock.now_ms += round(QUIET_MS) - 1
    assert (pulse.started, pulse.ready) == (True, True)
    clock.now_ms += 1
    assert (pulse.started, pulse.ready) == (True, False)
    pulse.beat(set())
    assert pulse.ready


def test_a_wall_clock_that_steps_changes_nothing() -> None:
    clock = HandClock()
    pulse = Pulse(clock=clock)
    clock.step_ms = -3_600_000
    pulse.beat(set())
    assert pulse.ready
    clock.step_ms = 3_600_000
    assert pulse.ready
