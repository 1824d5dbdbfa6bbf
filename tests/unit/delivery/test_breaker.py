"""One breaker as a state machine: the seed's numbers, and time passed in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.delivery.breaker import (
    ASK,
    OVERTAKEN_MS,
    OWN_PERMIT,
    PASS,
    PROBE,
    PROBED_RETRY_MS,
    Breaker,
    Change,
    Open,
    spoke,
)
from fleet.delivery.reply import Reply
from fleet.state.breakers import RULES, BreakerRules, Shared


def said(breaker: Breaker, outcomes: str, now_ms: float = 0.0) -> list[Change]:
    """Record a request for each letter: `.` went well, `x` failed."""
    return [breaker.record(letter == ".", now_ms, probe=False) for letter in outcomes]


def opened(now_ms: float = 0.0) -> Breaker:
    breaker = Breaker()
    assert said(breaker, "x" * 10, now_ms)[-1] is Change.OPENED
    return breaker


def probed(breaker: Breaker, ok: bool, now_ms: float) -> Change:
    assert breaker.admit(now_ms) is ASK
    breaker.grant("1")
    assert breaker.admit(now_ms) is PROBE
    return breaker.record(ok, now_ms, probe=True)


def test_the_numbers_are_the_seeds() -> None:
    assert (RULES.window, RULES.failure_ratio, RULES.open_ms, RULES.successes_to_close) == (10, 0.5, 5000, 3)


@pytest.mark.parametrize(
    ("outcomes", "opens"),
    [
        ("xxxxxxxxx", False),  # nine do not fill the window yet
        ("xxxxxxxxxx", True),
        (".....xxxxx", True),
        ("x.x.x.x.x.", True),  # also where the tenth went well
        ("xxxxx.....", True),
        ("......xxxx", False),
        ("......xxxxx", True),  # five of the last ten
        ("xxxx......", False),
        ("xxxx......x", False),  # the oldest has left the window
        ("." * 100 + "xxxx" + "." * 6 + "xxxx", False),
    ],
)
def test_it_opens_when_half_of_the_last_ten_failed(outcomes: str, opens: bool) -> None:
    assert (Change.OPENED in said(Breaker(), outcomes)) is opens


def test_an_open_one_refuses_until_five_seconds_have_passed() -> None:
    breaker = opened(now_ms=1000)
    assert breaker.admit(1000) == Open(5000)
    assert breaker.admit(5999) == Open(1)
    assert breaker.admit(6000) is ASK
    assert [breaker.state(t) for t in (1000, 5999, 6000)] == ["open", "open", "half-open"]


def test_a_half_open_one_lets_one_probe_through_and_nobody_else() -> None:
    breaker = opened()
    breaker.grant("1")
    assert breaker.admit(5000) is PROBE
    assert [breaker.admit(5000 + t) for t in range(3)] == [Open(PROBED_RETRY_MS, probed=True)] * 3


def test_while_one_asks_for_the_permit_nobody_else_does() -> None:
    breaker = opened()
    breaker.asking = True
    assert breaker.admit(5000) == Open(PROBED_RETRY_MS, probed=True)


def test_three_probes_that_succeed_close_it_with_a_new_window() -> None:
    breaker = opened()
    assert [probed(breaker, True, 5000) for _ in range(3)] == [Change.PROBE_SUCCEEDED] * 3
    assert breaker.admit(5000) is PASS
    assert Change.OPENED not in said(breaker, "xxxxxxxxx")


def test_a_probe_that_fails_opens_it_for_five_seconds_more_and_the_count_begins_again() -> None:
    breaker = opened()
    assert [probed(breaker, True, 5000) for _ in range(2)] == [Change.PROBE_SUCCEEDED] * 2
    assert probed(breaker, False, 6000) is Change.PROBE_FAILED
    assert breaker.admit(6000) == Open(5000)
    assert [probed(breaker, True, 11_000) for _ in range(2)] == [Change.PROBE_SUCCEEDED] * 2
    assert breaker.state(11_000) == "half-open"


def test_requests_from_before_it_opened_change_nothing() -> None:
    breaker = opened()
    assert said(breaker, "." * 20, 100) + said(breaker, ".x" * 9, 5000) == [Change.NONE] * 38
    assert breaker.admit(4999) == Open(1)
    assert breaker.admit(5000) is ASK


def test_a_probe_that_nobody_recorded_does_not_wedge_it() -> None:
    breaker = Breaker(BreakerRules(probe_limit_ms=1000))
    said(breaker, "x" * 10)
    breaker.grant("1")
    assert breaker.admit(5000) is PROBE
    assert breaker.admit(5999) == Open(PROBED_RETRY_MS, probed=True)
    assert breaker.admit(6000) is ASK
    assert breaker.record(True, 6000, probe=True) is Change.NONE


def test_who_hears_that_it_opened_elsewhere_refuses_at_once() -> None:
    breaker = Breaker()
    assert breaker.adopt(Shared("open", as_of_ms=7, left_ms=3000), 100)
    assert breaker.admit(100) == Open(3000)


def test_who_hears_that_it_closed_passes_at_once() -> None:
    breaker = opened()
    assert breaker.adopt(Shared("closed", as_of_ms=7), 1000)
    assert breaker.admit(1000) is PASS
    assert Change.OPENED not in said(breaker, "xxxxxxxxx")


def test_hearing_that_a_closed_one_is_closed_keeps_its_window() -> None:
    breaker = Breaker()
    said(breaker, "xxxxxxxxx")
    breaker.adopt(Shared("closed", as_of_ms=7), 0)
    assert said(breaker, "x") == [Change.OPENED]


def test_news_of_a_clock_that_stepped_back_are_believed() -> None:
    breaker, before = Breaker(), 3_600_000
    assert breaker.adopt(Shared("open", as_of_ms=before, left_ms=3000), 0)
    assert not breaker.adopt(Shared("closed", as_of_ms=before - OVERTAKEN_MS + 1), 100)
    assert breaker.adopt(Shared("half", as_of_ms=1), 3000)
    assert breaker.adopt(Shared("closed", as_of_ms=2), 3001)
    assert breaker.admit(3001) is PASS
    assert not breaker.adopt(Shared("open", as_of_ms=1, left_ms=3000), 3002), "from here on by the new time"


def test_older_news_are_not_believed() -> None:
    breaker = Breaker()
    assert breaker.adopt(Shared("open", as_of_ms=7, left_ms=3000), 0)
    assert not breaker.adopt(Shared("closed", as_of_ms=6), 0)
    assert breaker.admit(0) == Open(3000)


def test_successes_of_other_workers_count() -> None:
    breaker = opened()
    breaker.adopt(Shared("granted", as_of_ms=1, successes=2, epoch="9"), 5000)
    assert probed(breaker, True, 5000) is Change.PROBE_SUCCEEDED
    assert breaker.state(5000) == "closed"


def test_where_somebody_else_probes_the_question_is_not_asked_for_a_moment() -> None:
    breaker = opened()
    breaker.adopt(Shared("taken", as_of_ms=1, left_ms=9000), 5000)
    assert breaker.admit(5000) == Open(PROBED_RETRY_MS, probed=True)
    assert breaker.admit(5000 + PROBED_RETRY_MS) is ASK


def test_a_probe_whose_breaker_was_opened_elsewhere_counts_no_more() -> None:
    breaker = opened()
    breaker.grant(OWN_PERMIT)
    assert breaker.admit(5000) is PROBE
    breaker.adopt(Shared("open", as_of_ms=1, left_ms=5000), 5500)
    assert breaker.record(True, 5600, probe=True) is Change.NONE
    assert breaker.admit(5600) == Open(4900)


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        *[(Reply(status, b"", 0.0), True) for status in (100, 200, 204, 302, 400, 404, 412, 429, 499, 600)],
        *[(Reply(status, b"", 0.0), False) for status in (500, 501, 502, 503, 504, 599)],
        *[
            (Reply(200, b"", 0.0, error=error), False)
            for error in ("TIMEOUT", "CONNECT_TIMEOUT", "REFUSED", "UNRESOLVED", "RESET", "PROTOCOL", "OTHER")
        ],
        (Reply(0, b"", 0.0, error="FORBIDDEN_ADDRESS"), None),
        (Reply(0, b"", 0.0, error="BAD_URL"), None),
        (Reply(200, b'{"ack":false}', 0.0), True),
        (Reply(200, b"", 0.0, oversize=True), True),
        (Reply(412, b"", 0.0, fenced=True), True),
    ],
)
def test_5xx_and_transport_errors_are_failures_and_every_other_answer_a_success(
    reply: Reply, verdict: bool | None
) -> None:
    assert spoke(reply) is verdict


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.just(0)),
        st.tuples(st.just("ok"), st.just(0)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("grant"), st.just(0)),
        st.tuples(st.just("pass time"), st.integers(0, 6000)),
        st.tuples(st.just("closed"), st.just(0)),
        st.tuples(st.just("open"), st.integers(1, 5000)),
        st.tuples(st.just("half"), st.integers(0, 2)),
        st.tuples(st.just("taken"), st.integers(0, 2)),
    ),
    max_size=80,
)


@given(STEPS)
def test_whatever_happens_at_most_one_probe_is_out_and_waiting_always_ends(steps: list[tuple[str, int]]) -> None:
    breaker, now_ms, as_of_ms, out = Breaker(), 0.0, 0, 0
    for step, number in steps:
        before = breaker.probing
        match step:
            case "admit":
                admitted = breaker.admit(now_ms)
                assert (admitted is PROBE) <= (not before)
                if isinstance(admitted, Open):
                    assert 0 < admitted.retry_after_ms <= 5000
                assert (admitted is PASS) == (breaker.state(now_ms) == "closed")
            case "ok" | "fail":
                change = breaker.record(step == "ok", now_ms, probe=before)
                assert (change in (Change.PROBE_SUCCEEDED, Change.PROBE_FAILED)) == before
                assert not breaker.probing
            case "grant":
                breaker.grant(str(out))
                out += 1
            case "pass time":
                now_ms += number
            case _:
                as_of_ms += 1
                left_ms = number if step == "open" else 1000
                assert breaker.adopt(Shared(step, as_of_ms, left_ms, number % 3), now_ms)
        assert breaker.successes < 3
    breaker.end_probe()
    later_ms = now_ms + 6000
    assert breaker.admit(later_ms) in (PASS, ASK)


@given(st.text(".x", min_size=1, max_size=60))
def test_it_opens_as_soon_as_five_of_the_last_ten_failed(outcomes: str) -> None:
    breaker = Breaker()
    full = range(9, len(outcomes))
    opens_at = next((i for i in full if outcomes[i - 9 : i + 1].count("x") >= 5), None)
    changes = said(breaker, outcomes)
    assert (changes.index(Change.OPENED) if Change.OPENED in changes else None) == opens_at
