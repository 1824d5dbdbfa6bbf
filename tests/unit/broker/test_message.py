"""Messages of a topic: what may be published (BR-017), and how it is stored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.errors import DataLoss, InvalidArgument
from fleet.broker.message import (
    MAX_MESSAGE_BYTES,
    METADATA_BYTES,
    Header,
    Message,
    PulledMessage,
    checked,
    checked_message,
    pack,
    time_of,
    unpack,
)

# Publishing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_as",
    [
        Message(b"Hello", {"a": "1"}, "user-1"),
        {"data": b"Hello", "attributes": {"a": "1"}, "ordering_key": "user-1"},
        {"data": b"Hello", "attributes": {"a": "1"}, "orderingKey": "user-1"},
        {"data": bytearray(b"Hello"), "attributes": {"a": "1"}, "orderingKey": "user-1"},
        {"data": memoryview(b"Hello"), "attributes": {"a": "1"}, "ordering_key": "user-1", "orderingKey": None},
    ],
)
def test_a_message_is_given_as_itself_or_as_a_mapping_in_either_spelling(given_as: object) -> None:
    found = checked_message(given_as)
    assert found == Message(b"Hello", {"a": "1"}, "user-1")
    assert type(found.data) is bytes


def test_the_message_of_the_seeds_examples_is_taken_and_what_publishing_sets_anew_is_not_kept() -> None:
    given_as = {
        "id": "msg-1",
        "data": b"Hello",
        "attributes": {},
        "publishTime": datetime.now(UTC),
        "orderingKey": None,
        "deliveryAttempt": 1,
        "length": 5,
    }
    assert checked_message(given_as) == Message(b"Hello")


def test_an_empty_ordering_key_is_none() -> None:
    assert checked_message(Message(b"x", {}, "")).ordering_key is None


def test_what_the_caller_changes_afterwards_changes_nothing() -> None:
    attributes, data = {"a": "1"}, bytearray(b"x")
    message = checked_message({"data": data, "attributes": attributes})
    attributes["a"], data[0] = "2", 0
    assert message == Message(b"x", {"a": "1"})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"data": "Hello"}, "data is text and must be bytes: encode it, data=text.encode()"),
        (Message("Hello"), "data is text and must be bytes: encode it, data=text.encode()"),  # type: ignore[arg-type]
        ({"data": 7}, "data must be bytes, is int"),
        ({"data": b"", "attributes": []}, "attributes must be a mapping, is list"),
        ({"attributes": {"a": 1}}, "attribute 'a' must be text, is int"),
        ({"attributes": {"a": None}}, "attribute 'a' must be text, is NoneType"),
        ({"attributes": {"a": b"x"}}, "attribute 'a' must be text, is bytes"),
        ({"attributes": {1: "a"}}, "attribute key 1 must be text, is int"),
        ({"attributes": {"": "a"}}, "an attribute key is empty"),
        ({"attributes": {"goog": "a"}}, "attribute key 'goog' begins with goog, which is reserved"),
        ({"attributes": {"google": "a"}}, "attribute key 'google' begins with goog, which is reserved"),
        ({"attributes": {"googclient_x": "a"}}, "attribute key 'googclient_x' begins with goog, which is reserved"),
        ({"attributes": {"k" * 257: ""}}, f"attribute key '{'k' * 40}…' has 257 bytes, the limit is 256"),
        ({"attributes": {"é" * 129: ""}}, f"attribute key '{'é' * 40}…' has 258 bytes, the limit is 256"),
        ({"attributes": {"a": "v" * 1025}}, "the value of attribute 'a' has 1025 bytes, the limit is 1024"),
        ({"attributes": {"a": "é" * 513}}, "the value of attribute 'a' has 1026 bytes, the limit is 1024"),
        (
            {"attributes": {"a": "\ud800"}},
            "the value of attribute 'a' holds half a surrogate pair, which UTF-8 cannot write",
        ),
        ({"ordering_key": 7}, "ordering_key must be text, is int"),
        ({"ordering_key": "k" * 1025}, "ordering_key has 1025 bytes, the limit is 1024"),
        ({"ordering_key": "\x1e1"}, "ordering_key holds a control character"),
        ({"ordering_key": "a\x1fb"}, "ordering_key holds a control character"),
        ({"atributes": {}}, "a message: unknown name 'atributes', did you mean attributes?"),
        ({"orderinKey": ""}, "a message: unknown name 'orderinKey', did you mean ordering_key?"),
        ({7: ""}, "a message: unknown name 7"),
        (
            {"ordering_key": "a", "orderingKey": "b"},
            "a message: ordering_key is given twice, the second time as 'orderingKey'",
        ),
        (b"Hello", "a message must be a mapping, is bytes"),
    ],
)
def test_a_wrong_message_is_refused_with_its_reason(wrong: object, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        checked_message(wrong)
    assert (refused.value.code, refused.value.message) == (3, reason)


@pytest.mark.parametrize(
    "attributes", [{"k" * 256: ""}, {"é" * 128: ""}, {"a": "v" * 1024}, {"a": "é" * 512}, {"Goog": "a"}, {"agoog": "a"}]
)
def test_attributes_at_the_limits_are_taken(attributes: Mapping[str, str]) -> None:
    assert checked_message({"attributes": attributes}).attributes == attributes


def test_data_attributes_key_and_metadata_together_have_10_mb_and_no_byte_more() -> None:
    rest = METADATA_BYTES + len("é".encode()) + len("v") + len("ö".encode())
    data = bytes(MAX_MESSAGE_BYTES - rest)
    assert MAX_MESSAGE_BYTES == 10 * 1024 * 1024
    assert checked_message({"data": data, "attributes": {"é": "v"}, "ordering_key": "ö"}).data == data
    with pytest.raises(InvalidArgument, match=r"the message has 10485761 bytes .*, the limit is 10485760"):
        checked_message({"data": data, "attributes": {"é": "vv"}, "ordering_key": "ö"})


def test_of_a_publish_the_first_wrong_message_is_named_by_its_place() -> None:
    with pytest.raises(InvalidArgument, match="message 1: an attribute key is empty"):
        checked([{"data": b"a"}, {"attributes": {"": "x"}}, {"data": "text"}])


def test_a_publish_comes_back_whole_and_in_its_order() -> None:
    found = checked(iter([{"data": b"a"}, Message(b"b"), {"data": b"c"}]))
    assert [message.data for message in found] == [b"a", b"b", b"c"]
    assert checked([]) == []


@pytest.mark.parametrize("wrong", [Message(b"x"), {"data": b"x"}, "x", b"x", None, 7])
def test_one_message_alone_is_not_a_list_of_messages(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="messages must be a list of messages, is"):
        checked(wrong)


# Pulled ---------------------------------------------------------------------------------------------


def test_a_pulled_message_knows_its_length() -> None:
    pulled = PulledMessage(
        id="1", data=b"Hello", attributes={}, publish_time=time_of(0), delivery_attempt=1, ack_id="a"
    )
    assert (pulled.length, pulled.ordering_key) == (5, None)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1)))
def test_a_publish_time_keeps_its_microseconds_and_names_its_zone(moment: datetime) -> None:
    aware = moment.replace(tzinfo=UTC)
    whole = aware - datetime(1970, 1, 1, tzinfo=UTC)
    published_us = (whole.days * 86_400 + whole.seconds) * 1_000_000 + whole.microseconds
    assert time_of(published_us) == aware
    assert time_of(published_us).tzinfo is UTC


# Stored ---------------------------------------------------------------------------------------------

_HEADERS = st.builds(
    Header,
    attributes=st.dictionaries(st.text(), st.text(max_size=200), max_size=4),
    key=st.text(max_size=20),
    published_us=st.integers(0, 2**53),
    id=st.text(max_size=36),
    origin=st.text(max_size=20),
)


@given(_HEADERS, st.binary())
def test_what_is_unpacked_is_what_was_packed(header: Header, body: bytes) -> None:
    assert unpack(pack(header, body)) == (header, body)


def test_a_message_without_a_header_costs_one_byte() -> None:
    assert pack(Header(), b"body") == "tbody"
    assert pack(Header(), "\u00fc".encode()) == "t\u00fc"


def test_what_is_not_text_is_stored_as_base64() -> None:
    assert pack(Header(), b"\xff\xfe") == "b//4="


@pytest.mark.parametrize("size", [0, 9, 10, 100, 16_384, 300_000])
def test_a_header_of_any_length_is_found_again(size: int) -> None:
    for letter in ("o", "\u00fc", ":"):
        header = Header(origin=letter * size)
        assert unpack(pack(header, b"body")) == (header, b"body")


def test_a_header_names_only_what_there_is() -> None:
    """What is stored is a promise: a later version reads it too."""
    assert pack(Header(attributes={"k": "v"}), b"B") == 'T15:{"a":{"k":"v"}}B'
    every = Header(attributes={"k": "v"}, key="g", published_us=7, id="i", origin="o")
    assert pack(every, b"\xff") == 'B45:{"a":{"k":"v"},"k":"g","t":7,"i":"i","o":"o"}/w=='


def test_a_field_of_a_later_version_is_overlooked() -> None:
    assert unpack('T13:{"z":1,"t":7}B') == (Header(published_us=7), b"B")


@pytest.mark.parametrize("torn", ["", "x", "T", "T5", "T5:{", "Tx:{}", "T2:[]", 'T7:{"a":1}', "b/", "B2:{}/"])
def test_what_was_not_packed_is_data_loss(torn: str) -> None:
    with pytest.raises(DataLoss) as refused:
        unpack(torn)
    assert refused.value.code == 15


@given(st.text(max_size=40))
def test_whatever_is_stored_it_is_a_message_or_data_loss(stored: str) -> None:
    found: Any = None
    try:
        found = unpack(stored)
    except DataLoss:
        return
    assert stored[0] in "bB" or stored.encode().endswith(found[1])
