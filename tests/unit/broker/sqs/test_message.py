"""What a message may be."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.sqs import batch, md5, message
from fleet.broker.sqs.attributes import Attributes
from fleet.broker.sqs.errors import SqsError

STANDARD = Attributes()
FIFO = Attributes(fifo=True)
TEXT = {"DataType": "String", "StringValue": "v"}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}


def checked(queue: Attributes = STANDARD, **params: Any) -> message.Sent:
    return message.check({"MessageBody": "x", **params}, queue)


def refused(queue: Attributes = STANDARD, **params: Any) -> SqsError:
    with pytest.raises(SqsError) as found:
        checked(queue, **params)
    return found.value


def attribute(name: str = "a", **value: Any) -> dict[str, Any]:
    return {"MessageAttributes": {name: value}}


def is_allowed(character: str) -> bool:
    code = ord(character)
    return code in (9, 10, 13) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


@given(st.text(st.characters(), min_size=1, max_size=30))
def test_a_body_has_the_characters_of_xml_and_no_others(body: str) -> None:
    if all(map(is_allowed, body)):
        assert checked(MessageBody=body).body == body.encode()
    else:
        assert refused(MessageBody=body).code == "InvalidMessageContents"


@pytest.mark.parametrize("code", [0, 8, 11, 12, 14, 31, 0xD800, 0xDFFF, 0xFFFE, 0xFFFF])
def test_a_body_without_a_place_in_xml_is_refused(code: int) -> None:
    assert refused(MessageBody=f"ü{chr(code)}").code == "InvalidMessageContents"


def test_names_types_and_values_weigh_and_system_attributes_do_not() -> None:
    queue = Attributes(message_bytes=1024)
    given_ = attribute("ää", DataType="String.ü", StringValue="1" * 10)
    weight = 4 + 9 + 10
    sent = checked(queue, MessageBody="x" * (1024 - weight), MessageSystemAttributes=TRACE, **given_)
    assert sent.size_bytes == 1024
    assert message.size_bytes({"MessageBody": "x" * (1024 - weight), **given_}) == 1024
    assert refused(queue, MessageBody="x" * (1025 - weight), **given_).code == "InvalidParameterValue"


@pytest.mark.parametrize(
    "value",
    [
        TEXT,
        {"DataType": "Number", "StringValue": "-1.5e10"},
        {"DataType": "Number.int", "StringValue": "9" * 38},
        {"DataType": "Binary", "BinaryValue": b"\x00"},
        {"DataType": "Binary.png", "BinaryValue": b"\xff"},
        {"DataType": "String." + "x" * 249, "StringValue": "ü\n"},
    ],
)
def test_an_attribute_has_a_type_and_a_value_that_fits(value: dict[str, Any]) -> None:
    assert checked(MessageAttributes={"a": value}).attributes == {"a": value}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "must contain a non-empty message attribute type"),
        ({"DataType": "", "StringValue": "v"}, "must contain a non-empty message attribute type"),
        ({"DataType": "string", "StringValue": "v"}, "You must use only the following supported type prefixes"),
        ({"DataType": "Strings", "StringValue": "v"}, "You must use only the following supported type prefixes"),
        ({"DataType": "String." + "x" * 250, "StringValue": "v"}, "types must be shorter than 256 Bytes"),
        ({"DataType": "String"}, "must contain a non-empty value of type 'String'"),
        ({"DataType": "Binary", "BinaryValue": b""}, "must contain a non-empty value of type 'Binary'"),
        ({"DataType": "Binary", "StringValue": "v"}, "must contain a non-empty value of type 'Binary'"),
        ({"DataType": "String", "BinaryValue": b"v"}, "must contain a non-empty value of type 'String'"),
        ({"DataType": "String", "StringValue": "v", "BinaryValue": b"v"}, "has a BinaryValue"),
        ({"DataType": "Number", "StringValue": "five"}, "Can't cast the value of message (user) attribute 'a'"),
        ({"DataType": "Number", "StringValue": "nan"}, "Can't cast the value of message (user) attribute 'a'"),
        ({"DataType": "Number", "StringValue": "1\n"}, "Can't cast the value of message (user) attribute 'a'"),
        ({"DataType": "String", "StringValue": "\x00"}, "Invalid characters found"),
        ({"DataType": "String.\x00", "StringValue": "v"}, "Invalid characters found"),
        ({"DataType": "String", "StringListValues": ["v"]}, "list values in SendMessage operation are not supported"),
    ],
)
def test_an_attribute_that_cannot_be_says_why(value: dict[str, Any], told: str) -> None:
    assert told in refused(MessageAttributes={"a": value}).message


@pytest.mark.parametrize(
    "name",
    ["", "x" * 257, "a b", "a/b", "日", "aws.a", "AWS.a", "amazon.a", ".a", "a.", "a..b", "a\n"],
)
def test_a_name_that_an_attribute_cannot_have(name: str) -> None:
    assert refused(MessageAttributes={name: TEXT}).code == "InvalidParameterValue"


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 256, "aws", "awsome", "größe"])
def test_a_name_that_an_attribute_can_have(name: str) -> None:
    assert name in checked(MessageAttributes={name: TEXT}).attributes


def test_there_are_at_most_ten_attributes() -> None:
    assert len(checked(MessageAttributes={f"a{i}": TEXT for i in range(10)}).attributes) == 10
    told = "Number of message attributes [11] exceeds the allowed maximum [10]."
    assert refused(MessageAttributes={f"a{i}": TEXT for i in range(11)}).message == told


def test_the_trace_header_is_the_one_system_attribute() -> None:
    assert checked(MessageSystemAttributes=TRACE).trace == "Root=1"
    assert "AWSTraceHeader" in refused(MessageSystemAttributes={"SenderId": TEXT}).message
    number = {"AWSTraceHeader": {"DataType": "Number", "StringValue": "1"}}
    assert refused(MessageSystemAttributes=number).code == "InvalidParameterValue"
    assert refused(MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String"}}).code == "InvalidParameterValue"


def test_a_standard_queue_takes_a_group_and_no_deduplication_id() -> None:
    assert checked(MessageGroupId="g").group == "g"
    told = (
        "Value d for parameter MessageDeduplicationId is invalid."
        " Reason: The request include parameter that is not valid for this queue type."
    )
    assert refused(MessageDeduplicationId="d").message == told


def test_content_based_deduplication_hashes_the_body_alone() -> None:
    queue = Attributes(fifo=True, content_dedup=True)
    sent = checked(queue, MessageBody="ü", MessageGroupId="g", **attribute(**TEXT))
    assert sent.dedup_id == sha256("ü".encode()).hexdigest()
    assert checked(queue, MessageGroupId="g", MessageDeduplicationId="mine").dedup_id == "mine"


@pytest.mark.parametrize("text", ["x" * 128, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~aZ9"])
def test_an_id_has_letters_digits_and_punctuation(text: str) -> None:
    sent = checked(FIFO, MessageGroupId=text, MessageDeduplicationId=text)
    assert (sent.group, sent.dedup_id) == (text, text)


@pytest.mark.parametrize("text", ["ü", "a\n", "\x7f", "\t"])
def test_an_id_has_no_other_character(text: str) -> None:
    assert refused(FIFO, MessageGroupId=text, MessageDeduplicationId="d").code == "InvalidParameterValue"
    assert refused(FIFO, MessageGroupId="g", MessageDeduplicationId=text).code == "InvalidParameterValue"


def test_a_delay_is_the_queues_own_unless_it_is_given() -> None:
    assert checked().delay_s is None
    assert checked(DelaySeconds=0).delay_s == 0
    assert checked(DelaySeconds=900).delay_s == 900
    told = "Value 901 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and <= 900."
    assert refused(DelaySeconds=901).message == told
    assert refused(DelaySeconds=-1).code == "InvalidParameterValue"


def test_a_fifo_queue_takes_no_delay_but_its_own() -> None:
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    assert checked(FIFO, DelaySeconds=0, **ids).delay_s is None
    assert refused(FIFO, DelaySeconds=1, **ids).code == "InvalidParameterValue"


def test_a_receipt_has_the_digests_of_what_there_is() -> None:
    assert checked().receipt() == {"MD5OfMessageBody": md5.of_body(b"x")}
    sent = checked(MessageSystemAttributes=TRACE, **attribute(**TEXT))
    assert sent.receipt() == {
        "MD5OfMessageBody": md5.of_body(b"x"),
        "MD5OfMessageAttributes": md5.of_attributes({"a": TEXT}),
        "MD5OfMessageSystemAttributes": md5.of_attributes(TRACE),
    }


# Batches -------------------------------------------------------------------------------------------


def test_a_batch_may_weigh_a_mebibyte() -> None:
    batch.check_sent(
        [{"Id": "a", "MessageBody": "x" * (2**20 - 3), **attribute(DataType="b", StringValue="c")}], STANDARD
    )


def test_a_batch_without_an_id_says_which_entry() -> None:
    with pytest.raises(SqsError) as found:
        batch.check("SendMessageBatch", {"Entries": [{"Id": "a"}, {}]})
    assert found.value.message == "The request must contain the parameter SendMessageBatchRequestEntry.2.Id."


def test_a_batch_that_is_no_batch_is_empty() -> None:
    with pytest.raises(SqsError) as found:
        batch.check("DeleteMessageBatch", {})
    assert found.value.type == "EmptyBatchRequest"


def test_ten_distinct_ids_are_a_batch() -> None:
    entries = [{"Id": f"{i}_-"} for i in range(10)]
    assert batch.check("DeleteMessageBatch", {"Entries": entries}) == entries


def test_a_batch_for_a_fifo_queue_fails_whole_without_deduplication_ids() -> None:
    with pytest.raises(SqsError) as found:
        batch.check_sent([{"MessageBody": "x", "MessageGroupId": "g"}], FIFO)
    assert found.value.message.startswith("The queue should either have ContentBasedDeduplication enabled")
    batch.check_sent([{"MessageBody": "x", "MessageGroupId": "g"}], Attributes(fifo=True, content_dedup=True))
