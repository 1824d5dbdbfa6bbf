"""What doors counted, as metrics."""

from __future__ import annotations

from typing import Any

from fleet.broker.sqs.counts import DoorCounts
from fleet.metrics.broker import MOST_LABELS
from fleet.metrics.exposition import Exposition
from fleet.metrics.sqs import add_sqs


async def shown(counts: DoorCounts, **those: Any) -> dict[str, str]:
    page = Exposition()
    add_sqs(page, await counts.counters.all(), **those)
    return dict(line.rsplit(" ", 1) for line in page.text().splitlines() if line[0] != "#")


async def test_512_queues_have_labels_and_the_rest_is_other() -> None:
    counts = DoorCounts()
    names = [f"q-{number:04}" for number in range(MOST_LABELS + 3)]
    for name in names:
        counts.of_queue(name).sent(0, 1)
        counts.of_queue(name).throttled("Send")
    found = await shown(counts, queues=names)
    for metric, labels in (("messages", 'partition="0",action="sent"'), ("throttled", 'bucket="Send"')):
        of_it = {line: value for line, value in found.items() if line.startswith(f"fleet_sqs_{metric}_total")}
        assert len(of_it) == MOST_LABELS + 1
        assert of_it[f'fleet_sqs_{metric}_total{{queue="{names[MOST_LABELS - 1]}",{labels}}}'] == "1"
        assert of_it[f'fleet_sqs_{metric}_total{{queue="_other",{labels}}}'] == "3"


async def test_a_queue_that_is_gone_has_no_label() -> None:
    counts = DoorCounts()
    counts.of_queue("gone").sent(0, 1)
    assert await shown(counts, queues=["there"]) == {}


async def test_a_door_counts_by_name_only_so_many_queues_and_the_rest_as_others(monkeypatch: Any) -> None:
    monkeypatch.setattr("fleet.broker.sqs.counts._MOST_QUEUES", 1)
    counts = DoorCounts()
    for name in ("a", "b", "a", "c"):
        counts.of_queue(name).sent(0, 1)
    assert await shown(counts) == {
        'fleet_sqs_messages_total{queue="a",partition="0",action="sent"}': "2",
        'fleet_sqs_messages_total{queue="_other",partition="0",action="sent"}': "2",
    }


async def test_requests_are_counted_by_verb_and_outcome() -> None:
    counts = DoorCounts()
    for verb, outcome in (
        ("SendMessage", "ok"),
        ("SendMessage", "ok"),
        ("SendMessage", "throttled"),
        ("", "refused"),
    ):
        counts.request(verb, outcome, 0.25)
    found = await shown(counts)
    assert {line: value for line, value in found.items() if "_requests_" in line} == {
        'fleet_sqs_requests_total{verb="SendMessage",outcome="ok"}': "2",
        'fleet_sqs_requests_total{verb="SendMessage",outcome="throttled"}': "1",
        'fleet_sqs_requests_total{verb="_other",outcome="ok"}': "0",
        'fleet_sqs_requests_total{verb="_other",outcome="refused"}': "1",
    }
    assert found['fleet_sqs_request_seconds_count{verb="SendMessage"}'] == "3"
    assert found['fleet_sqs_request_seconds_sum{verb="SendMessage"}'] == "0.75"
