"""Errors over the real door, in both protocols, to the letter of what AWS is recorded to answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.sqs.shop import Shop, a_name, name_of, refused

MIB = 1024 * 1024
LONG = "a" * 129
Act = Callable[[Shop], object]
IDS = "can only include alphanumeric and punctuation characters. 1 to 128 in length."


def _entries(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"Id": f"{i}", "MessageBody": "x", **more} for i in range(count)]


def _batch(shop: Shop, entries: list[dict[str, Any]], **attributes: str) -> object:
    url = shop.queue(attributes)
    return shop.client.send_message_batch(QueueUrl=url, Entries=entries)


def _twice(attribute: str, first: str, second: str, *, fifo: bool) -> Act:
    def act(shop: Shop) -> object:
        name = a_name(fifo=fifo)
        shop.queue({attribute: first}, fifo=fifo, name=name)
        return shop.queue({attribute: second}, fifo=fifo, name=name)

    return act


def _permit_twice(shop: Shop) -> object:
    url = shop.queue()
    given = {"Label": "crossaccountpermission", "AWSAccountIds": ["123456789012"], "Actions": ["ReceiveMessage"]}
    shop.client.add_permission(QueueUrl=url, **given)
    return shop.client.add_permission(QueueUrl=url, **given)


def _attribute(name: str, value: dict[str, Any]) -> Act:
    return lambda shop: shop.send(shop.queue(), "x", MessageAttributes={name: value})


ERRORS: dict[str, tuple[Act, str, str, str]] = {
    "a batch over 1 MiB": (
        lambda shop: _batch(shop, [{"Id": "1", "MessageBody": "x" * MIB}, {"Id": "2", "MessageBody": "x"}]),
        "AWS.SimpleQueueService.BatchRequestTooLong",
        "BatchRequestTooLong",
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
    ),
    "an id of an entry that cannot be": (
        lambda shop: _batch(shop, [{"Id": "a b", "MessageBody": "x"}]),
        "AWS.SimpleQueueService.InvalidBatchEntryId",
        "InvalidBatchEntryId",
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
        " It can be at most 80 letters long.",
    ),
    "an id of 81 letters": (
        lambda shop: _batch(shop, [{"Id": "a" * 81, "MessageBody": "x"}]),
        "AWS.SimpleQueueService.InvalidBatchEntryId",
        "InvalidBatchEntryId",
        "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
        " It can be at most 80 letters long.",
    ),
    "an id twice in a batch": (
        lambda shop: _batch(shop, [*_entries(1), *_entries(1)]),
        "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
        "BatchEntryIdsNotDistinct",
        "Id 0 repeated.",
    ),
    "twenty entries": (
        lambda shop: _batch(shop, _entries(20)),
        "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        "TooManyEntriesInBatchRequest",
        "Maximum number of entries per request are 10. You have sent 20.",
    ),
    "no entries": (
        lambda shop: _batch(shop, []),
        "AWS.SimpleQueueService.EmptyBatchRequest",
        "EmptyBatchRequest",
        "There should be at least one SendMessageBatchRequestEntry in the request.",
    ),
    "content-based deduplication of a standard queue": (
        lambda shop: shop.queue(ContentBasedDeduplication="true"),
        "InvalidAttributeName",
        "InvalidAttributeName",
        "Unknown Attribute ContentBasedDeduplication.",
    ),
    "FifoQueue=false": (
        lambda shop: shop.queue(FifoQueue="false"),
        "InvalidAttributeName",
        "InvalidAttributeName",
        "Unknown Attribute FifoQueue.",
    ),
    "a deduplication scope of a standard queue": (
        lambda shop: shop.queue(DeduplicationScope="queue"),
        "InvalidAttributeName",
        "InvalidAttributeName",
        "You can specify the DeduplicationScope only when FifoQueue is set to true.",
    ),
    "a throughput limit of a standard queue": (
        lambda shop: shop.queue(FifoThroughputLimit="perQueue"),
        "InvalidAttributeName",
        "InvalidAttributeName",
        "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
    ),
    "the kind of a queue that is there": (
        lambda shop: shop.set(shop.fifo(), FifoQueue="false"),
        "InvalidAttributeValue",
        "InvalidAttributeValue",
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    ),
    "a message attribute without its value": (
        _attribute("ErrorDetails", {"DataType": "String", "StringValue": ""}),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "Message (user) attribute 'ErrorDetails' must contain a non-empty value of type 'String'.",
    ),
    "a message longer than its queue takes": (
        lambda shop: shop.send(shop.queue(MaximumMessageSize="1024"), "x" * 1025),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    ),
    "a message of more than 1 MiB": (
        lambda shop: shop.send(shop.queue(), "x" * (MIB + 1)),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
    ),
    "attributes that make a message too long": (
        lambda shop: shop.send(
            shop.queue(MaximumMessageSize="1024"),
            "x" * 1014,
            MessageAttributes={"name": {"DataType": "String", "StringValue": "v"}},
        ),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    ),
    "no deduplication id where none is made": (
        lambda shop: shop.send(shop.queue(fifo=True), "x", "g"),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
    ),
    "an entry without a group": (
        lambda shop: shop.client.send_message_batch(QueueUrl=shop.fifo(), Entries=_entries(1)),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "The request must contain the parameter MessageGroupId.",
    ),
    "an empty deduplication id": (
        lambda shop: shop.send(shop.queue(fifo=True), "x", "g", MessageDeduplicationId=""),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        f"Value  for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId {IDS}",
    ),
    "an empty group": (
        lambda shop: shop.send(shop.fifo(), "x", MessageGroupId=""),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        f"Value  for parameter MessageGroupId is invalid. Reason: MessageGroupId {IDS}",
    ),
    "a deduplication id that is too long": (
        lambda shop: shop.send(shop.queue(fifo=True), "x", "g", MessageDeduplicationId=LONG),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        f"Value {LONG} for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId {IDS}",
    ),
    "a group that is too long": (
        lambda shop: shop.send(shop.fifo(), "x", LONG),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        f"Value {LONG} for parameter MessageGroupId is invalid. Reason: MessageGroupId {IDS}",
    ),
    "a deduplication id with a space": (
        lambda shop: shop.send(shop.queue(fifo=True), "x", "g", MessageDeduplicationId="group 123"),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        f"Value group 123 for parameter MessageDeduplicationId is invalid. Reason: MessageDeduplicationId {IDS}",
    ),
    "a group with a space": (
        lambda shop: shop.send(shop.fifo(), "x", "group 123"),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        f"Value group 123 for parameter MessageGroupId is invalid. Reason: MessageGroupId {IDS}",
    ),
    "to wait for -1 s": (
        lambda shop: shop.receive(shop.queue(), WaitTimeSeconds=-1),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "Value -1 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
    ),
    "to wait for 21 s": (
        lambda shop: shop.receive(shop.queue(), WaitTimeSeconds=21),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
    ),
    "eleven messages": (
        lambda shop: shop.receive(shop.queue(), 11),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.",
    ),
    "no messages": (
        lambda shop: shop.receive(shop.queue(), 0),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "Value 0 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.",
    ),
    "a delay of a message of a FIFO queue": (
        lambda shop: shop.send(shop.fifo(), "x", "g", DelaySeconds=2),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "Value 2 for parameter DelaySeconds is invalid."
        " Reason: The request include parameter that is not valid for this queue type.",
    ),
    "a deduplication id for a standard queue": (
        lambda shop: shop.send(shop.queue(), "x", MessageDeduplicationId="d"),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "Value d for parameter MessageDeduplicationId is invalid."
        " Reason: The request include parameter that is not valid for this queue type.",
    ),
    "a label that is there": (
        _permit_twice,
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "Value crossaccountpermission for parameter Label is invalid. Reason: Already exists.",
    ),
    "a label that is not": (
        lambda shop: shop.client.remove_permission(QueueUrl=shop.queue(), Label="crossaccountpermission2"),
        "InvalidParameterValue",
        "InvalidParameterValueException",
        "Value crossaccountpermission2 for parameter Label is invalid. Reason: can't find label.",
    ),
    "an empty body": (
        lambda shop: shop.send(shop.queue(), ""),
        "MissingParameter",
        "MissingRequiredParameterException",
        "The request must contain the parameter MessageBody.",
    ),
    "no group for a FIFO queue": (
        lambda shop: shop.send(shop.fifo(), "x"),
        "MissingParameter",
        "MissingRequiredParameterException",
        "The request must contain the parameter MessageGroupId.",
    ),
    "a queue that is there with other deduplication": (
        _twice("ContentBasedDeduplication", "true", "false", fifo=True),
        "QueueAlreadyExists",
        "QueueNameExists",
        "A queue already exists with the same name and a different value for attribute ContentBasedDeduplication",
    ),
    "a queue that is there with another delay": (
        _twice("DelaySeconds", "1", "2", fifo=False),
        "QueueAlreadyExists",
        "QueueNameExists",
        "A queue already exists with the same name and a different value for attribute DelaySeconds",
    ),
    "an attribute that nobody knows": (
        lambda shop: shop.queue(Color="red"),
        "InvalidAttributeName",
        "InvalidAttributeName",
        "Unknown Attribute Color.",
    ),
    "a handle of nothing": (
        lambda shop: shop.delete(shop.queue(), {"ReceiptHandle": "garbage"}),
        "ReceiptHandleIsInvalid",
        "ReceiptHandleIsInvalid",
        'The input receipt handle "garbage" is not a valid receipt handle.',
    ),
    "a character that XML does not have": (
        lambda shop: shop.send(shop.queue(), "bell\x07"),
        "InvalidMessageContents",
        "InvalidMessageContents",
        "Invalid characters found. Valid unicode characters are"
        " #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
    ),
}


@pytest.mark.parametrize("what", ERRORS)
def test_an_error_is_told_as_aws_tells_it(sqs: Shop, what: str) -> None:
    act, code, type_, message = ERRORS[what]
    with refused(code, message) as told:
        act(sqs)
    if sqs.protocol == "json":
        assert told["Error"]["QueryErrorCode"] == type_
        assert told["Headers"]["x-amzn-query-error"] == f"{code};Sender"
    else:
        assert told["Error"]["Type"] == "Sender"


@pytest.mark.parametrize(
    "verb",
    [
        "delete_queue",
        "purge_queue",
        "get_queue_attributes",
        "receive_message",
        "list_queue_tags",
        "list_dead_letter_source_queues",
    ],
)
def test_a_queue_that_is_not_there_is_told_in_the_words_of_the_protocol(sqs: Shop, verb: str) -> None:
    text = "The specified queue does not exist" + ("." if sqs.protocol == "json" else " for this wsdl version.")
    with refused("AWS.SimpleQueueService.NonExistentQueue", text) as told:
        getattr(sqs.client, verb)(QueueUrl=f"{sqs.url}/000000000000/nothing")
    if sqs.protocol == "json":
        assert told["Error"]["QueryErrorCode"] == "QueueDoesNotExist"


def test_a_second_purge_within_a_minute_is_refused(sqs: Shop) -> None:
    url = sqs.queue()
    sqs.client.purge_queue(QueueUrl=url)
    text = f"Only one PurgeQueue operation on {name_of(url)} is allowed every 60 seconds."
    with refused("AWS.SimpleQueueService.PurgeQueueInProgress", text, status=403):
        sqs.client.purge_queue(QueueUrl=url)


def test_a_url_of_a_name_that_is_not_there_is_refused(sqs: Shop) -> None:
    with refused("AWS.SimpleQueueService.NonExistentQueue"):
        sqs.client.get_queue_url(QueueName="nothing")
