"""Why deliveries fail is said at once, and then now and then."""

from __future__ import annotations

import pytest

from tests.clocks import HandClock
from workers import complain
from workers.complain import QUIET_MS, Complaints


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def complaints(clock: HandClock, caplog: pytest.LogCaptureFixture) -> Complaints:
    caplog.set_level("WARNING", "fleet.worker")
    return Complaints(clock=clock)


def test_the_first_is_said_and_the_rest_is_a_number_when_the_next_is(
    complaints: Complaints, clock: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        complaints.add("P", f"m{number}", "HTTP 500")
    clock.now_ms += round(QUIET_MS) - 1
    complaints.add("P", "m5", "HTTP 500")
    assert caplog.messages == ["m0 in P not delivered: HTTP 500"]
    clock.now_ms += 1
    complaints.add("P", "m6", "HTTP 500")
    clock.now_ms += round(QUIET_MS)
    complaints.add("P", "m7", "HTTP 500")
    assert caplog.messages[1:] == [
        "m6 in P not delivered: HTTP 500 (and 5 more like it)",
        "m7 in P not delivered: HTTP 500",
    ]


def test_each_pool_and_each_reason_is_of_a_kind_of_its_own(
    complaints: Complaints, caplog: pytest.LogCaptureFixture
) -> None:
    for pool, reason in [("P", "HTTP 500"), ("P", "HTTP 503"), ("Q", "HTTP 500"), ("Q", "HTTP 500")]:
        complaints.add(pool, "m", reason)
    assert len(caplog.messages) == 3


def test_reasons_without_end_take_no_memory_without_end(
    complaints: Complaints, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(complain, "_KINDS_KEPT", 3)
    for port in (1, 2, 3, 3, 4):
        complaints.add("P", "m", f"127.0.0.1:{port} is shut")
    assert (len(complaints._said_at), complaints._unsaid) == (1, {})
    assert len(caplog.messages) == 4
