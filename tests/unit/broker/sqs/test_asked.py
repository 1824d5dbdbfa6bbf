"""What a receive asks for."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.broker.sqs import asked, ranges
from fleet.broker.sqs.errors import SqsError

VALUE = {"DataType": "String", "StringValue": "v"}
HELD = {"a": VALUE, "b.one": VALUE, "b.two": VALUE, "bar": VALUE}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ([], []),
        (["All"], ["a", "b.one", "b.two", "bar"]),
        ([".*"], ["a", "b.one", "b.two", "bar"]),
        (["a"], ["a"]),
        (["a", "nothing"], ["a"]),
        (["b.*"], ["b.one", "b.two", "bar"]),
        (["bar.*", "a"], ["a", "bar"]),
        (["*"], []),
        (["A"], []),
    ],
)
def test_attributes_are_asked_for_by_name_by_prefix_or_all(names: list[str], found: list[str]) -> None:
    assert list(asked.message_attributes(names, HELD)) == found


def test_the_older_parameter_of_system_attributes_counts_too() -> None:
    params = {"MessageSystemAttributeNames": ["SenderId"], "AttributeNames": ["SentTimestamp"]}
    assert asked.system_attributes(params) == {"SenderId", "SentTimestamp"}
    assert asked.system_attributes({"AttributeNames": ["All"]}) == asked.SYSTEM
    assert asked.system_attributes({}) == frozenset()


def test_a_system_attribute_that_is_none_is_unknown() -> None:
    with pytest.raises(SqsError) as refused:
        asked.system_attributes({"AttributeNames": ["Foobar"]})
    assert refused.value.message == "Unknown Attribute Foobar."


# Numbers -------------------------------------------------------------------------------------------


def test_an_explicit_zero_beats_the_default() -> None:
    assert ranges.wait_s({}, 20) == 20
    assert ranges.wait_s({"WaitTimeSeconds": 0}, 20) == 0
    assert ranges.visibility_s({}, 30) == 30
    assert ranges.visibility_s({"VisibilityTimeout": 0}, 30) == 0
    assert ranges.changed_visibility_s({"VisibilityTimeout": 0}) == 0
    assert ranges.messages({}) == 1


def test_a_page_has_no_end_unless_it_is_asked_for() -> None:
    assert ranges.results({}) is None
    assert ranges.results({"MaxResults": 1000}) == 1000


def test_a_list_of_move_tasks_is_the_latest_one_unless_more_are_asked_for() -> None:
    assert ranges.tasks({}) == 1
    assert ranges.tasks({"MaxResults": 10}) == 10
    assert ranges.moved_a_second({}) is None
    assert ranges.moved_a_second({"MaxNumberOfMessagesPerSecond": 500}) == 500


@pytest.mark.parametrize(
    ("rule", "params"),
    [
        (ranges.messages, {"MaxNumberOfMessages": 0}),
        (ranges.changed_visibility_s, {"VisibilityTimeout": -1}),
        (ranges.changed_visibility_s, {"VisibilityTimeout": 43_201}),
        (ranges.results, {"MaxResults": 0}),
        (ranges.results, {"MaxResults": 1001}),
        (ranges.tasks, {"MaxResults": 0}),
        (ranges.tasks, {"MaxResults": 11}),
        (ranges.moved_a_second, {"MaxNumberOfMessagesPerSecond": 0}),
        (ranges.moved_a_second, {"MaxNumberOfMessagesPerSecond": 501}),
        (lambda params: ranges.visibility_s(params, 30), {"VisibilityTimeout": 43_201}),
    ],
)
def test_a_number_outside_its_range_is_refused(rule: Any, params: dict[str, int]) -> None:
    with pytest.raises(SqsError) as refused:
        rule(params)
    name, value = next(iter(params.items()))
    assert refused.value.code == "InvalidParameterValue"
    assert refused.value.message.startswith(f"Value {value} for parameter {name} is invalid. Reason: ")


def test_a_change_of_visibility_needs_one() -> None:
    with pytest.raises(SqsError) as refused:
        ranges.changed_visibility_s({})
    assert refused.value.code == "MissingParameter"
