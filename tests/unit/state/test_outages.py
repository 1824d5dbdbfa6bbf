"""What is said of an outage: each line once, that it is over once."""

from __future__ import annotations

import logging

import pytest

from fleet.errors import Fenced, SourceUnavailable, StateUnavailable
from fleet.state.outages import Outages


def away(text: str = "Redis is not ready: NOREPLICAS") -> SourceUnavailable:
    error = SourceUnavailable(f"queue own: {text}")
    error.__cause__ = StateUnavailable(text)
    return error


def passes(outages: Outages, text: str, *arguments: object) -> bool:
    return outages.filter(logging.LogRecord("fleet", logging.WARNING, "", 0, text, arguments, None))


def test_a_line_of_an_outage_is_said_once_and_again_in_the_next(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "fleet")
    outages = Outages()
    assert [passes(outages, "%s", away()) for _ in range(3)] == [True, False, False]
    assert passes(outages, "%s; deliveries stop", StateUnavailable("Redis is not ready: NOREPLICAS"))
    assert (outages.lasts, outages.seen) == (True, 4)
    outages.over()
    outages.over()
    assert caplog.messages == ["Redis is back"]
    assert not outages.lasts
    assert passes(outages, "%s", away())


def test_other_lines_are_repeated_and_are_no_outage() -> None:
    outages = Outages()
    for error in (Fenced(), SourceUnavailable("queue q: its disk is full"), "text"):
        assert [passes(outages, "%s", error) for _ in range(2)] == [True, True]
    assert passes(outages, "nothing to fill in")
    assert not outages.lasts
    outages.over()
