"""Where the messages of a batch go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.route import OWN_LANE, Routed, overtaking, route
from fleet.sources.base import Received


def received(broker_id: str, group: str | None = "g", **body: Any) -> Received:
    content = {"id": broker_id, "poolCode": "P", "mediationTarget": "http://127.0.0.1:9/", **body}
    return Received(broker_id, f"handle-{broker_id}", json.dumps(content).encode(), group)


def routed(*batch: Received) -> list[Routed]:
    found, malformed = route(batch, lambda code: code)
    assert not malformed
    return found


def test_a_group_that_the_source_names_goes_before_the_one_in_the_body() -> None:
    (one,) = routed(received("1", "of-source", messageGroupId="of-body"))
    assert (one.pool, one.group, one.lane) == ("P", "of-source", "of-source")


def test_a_message_that_asks_for_no_order_is_a_lane_of_its_own() -> None:
    (one,) = routed(received("1", dispatchMode="IMMEDIATE"))
    assert (one.group, one.lane) == ("g", OWN_LANE + "1")


class Shows:
    """As much of a source as its order asks for."""

    def __init__(self, *, groups: bool, in_order: bool = True) -> None:
        self.holds_groups, self.shows_in_order = groups, in_order


ANY_SOURCE = Shows(groups=False)


@pytest.mark.parametrize(
    ("source", "group", "body", "order"),
    [
        (ANY_SOURCE, "g", {}, "r"),
        (ANY_SOURCE, "g", {"highPriority": True}, "h"),
        (ANY_SOURCE, "g", {"dispatchMode": "BLOCK_ON_ERROR"}, "rhold"),
        (ANY_SOURCE, "g", {"dispatchMode": "IMMEDIATE"}, ""),
        (Shows(groups=True), "g", {}, ""),
        (Shows(groups=True), None, {"messageGroupId": "in-the-body-alone"}, "r"),
        (Shows(groups=False, in_order=False), "g", {}, ""),
    ],
)
def test_who_has_to_see_to_the_order_of_what_comes_again(
    source: Any, group: str | None, body: dict[str, Any], order: str
) -> None:
    (one,) = routed(received("1", group, **body))
    assert one.order(source) == order


@pytest.mark.parametrize("group", ["x" * 129, "two\nlines"])
def test_a_group_that_cannot_be_named_makes_the_message_malformed(group: str) -> None:
    found, malformed = route([received("1", group)], lambda code: code)
    assert (found, len(malformed)) == ([], 1)


@pytest.mark.parametrize(
    ("batch", "verdicts", "early"),
    [
        ("g1 g2 g3", "new new new", []),
        ("g1 g2 g3", "redelivered redelivered new", [2]),
        ("g1 h2 g3", "redelivered new new", [2]),
        ("g1 g2 g3", "new redelivered new", [2]),
        ("g1 g2 g3", "acked copy new", []),
    ],
    ids=[
        "nothing lapsed",
        "behind what is under way",
        "another group goes on",
        "only what is behind",
        "settled before",
    ],
)
def test_what_is_newer_than_a_message_under_way_is_early(batch: str, verdicts: str, early: list[int]) -> None:
    found = routed(*(received(name[1:], name[0]) for name in batch.split()))
    assert list(overtaking(found, verdicts.split())) == early


def test_what_asks_for_no_order_is_never_early() -> None:
    found = routed(received("1"), received("2", dispatchMode="IMMEDIATE"), received("3", None, messageGroupId="g"))
    assert list(overtaking(found, ["redelivered", "new", "new"])) == []


@pytest.mark.parametrize("broker_id", ["a\x1fb", "a\x1eb", "a\nb", "\x00"])
def test_an_id_of_the_queue_that_would_break_our_records_is_a_bad_message(broker_id: str) -> None:
    found, malformed = route([received(broker_id), received("good")], lambda code: code)
    assert [one.received.broker_id for one in found] == ["good"]
    (bad,) = malformed
    assert "unprintable" in bad.reason
