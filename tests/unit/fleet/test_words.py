from __future__ import annotations

import re
from pathlib import Path

import pytest

import fleet
from fleet.words import at, number, read_moment, span, unnamed, utc


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("message",), "0 messages"),
        (1, ("dead letter",), "1 dead letter"),
        (2, ("message",), "2 messages"),
        (12_345, ("message",), "12,345 messages"),
        (1, ("group waits", "groups wait"), "1 group waits"),
        (3, ("delivery is", "deliveries are"), "3 deliveries are"),
    ],
)
def test_one_of_a_thing_and_several_are_said_as_people_do(count: int, words: tuple[str, ...], said: str) -> None:
    assert number(count, *words) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0 s"), (0.0421, "42 ms"), (1, "1 s"), (59.4, "59 s"), (60, "1 min"), (182, "3 min 2 s"),
        (3600, "1 h"), (7_320, "2 h 2 min"), (86_400, "1 d"), (100_000, "1 d 3 h"),
    ],
)  # fmt: skip
def test_a_stretch_of_time_is_said_in_its_two_largest_units(seconds: float, said: str) -> None:
    assert span(seconds) == said


def test_a_moment_is_written_in_one_way_for_programs_and_in_one_for_people() -> None:
    ms = 1_769_860_800_123
    assert utc(ms) == "2026-01-31T12:00:00.123Z"
    assert at(ms) == "at 2026-01-31 12:00:00 UTC"
    assert utc() > utc(ms)


def test_no_text_for_people_counts_a_noun_in_any_other_way() -> None:
    # `{n} messages` of an f-string is right until there is one of them.
    nouns = "messages|groups|pools|queues|letters|jobs|events|workers|deliveries|duplicates|epochs|nodes|syncers"
    counted = re.compile(r"\{[^{}]+\} (?:[a-z]+ )?(?:" + nouns + r")\b")
    root = Path(fleet.__file__).parent
    found = [
        f"{path.relative_to(root)}: {match[0]}"
        for path in sorted(root.rglob("*.py"))
        for match in counted.finditer(path.read_text())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-02", 86_400_000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T01:00:01.5+01:00", 1500),
        ("1969-12-31T23:59:59Z", -1000),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
    ],
)
def test_a_time_that_names_no_zone_is_utc(text: str, ms: int) -> None:
    assert read_moment(text) == ms


@pytest.mark.parametrize(
    ("why", "rest"),
    [
        ("fleet://q: it is away", "it is away"),
        ("queue fleet://q: it is away", "it is away"),
        ("queue fleet://q2: it is away", "queue fleet://q2: it is away"),
        ("SQS queue fleet://q: it is away", "SQS queue fleet://q: it is away"),
    ],
)
def test_a_queue_is_not_named_twice(why: str, rest: str) -> None:
    assert unnamed("fleet://q", why) == rest
