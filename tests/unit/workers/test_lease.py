"""A lease on a lane, as the worker that holds it knows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.unit.workers.links import Link, lease_on


def test_it_stands_at_one_of_its_messages() -> None:
    lease = lease_on(Link(), 2)
    assert lease.entry.message_id == "mg0"
    lease.at += 1
    assert lease.entry.message_id == "mg1"


def test_a_message_waits_for_the_probe_of_another_one_as_long_as_it_is_patient() -> None:
    lease = lease_on(Link())
    assert [lease.waits_for_probe(now_ms, 2000) for now_ms in (500, 2499, 2500)] == [True, True, False]


def test_to_stop_aborts_what_is_under_way_and_gives_its_permit_back() -> None:
    lease, told = lease_on(Link()), list[str]()
    lease.stop()
    lease.transfer = cast(Any, SimpleNamespace(abort=lambda: told.append("aborted")))
    lease.retry = cast(Any, SimpleNamespace(cancel=lambda: told.append("not sent again")))
    lease.ticket = cast(Any, SimpleNamespace(close=lambda: told.append("permit")))
    lease.stop()
    assert told == ["aborted", "not sent again", "permit"]
    assert (lease.transfer, lease.retry) == (None, None)
