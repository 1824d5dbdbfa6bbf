"""Which messages are due to be extended, from memory alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from coordinator.alive import Alive, OwnedQueue


def test_the_oldest_are_due_and_those_seen_again_are_young() -> None:
    alive = Alive()
    alive.seen("abc", 100.0)
    alive.seen("de", 200.0)
    assert alive.due(99.0) == []
    assert alive.due(100.0) == ["a", "b", "c"]
    alive.seen("b", 300.0)
    alive.gone("c")
    alive.gone("z")
    assert alive.due(200.0) == ["a", "d", "e"]
    assert alive.due(300.0) == ["a", "d", "e", "b"]
    assert len(alive) == 4


def test_what_is_inherited_is_as_old_as_it_is_and_what_is_of_a_time_to_come_is_due() -> None:
    clock = SimpleNamespace(boot_ms=lambda: 50_000.0)
    queue = OwnedQueue(cast(Any, None), "q", epoch="1", clock=cast(Any, clock))
    queue.inherit([(9_000, "young"), (3_000, "older"), (3_600_000, "of a clock that was ahead")], 10_000)
    assert queue.alive.due(0.0) == ["of a clock that was ahead"]
    assert queue.alive.due(43_000.0) == ["of a clock that was ahead", "older"]
    assert queue.alive.due(49_000.0) == ["of a clock that was ahead", "older", "young"]
