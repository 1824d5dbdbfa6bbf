"""Names of topics and subscriptions, and ids of messages."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.errors import InvalidArgument
from fleet.broker.names import check_subscription_name, check_topic_name, message_id

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@pytest.mark.parametrize("check", [check_topic_name, check_subscription_name])
@pytest.mark.parametrize(
    "name", ["q", "test-topic", "test-sub", "sub-1", "orders", "user-events", "A", "a.b_c~d+e%20", "x" * 255, "Goog"]
)
def test_names_of_the_seed_short_ones_and_those_of_pubsub_are_taken(check: Callable[[object], str], name: str) -> None:
    assert check(name) == name


@given(st.text(st.sampled_from(_LETTERS + "0123456789-_.~+%"), max_size=254), st.sampled_from("aZ"))
def test_what_pubsub_takes_is_taken(rest: str, first: str) -> None:
    assert check_topic_name(first + rest) == first + rest


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "it is empty"),
        ("x" * 256, f"{'x' * 20}… has 256 characters, the limit is 255"),
        ("x" * 254 + "/", f"'{'x' * 254}/' holds something other than letters, digits and - _ . ~ + %"),
        ("1st", "'1st' does not begin with a letter"),
        ("-x", "'-x' does not begin with a letter"),
        ("éa", "'éa' does not begin with a letter"),
        ("a b", "'a b' holds something other than letters, digits and - _ . ~ + %"),
        ("a/b", "'a/b' holds something other than letters, digits and - _ . ~ + %"),
        ("a}b", "'a}b' holds something other than letters, digits and - _ . ~ + %"),
        ("a\n", "'a\\n' holds something other than letters, digits and - _ . ~ + %"),
        ("aé", "'aé' holds something other than letters, digits and - _ . ~ + %"),
        ("google", "google begins with goog, which is reserved"),
        (7, "must be text, is int"),
        (None, "must be text, is NoneType"),
    ],
)
def test_any_other_name_is_refused_with_its_reason(name: object, reason: str) -> None:
    with pytest.raises(InvalidArgument) as topic:
        check_topic_name(name)
    with pytest.raises(InvalidArgument) as subscription:
        check_subscription_name(name)
    assert topic.value.code == 3
    assert topic.value.message == f"Invalid topic name: {reason}"
    assert subscription.value.message == f"Invalid subscription name: {reason}"


_PLACES = st.tuples(
    st.sampled_from(["t/a", "t/ab", "t/1/a"]), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12)
)


@given(_PLACES, _PLACES)
def test_two_messages_have_one_id_only_if_they_are_one(
    one: tuple[str, int, int, int], other: tuple[str, int, int, int]
) -> None:
    assert (message_id(*one) == message_id(*other)) == (one == other)


@given(_PLACES)
def test_an_id_is_a_uuid(place: tuple[str, int, int, int]) -> None:
    found = uuid.UUID(message_id(*place))
    assert str(found) == message_id(*place)
    assert (found.version, found.variant) == (8, uuid.RFC_4122)


def test_an_id_that_was_told_once_comes_out_the_same_for_ever() -> None:
    assert message_id("t/orders", 1, 0, 42) == "2f130f74-a785-854f-8f1e-7ce0bc8d0d31"
