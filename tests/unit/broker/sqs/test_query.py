"""The Query protocol in, in the forms that clients of all ages send, and in those that none should."""

from __future__ import annotations

import pytest

from fleet.broker.sqs import query
from fleet.broker.sqs.errors import SqsError


def decoded(verb: str, form: str) -> dict[str, object]:
    return query.decode(verb, query.pairs(form.encode()))


def test_a_list_is_in_the_order_of_its_numbers_with_or_without_gaps() -> None:
    form = "AttributeName.10=c&AttributeName.2=b&AttributeName.1=a"
    assert decoded("GetQueueAttributes", form) == {"AttributeNames": ["a", "b", "c"]}


def test_older_clients_send_a_list_of_one_without_a_number() -> None:
    assert decoded("GetQueueAttributes", "AttributeName=All") == {"AttributeNames": ["All"]}


@pytest.mark.parametrize("prefix", ["Tag", "Tags"])
def test_a_parameter_may_have_its_own_name_too(prefix: str) -> None:
    form = f"{prefix}.1.Key=k&{prefix}.1.Value=v"
    assert decoded("TagQueue", form) == {"Tags": {"k": "v"}}


def test_the_entries_of_a_batch_come_whole() -> None:
    form = (
        "SendMessageBatchRequestEntry.2.MessageBody=b&SendMessageBatchRequestEntry.1.Id=one"
        "&SendMessageBatchRequestEntry.1.MessageBody=a+%2B+%C3%BC&SendMessageBatchRequestEntry.2.Id=two"
        "&SendMessageBatchRequestEntry.2.DelaySeconds=5"
        "&SendMessageBatchRequestEntry.2.MessageAttribute.1.Name=a.b"
        "&SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.DataType=Binary"
        "&SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.BinaryValue=AP8%3D"
    )
    assert decoded("SendMessageBatch", form) == {
        "Entries": [
            {"Id": "one", "MessageBody": "a + ü"},
            {
                "Id": "two",
                "MessageBody": "b",
                "DelaySeconds": 5,
                "MessageAttributes": {"a.b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"}},
            },
        ]
    }


def test_what_is_not_known_is_left_out() -> None:
    form = "Action=PurgeQueue&Version=2012-11-05&QueueUrl=u&X-Amz-Date=x&QueueUrl.1=y&Nothing.1.a=z"
    assert decoded("PurgeQueue", form) == {"QueueUrl": "u"}


def test_an_empty_value_is_a_value() -> None:
    form = "Attribute.1.Name=Policy&Attribute.1.Value="
    assert decoded("SetQueueAttributes", form) == {"Attributes": {"Policy": ""}}


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ("MessageBody=%FF", "SerializationException"),
        ("%FF=x", "SerializationException"),
        ("MessageBody=" + "&x=1" * 3000, "SerializationException"),
        ("DelaySeconds=x", "InvalidParameterValue"),
        ("DelaySeconds=", "InvalidParameterValue"),
        ("DelaySeconds=5.0", "InvalidParameterValue"),
        ("DelaySeconds=99999999999999999999", "InvalidParameterValue"),
        ("DelaySeconds=%D9%A3", "InvalidParameterValue"),
        ("MessageAttribute.x.Name=a", "SerializationException"),
        ("MessageAttribute.-1.Name=a", "SerializationException"),
        ("MessageAttribute.99999999.Name=a", "SerializationException"),
        ("MessageAttribute.1.Name=a", "MissingParameter"),
        ("MessageAttribute.1.Value.DataType=String", "MissingParameter"),
        ("MessageAttribute=a", "SerializationException"),
        ("MessageAttribute.1.key=a", "SerializationException"),
        ("MessageAttribute.1.Name.x=a", "SerializationException"),
        ("MessageAttribute.1.Name=a&MessageAttribute.1.Value.BinaryValue=%21", "SerializationException"),
    ],
    ids=lambda text: text[:40],
)
def test_a_form_that_makes_no_sense_is_refused(form: str, code: str) -> None:
    with pytest.raises(SqsError) as refused:
        decoded("SendMessage", form)
    assert (refused.value.code, refused.value.status) == (code, 400)


@pytest.mark.parametrize("name", ["Nothing" + "." * 100_000, "MessageAttribute" + ".1" * 100_000, "x" * 100_000])
def test_a_name_that_is_too_long_to_mean_anything_is_left_out(name: str) -> None:
    assert decoded("SendMessage", f"{name}=1") == {}


def test_the_last_of_a_name_counts() -> None:
    assert decoded("PurgeQueue", "QueueUrl=a&&QueueUrl=b&") == {"QueueUrl": "b"}
