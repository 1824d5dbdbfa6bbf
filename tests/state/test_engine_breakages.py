"""With a bug put in by hand the engine's model fails; so it would have failed had we written that bug."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fleet.state import scripts
from tests.state.driving import Machine, drive_by_rote, simulated
from tests.state.engine_machine import EngineMachine, StandardMachine, SubscriptionMachine

ENOUGH = 1_000


@dataclass(frozen=True)
class Bug:
    file: str
    old: str
    new: str
    machine: Machine = EngineMachine


BUGS = {
    "what came from an outbox is taken in again": Bug("own/arrive", "if tonumber(ARGV[base + 1]) > place then", "do"),
    "an outbox forgets what has not arrived": Bug("own/leave", "<= place do", "<= place + 1e15 do"),
    "what moves never reaches its outbox": Bug(
        "with/own_moving", "redis.call('RPUSH', outbox .. target, ", "local _ = ("
    ),
    "a dedup id is forgotten": Bug("own/send", "local before = dedup_id ~= '' and", "local before = false and"),
    "a showing whose time is over still acts": Bug(
        "own/conclude", "or 0) <= now then return -2 end", "or 0) < 0 then return -2 end"
    ),
    "what is deleted stays in its group": Bug("own/conclude", "and not leave_group(group, seq) then", "and false then"),
    "a message is shown once too often before it moves": Bug(
        "own/receive", "before >= max_count", "before > max_count"
    ),
    "an older handle of a standard queue is refused": Bug(
        "own/conclude", "if kind == 's' then return nil end", "", StandardMachine
    ),
    "a body goes while another subscription has it": Bug(
        "with/own_queue", "if redis.call('EXISTS', refs) == 1 then", "if false then", SubscriptionMachine
    ),
    "what left a subscription is counted on": Bug(
        "own/conclude", "redis.call('HINCRBY', state, 'messages', -#gone)", "", SubscriptionMachine
    ),
}


@pytest.fixture
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bug]:
    bug: Bug = BUGS[request.param]
    read = scripts._read
    assert bug.old in read(bug.file), "a bug that breaks nothing proves nothing"
    monkeypatch.setattr(
        scripts, "_read", lambda name: read(name).replace(bug.old, bug.new) if name == bug.file else read(name)
    )
    scripts.script.cache_clear()
    yield bug
    monkeypatch.undo()
    scripts.script.cache_clear()


@pytest.mark.parametrize("broken", BUGS, indirect=True)
def test_the_model_fails(broken: Bug) -> None:
    # An answer that is not the model's, or one that it cannot make sense of.
    with pytest.raises((AssertionError, LookupError, ValueError)):
        drive_by_rote(broken.machine, simulated, examples=ENOUGH)
