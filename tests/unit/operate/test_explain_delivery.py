"""What is said of a message that is being delivered, by what its worker told of it last."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.operate.explain_delivery import processing
from fleet.operate.explanation import Explanation
from fleet.process import MOST_DELIVERIES
from fleet.state.entry import Entry
from fleet.state.groups import GroupView

NOW_MS = 1_800_000_000_000
ENTRY = Entry("q", "b", "1", "batch", "g", "g", NOW_MS, "m1", "http://there/", "", True)
VIEW = GroupView(
    "g", "leased", 1, 0, ENTRY, NOW_MS, until_ms=NOW_MS + 5000, worker="w", epoch=str((NOW_MS - 4000) * 1000)
)
TOLD = {
    "pool": "P", "group": "g", "messageId": "m1",
    "attempt": 1, "of": 3, "began": NOW_MS - 2000, "until": NOW_MS + 3000, "asking": True,
}  # fmt: skip


def explained(*processes: dict[str, Any]) -> tuple[Explanation, str]:
    found = processing("message m1", "P", VIEW, [], processes=processes, now_ms=NOW_MS)
    assert (found.subject, found.state) == ("message m1", "PROCESSING")
    return found, " ".join(found.details)


def worker(*deliveries: dict[str, Any]) -> dict[str, Any]:
    return {"name": "w", "httpTimeoutMs": 900_000, "deliveries": deliveries}


def test_it_lasts_since_its_lease_was_granted() -> None:
    _, details = explained()
    assert "Worker w has been delivering its group since 2027-01-15 07:59:56 UTC" in details


def test_of_a_worker_that_is_gone_the_lease_has_to_end() -> None:
    found, details = explained({**worker(TOLD), "name": "another"})
    assert (found.until_ms, found.waits_for) == (
        NOW_MS + 5000, "the lease of worker w to end; another delivers it then",
    )  # fmt: skip
    assert "That worker is gone" in details


def test_an_attempt_under_way_ends_when_it_is_given_up() -> None:
    found, details = explained(worker(TOLD))
    assert (found.until_ms, found.waits_for) == (
        NOW_MS + 3000, "its endpoint to answer worker w, or attempt 1 of 3 to be given up",
    )  # fmt: skip
    assert "attempt 2 of 3 follows" in details


def test_behind_the_last_attempt_comes_the_policy_of_its_pool() -> None:
    _, details = explained(worker({**TOLD, "attempt": 3}))
    assert "it has failed, and the policy of pool P says what follows" in details
    assert "attempt 4" not in details


def test_between_two_attempts_the_next_is_what_it_waits_for() -> None:
    found, details = explained(worker({**TOLD, "asking": False}))
    assert (found.until_ms, found.waits_for) == (NOW_MS + 3000, "attempt 2 of 3, after a pause")
    assert "has failed." in details


@pytest.mark.parametrize("other", [{"pool": "Q"}, {"group": "h"}, {"messageId": "m0"}])
def test_what_its_worker_tells_of_another_message_says_nothing_of_this_one(other: dict[str, str]) -> None:
    found, details = explained(worker({**TOLD, **other}))
    assert found.until_ms == NOW_MS + 900_000
    assert "It began within the last two seconds; an attempt lasts 900 s at most." in details


def test_a_worker_with_more_deliveries_than_it_tells_of_may_deliver_it_for_longer() -> None:
    others = [{**TOLD, "messageId": f"other-{number}"} for number in range(MOST_DELIVERIES)]
    assert f"or is not among the {MOST_DELIVERIES} longest" in explained(worker(*others))[1]
    assert "longest" not in explained(worker(*others[1:]))[1]
