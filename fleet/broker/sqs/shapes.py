"""What each verb of SQS takes and gives: one table, which the JSON and the Query protocol both read.

Names are those of AWS JSON; `wire` is what the Query protocol calls the same thing. Every list and map of SQS is
flattened there: `AttributeName.1=…`, `Attribute.1.Name=…&Attribute.1.Value=…`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Scalar:
    kind: Literal["string", "integer", "long", "boolean", "binary"]


@dataclass(frozen=True, slots=True)
class Structure:
    members: dict[str, Member]
    by_name: dict[str, tuple[str, Member]]
    """Each by how the Query protocol calls it and by its own name, which is the first of the pair."""


@dataclass(frozen=True, slots=True)
class Listing:
    item: Shape


@dataclass(frozen=True, slots=True)
class Mapping:
    """From strings."""

    key_wire: str
    value_wire: str
    value: Shape


Shape = Scalar | Structure | Listing | Mapping


@dataclass(frozen=True, slots=True)
class Member:
    wire: str
    shape: Shape


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    takes: Structure
    gives: Structure | None
    needs: tuple[str, ...] = ()
    """Parameters it cannot do without; QueueUrl may come from the path instead."""


STRING, INTEGER, LONG = Scalar("string"), Scalar("integer"), Scalar("long")
BOOLEAN, BINARY = Scalar("boolean"), Scalar("binary")
STRINGS = Listing(STRING)


def _structure(**members: Shape | tuple[str, Shape]) -> Structure:
    """A member alone is called as it is; with a pair, the first is its name in the Query protocol."""
    named = {name: Member(*one) if isinstance(one, tuple) else Member(name, one) for name, one in members.items()}
    return Structure(named, {called: (own, one) for own, one in named.items() for called in (own, one.wire)})


def _map(key: str, value: str, shape: Shape = STRING) -> Mapping:
    return Mapping(key, value, shape)


ATTRIBUTES = ("Attribute", _map("Name", "Value"))
TAGS = ("Tag", _map("Key", "Value"))
ATTRIBUTE_VALUE = _structure(
    StringValue=STRING,
    BinaryValue=BINARY,
    StringListValues=("StringListValue", STRINGS),
    BinaryListValues=("BinaryListValue", Listing(BINARY)),
    DataType=STRING,
)
MESSAGE_ATTRIBUTES = ("MessageAttribute", _map("Name", "Value", ATTRIBUTE_VALUE))
_SENT: dict[str, Shape | tuple[str, Shape]] = {
    "MessageBody": STRING,
    "DelaySeconds": INTEGER,
    "MessageAttributes": MESSAGE_ATTRIBUTES,
    "MessageSystemAttributes": ("MessageSystemAttribute", _map("Name", "Value", ATTRIBUTE_VALUE)),
    "MessageDeduplicationId": STRING,
    "MessageGroupId": STRING,
}
_RECEIPT: dict[str, Shape | tuple[str, Shape]] = {
    "MD5OfMessageBody": STRING,
    "MD5OfMessageAttributes": STRING,
    "MD5OfMessageSystemAttributes": STRING,
    "MessageId": STRING,
    "SequenceNumber": STRING,
}
MESSAGE = _structure(
    MessageId=STRING,
    ReceiptHandle=STRING,
    MD5OfBody=STRING,
    Body=STRING,
    Attributes=ATTRIBUTES,
    MD5OfMessageAttributes=STRING,
    MessageAttributes=MESSAGE_ATTRIBUTES,
)
MOVE_TASK = _structure(
    TaskHandle=STRING,
    Status=STRING,
    SourceArn=STRING,
    DestinationArn=STRING,
    MaxNumberOfMessagesPerSecond=INTEGER,
    ApproximateNumberOfMessagesMoved=LONG,
    ApproximateNumberOfMessagesToMove=LONG,
    FailureReason=STRING,
    StartedTimestamp=LONG,
)


def entry_name(verb: str) -> str:
    """What an entry of a batch is called in the Query protocol, and in errors of both."""
    return f"{verb}RequestEntry"


def _batch_of(verb: str, entry: Structure, result: Structure) -> Verb:
    failed = _structure(Id=STRING, SenderFault=BOOLEAN, Code=STRING, Message=STRING)
    return _verb(
        verb,
        _structure(QueueUrl=STRING, Entries=(entry_name(verb), Listing(entry))),
        _structure(
            Successful=(f"{verb}ResultEntry", Listing(result)),
            Failed=("BatchResultErrorEntry", Listing(failed)),
        ),
        "QueueUrl",
    )


def _verb(name: str, takes: Structure, gives: Structure | None, *needs: str) -> Verb:
    return Verb(name, takes, gives, needs)


_QUEUE = _structure(QueueUrl=STRING)
_LIMITED: dict[str, Shape | tuple[str, Shape]] = {"NextToken": STRING, "MaxResults": INTEGER}
_ID = _structure(Id=STRING)

VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        _verb(
            "CreateQueue",
            _structure(QueueName=STRING, Attributes=ATTRIBUTES, tags=TAGS),
            _structure(QueueUrl=STRING),
            "QueueName",
        ),
        _verb(
            "GetQueueUrl",
            _structure(QueueName=STRING, QueueOwnerAWSAccountId=STRING),
            _structure(QueueUrl=STRING),
            "QueueName",
        ),
        _verb(
            "ListQueues",
            _structure(QueueNamePrefix=STRING, **_LIMITED),
            _structure(QueueUrls=("QueueUrl", STRINGS), NextToken=STRING),
        ),
        _verb("DeleteQueue", _QUEUE, None, "QueueUrl"),
        _verb("PurgeQueue", _QUEUE, None, "QueueUrl"),
        _verb(
            "GetQueueAttributes",
            _structure(QueueUrl=STRING, AttributeNames=("AttributeName", STRINGS)),
            _structure(Attributes=ATTRIBUTES),
            "QueueUrl",
        ),
        _verb(
            "SetQueueAttributes",
            _structure(QueueUrl=STRING, Attributes=ATTRIBUTES),
            None,
            *("QueueUrl", "Attributes"),
        ),
        _verb("TagQueue", _structure(QueueUrl=STRING, Tags=TAGS), None, *("QueueUrl", "Tags")),
        _verb(
            "UntagQueue",
            _structure(QueueUrl=STRING, TagKeys=("TagKey", STRINGS)),
            None,
            *("QueueUrl", "TagKeys"),
        ),
        _verb("ListQueueTags", _QUEUE, _structure(Tags=TAGS), "QueueUrl"),
        _verb(
            "SendMessage",
            _structure(QueueUrl=STRING, **_SENT),
            _structure(**_RECEIPT),
            *("QueueUrl", "MessageBody"),
        ),
        _batch_of("SendMessageBatch", _structure(Id=STRING, **_SENT), _structure(Id=STRING, **_RECEIPT)),
        _verb(
            "ReceiveMessage",
            _structure(
                QueueUrl=STRING,
                AttributeNames=("AttributeName", STRINGS),
                MessageSystemAttributeNames=("MessageSystemAttributeName", STRINGS),
                MessageAttributeNames=("MessageAttributeName", STRINGS),
                MaxNumberOfMessages=INTEGER,
                VisibilityTimeout=INTEGER,
                WaitTimeSeconds=INTEGER,
                ReceiveRequestAttemptId=STRING,
            ),
            _structure(Messages=("Message", Listing(MESSAGE))),
            "QueueUrl",
        ),
        _verb(
            "DeleteMessage",
            _structure(QueueUrl=STRING, ReceiptHandle=STRING),
            None,
            *("QueueUrl", "ReceiptHandle"),
        ),
        _batch_of("DeleteMessageBatch", _structure(Id=STRING, ReceiptHandle=STRING), _ID),
        _verb(
            "ChangeMessageVisibility",
            _structure(QueueUrl=STRING, ReceiptHandle=STRING, VisibilityTimeout=INTEGER),
            None,
            *("QueueUrl", "ReceiptHandle", "VisibilityTimeout"),
        ),
        _batch_of(
            "ChangeMessageVisibilityBatch",
            _structure(Id=STRING, ReceiptHandle=STRING, VisibilityTimeout=INTEGER),
            _ID,
        ),
        _verb(
            "ListDeadLetterSourceQueues",
            _structure(QueueUrl=STRING, **_LIMITED),
            _structure(queueUrls=("QueueUrl", STRINGS), NextToken=STRING),
            "QueueUrl",
        ),
        _verb(
            "StartMessageMoveTask",
            _structure(SourceArn=STRING, DestinationArn=STRING, MaxNumberOfMessagesPerSecond=INTEGER),
            _structure(TaskHandle=STRING),
            "SourceArn",
        ),
        _verb(
            "ListMessageMoveTasks",
            _structure(SourceArn=STRING, MaxResults=INTEGER),
            _structure(Results=("ListMessageMoveTasksResultEntry", Listing(MOVE_TASK))),
            "SourceArn",
        ),
        _verb(
            "CancelMessageMoveTask",
            _structure(TaskHandle=STRING),
            _structure(ApproximateNumberOfMessagesMoved=LONG),
            "TaskHandle",
        ),
        _verb(
            "AddPermission",
            _structure(
                QueueUrl=STRING,
                Label=STRING,
                AWSAccountIds=("AWSAccountId", STRINGS),
                Actions=("ActionName", STRINGS),
            ),
            None,
            *("QueueUrl", "Label", "AWSAccountIds", "Actions"),
        ),
        _verb("RemovePermission", _structure(QueueUrl=STRING, Label=STRING), None, *("QueueUrl", "Label")),
    )
}
