"""Every text that AWS is recorded to send, to the letter, with its code, its type and its status."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.broker.sqs import attributes, batch, errors, message, ranges
from fleet.broker.sqs.attributes import Attributes
from fleet.broker.sqs.errors import SqsError

STANDARD = Attributes()
FIFO = Attributes(fifo=True)
LONG = "a" * 129


def sending(queue: Attributes = STANDARD, **params: object) -> Callable[[], object]:
    return lambda: message.check({"MessageBody": "x", **params}, queue)


def raising(error: SqsError) -> Callable[[], object]:
    def raise_it() -> None:
        raise error

    return raise_it


def entries(count: int, **params: object) -> dict[str, object]:
    return {"Entries": [{"Id": f"id-{i}", "MessageBody": "x", **params} for i in range(count)]}


def invalid_id(text: str, parameter: str) -> str:
    reason = f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
    return f"Value {text} for parameter {parameter} is invalid. Reason: {reason}"


PARAMETER = ("InvalidParameterValue", "InvalidParameterValueException", 400)
MISSING = ("MissingParameter", "MissingRequiredParameterException", 400)
NAME = ("InvalidAttributeName", "InvalidAttributeName", 400)
VALUE = ("InvalidAttributeValue", "InvalidAttributeValue", 400)
EXISTS = ("QueueAlreadyExists", "QueueNameExists", 400)
NOT_FOUND = ("ResourceNotFoundException", "ResourceNotFoundException", 404)


def ours(name: str, type_: str = "", status: int = 400) -> tuple[str, str, int]:
    return f"AWS.SimpleQueueService.{name}", type_ or name, status


RECORDED: list[tuple[Callable[[], object], tuple[str, str, int], str]] = [
    (
        lambda: batch.check_sent([{"MessageBody": "x" * 2**20}, {"MessageBody": "y"}], STANDARD),
        ours("BatchRequestTooLong"),
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048577 bytes.",
    ),
    *(
        (
            lambda id_=id_: batch.check("DeleteMessageBatch", {"Entries": [{"Id": id_}]}),
            ours("InvalidBatchEntryId"),
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
            " It can be at most 80 letters long.",
        )
        for id_ in ("", "invalid:id", "a" * 81, "a\n")
    ),
    (
        raising(errors.no_such_queue()),
        ours("NonExistentQueue", "QueueDoesNotExist"),
        "The specified queue does not exist.",
    ),
    (
        raising(errors.purge_in_progress("<queue-name>")),
        ours("PurgeQueueInProgress", status=403),
        "Only one PurgeQueue operation on <queue-name> is allowed every 60 seconds.",
    ),
    (
        lambda: batch.check("ChangeMessageVisibilityBatch", entries(20)),
        ours("TooManyEntriesInBatchRequest"),
        "Maximum number of entries per request are 10. You have sent 20.",
    ),
    (
        lambda: batch.check("SendMessageBatch", {"Entries": []}),
        ours("EmptyBatchRequest"),
        "There should be at least one SendMessageBatchRequestEntry in the request.",
    ),
    (
        lambda: batch.check("DeleteMessageBatch", {"Entries": [{"Id": "a"}, {"Id": "b"}, {"Id": "a"}]}),
        ours("BatchEntryIdsNotDistinct"),
        "Id a repeated.",
    ),
    *(
        (lambda name=name: attributes.create({name: "true"}, fifo=False), NAME, f"Unknown Attribute {name}.")
        for name in ("ContentBasedDeduplication", "FifoQueue")
    ),
    (lambda: attributes.create({"FifoQueue": "false"}), NAME, "Unknown Attribute FifoQueue."),
    *(
        (lambda value=value: STANDARD.changed({"FifoQueue": value}), NAME, "Unknown Attribute FifoQueue.")
        for value in ("true", "false")
    ),
    (
        lambda: attributes.create({"DeduplicationScope": "queue"}),
        NAME,
        "You can specify the DeduplicationScope only when FifoQueue is set to true.",
    ),
    (
        lambda: attributes.create({"FifoThroughputLimit": "perQueue"}),
        NAME,
        "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
    ),
    (
        lambda: FIFO.changed({"FifoQueue": "false"}),
        VALUE,
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
    ),
    (
        sending(MessageAttributes={"ErrorDetails": {"StringValue": "", "DataType": "String"}}),
        PARAMETER,
        "Message (user) attribute 'ErrorDetails' must contain a non-empty value of type 'String'.",
    ),
    (
        sending(Attributes(message_bytes=1024), MessageBody="x" * 1025),
        PARAMETER,
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes.",
    ),
    (
        sending(MessageBody="x" * 1_048_577),
        PARAMETER,
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.",
    ),
    (
        lambda: message.check({"MessageBody": "x" * 1025}, Attributes(message_bytes=1024), in_batch=True),
        PARAMETER,
        "One or more parameters cannot be validated. Reason: Message must be shorter than 1024 bytes.",
    ),
    (
        sending(FIFO, MessageGroupId="g"),
        PARAMETER,
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly",
    ),
    (sending(FIFO), MISSING, "The request must contain the parameter MessageGroupId."),
    (
        lambda: batch.check_sent([{"MessageBody": "x"}], FIFO),
        PARAMETER,
        "The request must contain the parameter MessageGroupId.",
    ),
    *(
        (
            sending(FIFO, MessageGroupId="g", MessageDeduplicationId=text),
            PARAMETER,
            invalid_id(text, "MessageDeduplicationId"),
        )
        for text in ("", "group 123", LONG)
    ),
    *(
        (sending(MessageGroupId=text), PARAMETER, invalid_id(text, "MessageGroupId"))
        for text in ("", "group 123", LONG)
    ),
    *(
        (
            lambda value=value: ranges.wait_s({"WaitTimeSeconds": value}, 0),
            PARAMETER,
            f"Value {value} for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.",
        )
        for value in (-1, 21)
    ),
    (
        lambda: ranges.messages({"MaxNumberOfMessages": 11}),
        PARAMETER,
        "Value 11 for parameter MaxNumberOfMessages is invalid. Reason: Must be between 1 and 10, if provided.",
    ),
    (
        sending(FIFO, MessageGroupId="g", MessageDeduplicationId="d", DelaySeconds=2),
        PARAMETER,
        "Value 2 for parameter DelaySeconds is invalid."
        " Reason: The request include parameter that is not valid for this queue type.",
    ),
    (
        raising(errors.receipt_handle_expired("<receipt-handle:1>")),
        PARAMETER,
        "Value <receipt-handle:1> for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
    ),
    (
        raising(errors.label_exists("crossaccountpermission")),
        PARAMETER,
        "Value crossaccountpermission for parameter Label is invalid. Reason: Already exists.",
    ),
    (
        raising(errors.no_such_label("crossaccountpermission2")),
        PARAMETER,
        "Value crossaccountpermission2 for parameter Label is invalid. Reason: can't find label.",
    ),
    (sending(MessageBody=""), MISSING, "The request must contain the parameter MessageBody."),
    (
        lambda: FIFO.check_same({"ContentBasedDeduplication": "true"}),
        EXISTS,
        "A queue already exists with the same name and a different value for attribute ContentBasedDeduplication",
    ),
    (
        lambda: STANDARD.check_same({"DelaySeconds": "2"}),
        EXISTS,
        "A queue already exists with the same name and a different value for attribute DelaySeconds",
    ),
    (raising(errors.not_a_dead_letter_queue()), PARAMETER, "Source queue must be configured as a Dead Letter Queue."),
    (
        raising(errors.move_task_running()),
        PARAMETER,
        "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
    ),
    (raising(errors.invalid_task_handle()), PARAMETER, "Value for parameter TaskHandle is invalid."),
    (raising(errors.no_such_task()), NOT_FOUND, "Task does not exist."),
    *(
        (
            raising(errors.no_such_resource(parameter)),
            NOT_FOUND,
            f"The resource that you specified for the {parameter} parameter doesn't exist.",
        )
        for parameter in ("SourceArn", "DestinationArn")
    ),
]


@pytest.mark.parametrize(
    ("refuse", "named", "told"), RECORDED, ids=[f"{named[1]}: {told[:60]}" for _, named, told in RECORDED]
)
def test_an_error_is_what_aws_is_recorded_to_send(
    refuse: Callable[[], object], named: tuple[str, str, int], told: str
) -> None:
    with pytest.raises(SqsError) as refused:
        refuse()
    error = refused.value
    assert (error.code, error.type, error.status) == named
    assert error.message == told
    assert error.fault == "Sender"


def test_only_a_missing_queue_is_told_otherwise_in_the_query_protocol() -> None:
    assert errors.no_such_queue().query_message == "The specified queue does not exist for this wsdl version."
    assert errors.label_exists("x").query_message == errors.label_exists("x").message


def test_an_error_of_an_entry_names_the_entry() -> None:
    assert errors.invalid_receipt_handle("h").entry("id-1") == {
        "Id": "id-1",
        "SenderFault": True,
        "Code": "ReceiptHandleIsInvalid",
        "Message": 'The input receipt handle "h" is not a valid receipt handle.',
    }
    assert errors.service_unavailable().entry("id-1")["SenderFault"] is False


def test_a_long_value_is_not_echoed_whole() -> None:
    assert len(errors.invalid_receipt_handle("x" * 2**20).message) < 2000
