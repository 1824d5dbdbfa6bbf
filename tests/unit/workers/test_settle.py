"""What an outcome means for its message, and for the lease that it was delivered under."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from fleet.outcome import (
    MAX_RETRY_S,
    Delivered,
    Failed,
    NotSent,
    Outcome,
    Refenced,
    Rejected,
    Uncallable,
    Unreachable,
)
from fleet.state.entry import ACK, nack
from fleet.state.pool import Policy, failed, fenced, in_place
from fleet.state.scripts import SEP
from tests.unit.workers.links import Link, lease_on
from workers.lease import LaneLease
from workers.settle import settle

POLICIES = ("return", "skip", "hold", "park")
PARK_AFTER = 3
CASCADE_MS = 10_000
Owed = tuple[str, str]
"""The verdict on the message ('' for none, 'p' for put aside) and what becomes of the lease."""

NEXT, ENDS, ASIDE, STALE = (ACK, "keep"), (ACK, "ready"), ("p", "ready"), ("", fenced(1000))


def returned(delay_ms: int) -> Owed:
    return nack(delay_ms), failed(CASCADE_MS, "b", "q")


def skipped(delay_ms: int) -> Owed:
    return nack(delay_ms), "keep"


TABLE: list[tuple[Outcome, dict[str, Owed]]] = [
    (Delivered(), dict.fromkeys(POLICIES, NEXT)),
    (Rejected(404, "HTTP 404"), dict.fromkeys(POLICIES, ENDS)),
    (Uncallable("no URL"), dict.fromkeys(POLICIES, ASIDE)),
    (Refenced(), dict.fromkeys(POLICIES, STALE)),
    *(
        (
            Failed("it says so", retry_s=asked_s, status=status),
            {
                "return": returned(delay_ms),
                "skip": skipped(delay_ms),
                "hold": ("", in_place(delay_ms) if counts else str(delay_ms)),
                "park": ("", in_place(delay_ms) if counts else str(delay_ms)),
            },
        )
        for asked_s, delay_ms in [(7, 7_000), (None, 30_000), (0, 30_000), (10**6, MAX_RETRY_S * 1000)]
        for status, counts in [(500, True), (200, True), (0, True), (429, False)]
    ),
    *(
        (
            outcome,
            {
                "return": returned(30_000),
                "skip": skipped(30_000),
                "hold": ("", "30000"),
                "park": ("", "30000"),
            },
        )
        for outcome in (Unreachable("refused"), NotSent("its breaker is open"))
    ),
]


def verdicts(link: Link, lease: LaneLease) -> list[str]:
    return [item.rsplit(SEP, 1)[1] for item in link.owed[lease].items]


def owed(link: Link, lease: LaneLease, outcome: Outcome) -> Owed:
    goes_on = settle(lease, outcome)
    release = link.owed[lease].release
    assert goes_on == (release == "keep") == (lease.lane in link.leases)
    return "".join(verdict[:1] if verdict[:1] == "p" else verdict for verdict in verdicts(link, lease)), release


def test_no_outcome_is_without_a_row() -> None:
    assert {type(outcome) for outcome, _ in TABLE} == set(get_args(Outcome))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("outcome", "expected"), TABLE, ids=[repr(outcome) for outcome, _ in TABLE])
def test_what_is_owed_of_an_outcome_by_the_policy_of_its_pool(
    outcome: Outcome, expected: dict[str, Owed], policy: str
) -> None:
    link = Link(policy=Policy(policy, PARK_AFTER))
    assert owed(link, lease_on(link, 2), outcome) == expected[policy]


@pytest.mark.parametrize("outcome", [Delivered(), Failed("no", retry_s=7)], ids=["delivered", "skipped"])
def test_outcomes_gather_until_the_last_of_a_lease_which_gives_it_back(outcome: Outcome) -> None:
    link = Link(policy=Policy("skip"))
    lease = lease_on(link, 3)
    releases = []
    for number in range(3):
        assert lease.entry.message_id == f"mg{number}"
        assert settle(lease, outcome) == (number < 2)
        releases.append(link.owed[lease].release)
    assert releases == ["keep", "keep", "ready"]
    assert len(verdicts(link, lease)) == 3


@pytest.mark.parametrize(
    ("pool", "message", "draining", "expected"),
    [
        ("return", "skip", False, skipped(7_000)),
        ("skip", "hold", False, ("", in_place(7_000))),
        ("hold", "return", False, returned(7_000)),
        ("hold", "", True, returned(7_000)),
        ("return", "hold", True, returned(7_000)),
        ("skip", "", True, skipped(7_000)),
    ],
)
def test_a_message_asks_for_itself_and_a_pool_that_drains_holds_nothing(
    pool: str, message: str, draining: bool, expected: Owed
) -> None:
    link = Link(policy=Policy(pool, draining=draining))
    assert owed(link, lease_on(link, 2, policy=message), Failed("HTTP 500", 7, 500)) == expected


@pytest.mark.parametrize(
    ("outcome", "tries", "expected"),
    [
        (Failed("HTTP 500", 7, 500), PARK_AFTER - 2, ("", in_place(7_000))),
        (Failed("HTTP 500", 7, 500), PARK_AFTER - 1, ASIDE),
        (Failed("HTTP 500", 7, 500), PARK_AFTER + 5, ASIDE),
        (Failed("HTTP 429", 7, 429), PARK_AFTER + 5, ("", "7000")),
        (Unreachable("refused"), PARK_AFTER + 5, ("", "30000")),
        (NotSent("its breaker is open"), PARK_AFTER + 5, ("", "30000")),
    ],
)
def test_put_aside_is_what_an_endpoint_failed_often_enough(outcome: Outcome, tries: int, expected: Owed) -> None:
    link = Link(policy=Policy("park", PARK_AFTER))
    assert owed(link, lease_on(link, 2, tries=tries), outcome) == expected


@pytest.mark.parametrize(
    ("source_holds_groups", "retry_s", "release"),
    [
        (True, 7, failed(CASCADE_MS, "b", "q")),
        (True, 60, failed(CASCADE_MS, "b", "q")),
        (False, 7, failed(CASCADE_MS, "b")),
        (False, 60, failed(60_000, "b")),
    ],
)
def test_siblings_come_back_no_sooner_than_their_head_where_the_source_does_not_hold_them(
    source_holds_groups: bool, retry_s: int, release: str
) -> None:
    link = Link(policy=Policy("return"))
    lease = lease_on(link, 2, source_holds_groups=source_holds_groups)
    assert owed(link, lease, Failed("HTTP 500", retry_s, 500)) == (nack(retry_s * 1000), release)


def test_what_is_put_aside_says_why_and_which_message_it_is() -> None:
    link = Link("POOL")
    lease = lease_on(link)
    settle(lease, Uncallable("not a URL that can be called"))
    letter = msgspec.json.decode(verdicts(link, lease)[0].removeprefix("p"))
    told = {"messageId": "mg0", "poolCode": "POOL", "reason": "not a URL that can be called"}
    assert told.items() <= letter.items()
