"""AWS JSON in, where it is not as it should be."""

from __future__ import annotations

import pytest

from fleet.broker.sqs import json
from fleet.broker.sqs.errors import SqsError, no_such_queue


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"}",
        b"[]",
        b"5",
        b'"text"',
        b"null",
        b"\xff",
        b"\xef\xbb\xbf{}",
        b'{"MessageBody":"\xff"}',
        b'{"MessageBody":"\\ud800"}',
        b'{"MessageBody":5}',
        b'{"MessageBody":["x"]}',
        b'{"DelaySeconds":"5"}',
        b'{"DelaySeconds":5.5}',
        b'{"DelaySeconds":true}',
        b'{"DelaySeconds":99999999999}',
        b'{"DelaySeconds":1e999}',
        b'{"MessageAttributes":[]}',
        b'{"MessageAttributes":{"a":"x"}}',
        b'{"MessageAttributes":{"a":{"BinaryValue":"no base64!"}}}',
        b'{"MessageAttributes":{"a":{"StringListValues":[1]}}}',
        b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
        b'{"x":' + b'{"a":' * 200_000,
    ],
    ids=lambda body: body[:40],
)
def test_what_is_no_request_is_a_serialization_exception(body: bytes) -> None:
    with pytest.raises(SqsError) as refused:
        json.decode("SendMessage", body)
    assert (refused.value.type, refused.value.status) == ("SerializationException", 400)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"DelaySeconds":"5"}', "STRING_VALUE can not be converted to an Integer"),
        (b'{"MessageBody":5}', "NUMBER_VALUE can not be converted to a String"),
        (b'{"MessageBody":{}}', "Start of structure or map found where not expected."),
        (b'{"MessageBody":[]}', "Start of list found where not expected."),
    ],
)
def test_a_wrong_type_is_told_as_aws_tells_it(body: bytes, told: str) -> None:
    with pytest.raises(SqsError) as refused:
        json.decode("SendMessage", body)
    assert refused.value.message == told


def test_null_says_as_much_as_nothing() -> None:
    body = b'{"MessageBody":"x","DelaySeconds":null,"MessageAttributes":{"a":null,"b":{"StringValue":null}}}'
    assert json.decode("SendMessage", body) == {"MessageBody": "x", "MessageAttributes": {"b": {}}}


def test_the_word_null_in_a_body_is_a_word() -> None:
    assert json.decode("SendMessage", b'{"MessageBody":"null"}') == {"MessageBody": "null"}


def test_what_is_not_known_is_left_out() -> None:
    assert json.decode("PurgeQueue", b'{"QueueUrl":"u","Else":[1,{"a":2}]}') == {"QueueUrl": "u"}


def test_no_body_is_no_parameters() -> None:
    assert json.decode("ListQueues", b"") == {}


@pytest.mark.parametrize("target", ["", "SendMessage", "AmazonSQS.", "AmazonSQS.Nothing", "AmazonSNS.SendMessage"])
def test_a_target_that_is_none_is_an_unknown_operation(target: str) -> None:
    with pytest.raises(SqsError) as refused:
        json.verb_of(target)
    assert refused.value.type == "UnknownOperationException"


def test_an_error_is_type_and_message() -> None:
    told = b'{"__type":"QueueDoesNotExist","message":"The specified queue does not exist."}'
    assert json.encode_error(no_such_queue()) == told


def test_bytes_go_out_as_base64_and_nothing_as_an_empty_body() -> None:
    assert json.encode({"BinaryValue": b"\x00\xff"}) == b'{"BinaryValue":"AP8="}'
    assert json.encode(None) == b""
    assert json.encode({}) == b"{}"
