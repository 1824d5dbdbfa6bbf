from __future__ import annotations

import re
from pathlib import Path

import pytest

import fleet
from fleet.words import number


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
