"""The attributes of a queue: what they may be, and what changes them."""

from __future__ import annotations

import msgspec
import pytest

from fleet.broker.sqs import attributes
from fleet.broker.sqs.attributes import Attributes, Facts
from fleet.broker.sqs.errors import SqsError

FACTS = Facts("arn:aws:sqs:r:000000000000:q", 1, 2, 3, 4, 5)
DLQ = "arn:aws:sqs:r:000000000000:dead"
SEND = {"ThrottleSendCapacity": "100", "ThrottleSendRefillPerSecond": "10"}


def created(**given: str) -> Attributes:
    return attributes.create(given)


def fifo(**given: str) -> Attributes:
    return attributes.create({"FifoQueue": "true", **given})


def refused(queue: Attributes | None = None, /, **given: str) -> SqsError:
    with pytest.raises(SqsError) as found:
        created(**given) if queue is None else queue.changed(given)
    return found.value


def described(queue: Attributes, *names: str) -> dict[str, str]:
    return queue.described(names or ["All"], FACTS)


def test_a_queue_has_the_defaults_of_aws() -> None:
    assert described(created()) == {
        "QueueArn": FACTS.arn,
        "ApproximateNumberOfMessages": "1",
        "ApproximateNumberOfMessagesNotVisible": "2",
        "ApproximateNumberOfMessagesDelayed": "3",
        "CreatedTimestamp": "4",
        "LastModifiedTimestamp": "5",
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
        "VisibilityTimeout": "30",
    }


def test_a_fifo_queue_has_four_more() -> None:
    more = described(fifo()).items() - described(created()).items()
    assert dict(more) == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("DelaySeconds", 0, 900),
        ("MaximumMessageSize", 1024, 1_048_576),
        ("MessageRetentionPeriod", 60, 1_209_600),
        ("ReceiveMessageWaitTimeSeconds", 0, 20),
        ("VisibilityTimeout", 0, 43_200),
        ("KmsDataKeyReusePeriodSeconds", 60, 86_400),
    ],
)
def test_a_number_is_within_its_range(name: str, least: int, most: int) -> None:
    for value in (least, most):
        assert described(created(**{name: str(value), "KmsMasterKeyId": "k"}), name) == {name: str(value)}
    for text in (str(least - 1), str(most + 1), "x", "1.5", " 1", "1_0", "٣", "9" * 40):
        error = refused(**{name: text})
        assert (error.code, error.message) == ("InvalidAttributeValue", f"Invalid value for the parameter {name}.")


def test_an_empty_number_is_the_default() -> None:
    assert created(VisibilityTimeout="5").changed({"VisibilityTimeout": ""}).visibility_s == 30


@pytest.mark.parametrize("name", ["QueueArn", "CreatedTimestamp", "All", "Nothing", "", "visibilitytimeout"])
def test_a_name_that_cannot_be_set_is_unknown(name: str) -> None:
    error = refused(**{name: "1"})
    assert (error.code, error.message) == ("InvalidAttributeName", f"Unknown Attribute {name}.")


def test_a_boolean_is_true_or_false() -> None:
    assert fifo(ContentBasedDeduplication="TRUE").content_dedup
    assert not fifo(ContentBasedDeduplication="false").content_dedup
    assert refused(SqsManagedSseEnabled="yes").code == "InvalidAttributeValue"
    assert refused(FifoQueue="yes").code == "InvalidAttributeValue"


def test_a_call_changes_all_or_nothing() -> None:
    queue = created(VisibilityTimeout="5")
    with pytest.raises(SqsError):
        queue.changed({"VisibilityTimeout": "6", "DelaySeconds": "901"})
    assert queue == created(VisibilityTimeout="5")


def test_attributes_come_back_from_where_they_are_kept() -> None:
    policy = f'{{"deadLetterTargetArn":"{DLQ}","maxReceiveCount":3}}'
    allow = f'{{"redrivePermission":"byQueue","sourceQueueArns":["{DLQ}"]}}'
    queue = fifo(
        RedrivePolicy=policy, RedriveAllowPolicy=allow, PartitionCount="4", DeduplicationScope="messageGroup", **SEND
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(queue), type=Attributes) == queue


# GetQueueAttributes --------------------------------------------------------------------------------


def test_only_what_is_asked_for_is_described() -> None:
    assert described(created(), "QueueArn", "DelaySeconds", "Policy") == {"QueueArn": FACTS.arn, "DelaySeconds": "0"}
    assert created().described([], FACTS) == {}


def test_a_name_that_is_none_is_unknown() -> None:
    with pytest.raises(SqsError) as found:
        described(created(), "All", "Foobar")
    assert found.value.message == "Unknown Attribute Foobar."


def test_an_attribute_of_fifo_queues_may_be_asked_of_a_standard_one() -> None:
    assert described(created(), "FifoQueue", "ThrottleSendCapacity", "PartitionCount") == {}


# Policies ------------------------------------------------------------------------------------------


def test_a_redrive_policy_is_described_as_it_was_set() -> None:
    text = f'{{"maxReceiveCount":"3", "deadLetterTargetArn":"{DLQ}"}}'
    queue = created(RedrivePolicy=text)
    assert queue.redrive is not None
    assert (queue.redrive.target, queue.redrive.max_receive_count) == ("dead", 3)
    assert (
        described(queue, "RedrivePolicy")["RedrivePolicy"] == f'{{"deadLetterTargetArn":"{DLQ}","maxReceiveCount":3}}'
    )
    assert queue.changed({"RedrivePolicy": ""}).redrive is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no json", "Redrive policy is not a valid JSON map."),
        ("[]", "Redrive policy is not a valid JSON map."),
        ("[" * 100_000, "Redrive policy is not a valid JSON map."),
        ("{}", "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        ('{"maxReceiveCount":1}', "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        (f'{{"deadLetterTargetArn":"{DLQ}"}}', "Redrive policy does not contain mandatory attribute: maxReceiveCount."),
        ('{"maxReceiveCount":1,"deadLetterTargetArn":"dead"}', "Invalid value for deadLetterTargetArn."),
        ('{"maxReceiveCount":1,"deadLetterTargetArn":5}', "Invalid value for deadLetterTargetArn."),
        *(
            (
                f'{{"maxReceiveCount":{count},"deadLetterTargetArn":"{DLQ}"}}',
                f"Invalid value for maxReceiveCount: {shown}, valid values are from 1 to 1000 both inclusive.",
            )
            for count, shown in (("0", "0"), ("1001", "1001"), ('"x"', "x"), ("1.5", "1.5"), ("true", "True"))
        ),
    ],
    ids=lambda text: text[:40],
)
def test_a_redrive_policy_that_cannot_be_says_why(text: str, reason: str) -> None:
    error = refused(RedrivePolicy=text)
    assert error.code == "InvalidParameterValue"
    assert error.message.endswith(f" for parameter RedrivePolicy is invalid. Reason: {reason}")


def test_an_allow_policy_says_who_may() -> None:
    all_of_them = created(RedriveAllowPolicy='{"redrivePermission":"allowAll"}').allow
    none = created(RedriveAllowPolicy='{"redrivePermission":"denyAll"}')
    some = created(RedriveAllowPolicy=f'{{"redrivePermission":"byQueue","sourceQueueArns":["{DLQ}"]}}').allow
    assert all_of_them is not None
    assert none.allow is not None
    assert some is not None
    assert [one.allows(DLQ) for one in (all_of_them, none.allow, some)] == [True, False, True]
    assert not some.allows(f"{DLQ}2")
    assert described(none, "RedriveAllowPolicy") == {"RedriveAllowPolicy": '{"redrivePermission":"denyAll"}'}
    assert none.changed({"RedriveAllowPolicy": ""}).allow is None


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "[]",
        '{"redrivePermission":"some"}',
        '{"redrivePermission":"byQueue"}',
        '{"redrivePermission":"byQueue","sourceQueueArns":["x"]}',
        '{"redrivePermission":"byQueue","sourceQueueArns":5}',
        f'{{"redrivePermission":"denyAll","sourceQueueArns":["{DLQ}"]}}',
        '{"redrivePermission":"byQueue","sourceQueueArns":[' + ",".join([f'"{DLQ}"'] * 11) + "]}",
    ],
    ids=lambda text: text[:40],
)
def test_an_allow_policy_that_cannot_be_is_refused(text: str) -> None:
    error = refused(RedriveAllowPolicy=text)
    assert error.code == "InvalidParameterValue"
    assert " for parameter RedriveAllowPolicy is invalid. " in error.message


def test_a_policy_is_kept_as_it_is_and_taken_away_by_nothing() -> None:
    queue = created(Policy='{"a": 1}')
    assert described(queue, "Policy") == {"Policy": '{"a": 1}'}
    assert described(queue.changed({"Policy": ""}), "Policy") == {}
    assert refused(Policy="x").message == "Invalid value for the parameter Policy."


# Encryption ----------------------------------------------------------------------------------------


def test_one_kind_of_encryption_takes_the_other_away() -> None:
    queue = created().changed({"KmsMasterKeyId": "testKeyId", "KmsDataKeyReusePeriodSeconds": "6000"})
    names = ("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled")
    assert described(queue, *names) == {
        "KmsMasterKeyId": "testKeyId",
        "KmsDataKeyReusePeriodSeconds": "6000",
        "SqsManagedSseEnabled": "false",
    }
    assert described(queue.changed({"SqsManagedSseEnabled": "true"}), *names) == {"SqsManagedSseEnabled": "true"}
    assert described(queue.changed({"KmsMasterKeyId": ""}), *names) == {"SqsManagedSseEnabled": "false"}


def test_both_kinds_of_encryption_at_once_are_refused() -> None:
    error = refused(KmsMasterKeyId="k", SqsManagedSseEnabled="true")
    assert error.code == "InvalidAttributeValue"
    assert "one type of server-side encryption" in error.message
    assert created(KmsMasterKeyId="k", SqsManagedSseEnabled="false").kms_key == "k"


# CreateQueue of a queue that exists ----------------------------------------------------------------


def test_what_is_not_given_matches_and_so_does_the_same_said_otherwise() -> None:
    policy = f'{{"deadLetterTargetArn":"{DLQ}","maxReceiveCount":3}}'
    queue = created(VisibilityTimeout="5", RedrivePolicy=policy, **SEND)
    for given in (
        {},
        {"VisibilityTimeout": "05"},
        {"RedrivePolicy": f'{{"maxReceiveCount": "3", "deadLetterTargetArn": "{DLQ}"}}'},
        {"DelaySeconds": "0"},
        {"ThrottleSendCapacity": "1e2", "ThrottleSendRefillPerSecond": "10.0"},
    ):
        queue.check_same(given)
    fifo(PartitionCount="1").check_same({"FifoQueue": "true", "PartitionCount": "0", "DeduplicationScope": "queue"})


@pytest.mark.parametrize(
    "given",
    [
        {"VisibilityTimeout": "6"},
        {"RedrivePolicy": f'{{"deadLetterTargetArn":"{DLQ}","maxReceiveCount":4}}'},
        {"Policy": "{}"},
        {"ThrottleSendCapacity": "100", "ThrottleSendRefillPerSecond": "11"},
        {"ThrottleDefaultCapacity": "10", "ThrottleDefaultRefillPerSecond": "1"},
        {"SqsManagedSseEnabled": "false"},
        {"KmsMasterKeyId": "k"},
    ],
)
def test_what_differs_is_the_name_of_another_queue(given: dict[str, str]) -> None:
    with pytest.raises(SqsError) as found:
        created(VisibilityTimeout="5", **SEND).check_same(given)
    assert found.value.type == "QueueNameExists"
    assert found.value.message.rpartition(" ")[2] in given


def test_what_cannot_be_is_refused_before_it_is_compared() -> None:
    with pytest.raises(SqsError) as found:
        created().check_same({"VisibilityTimeout": "x"})
    assert found.value.code == "InvalidAttributeValue"


# Partitions ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", ["", "0", "1", "2", "4", "8", "16", "32"])
def test_a_power_of_two_up_to_32_partitions(count: str) -> None:
    assert fifo(PartitionCount=count).partitions == max(1, int(count or 0))


@pytest.mark.parametrize("count", ["3", "5", "64", "-1", "x", "2.0", "33"])
def test_another_number_of_partitions_is_refused(count: str) -> None:
    error = refused(FifoQueue="true", PartitionCount=count)
    assert (error.code, error.status) == ("InvalidAttributeValue", 400)
    assert "PartitionCount must be a power of two" in error.message


def test_only_a_fifo_queue_has_partitions() -> None:
    for count in ("0", "1"):
        assert created(PartitionCount=count).partitions == 1
    for count in ("2", "32", "x"):
        error = refused(PartitionCount=count)
        assert error.code == "InvalidAttributeValue"
        assert "PartitionCount > 1 is only valid on FIFO queues." in error.message


def test_partitions_and_deduplication_by_queue_exclude_each_other() -> None:
    error = refused(FifoQueue="true", PartitionCount="2", DeduplicationScope="queue")
    assert error.code == "InvalidParameterValue"
    both = {"PartitionCount": "2", "DeduplicationScope": "queue", "FifoThroughputLimit": "perMessageGroupId"}
    assert refused(FifoQueue="true", **both).code == "InvalidParameterValue"
    assert fifo(PartitionCount="1", DeduplicationScope="queue").scope == "queue"


def test_a_queue_of_partitions_uses_them_unless_it_is_told_not_to() -> None:
    names = ("PartitionCount", "DeduplicationScope", "FifoThroughputLimit")
    queue = fifo(PartitionCount="8")
    assert described(queue, *names) == dict(zip(names, ("8", "messageGroup", "perMessageGroupId"), strict=True))
    assert queue.dedup_per_group
    assert {queue.partition_of(f"g{i}") for i in range(200)} == set(range(8))
    assert {fifo(PartitionCount="8", FifoThroughputLimit="perQueue").partition_of(f"g{i}") for i in range(200)} == {0}
    assert {fifo(FifoQueue="true").partition_of(f"g{i}") for i in range(200)} == {0}


def test_with_partitions_three_attributes_stay_as_they_were_made() -> None:
    queue = fifo(PartitionCount="4", FifoThroughputLimit="perMessageGroupId", DeduplicationScope="messageGroup")
    same = {"PartitionCount": "4", "FifoThroughputLimit": "perMessageGroupId", "DeduplicationScope": "messageGroup"}
    assert queue.changed({**same, "VisibilityTimeout": "5"}).visibility_s == 5
    assert fifo(PartitionCount="4").changed(same).partitions == 4
    for name, other in (
        ("PartitionCount", "8"),
        ("PartitionCount", "1"),
        ("FifoThroughputLimit", "perQueue"),
        ("DeduplicationScope", "queue"),
    ):
        error = refused(queue, **{"VisibilityTimeout": "5", name: other})
        assert error.code == "InvalidAttributeValue"
        assert error.message.endswith(f"{name} cannot be changed once the queue is created.")
    assert refused(fifo(), PartitionCount="2").code == "InvalidAttributeValue"
    assert fifo().changed({"PartitionCount": "0"}) == fifo()


def test_without_partitions_the_scope_changes_as_at_aws_and_its_effect_stays() -> None:
    queue = fifo(DeduplicationScope="queue").changed({"DeduplicationScope": "messageGroup"})
    queue = queue.changed({"FifoThroughputLimit": "perMessageGroupId"})
    assert described(queue, "DeduplicationScope")["DeduplicationScope"] == "messageGroup"
    assert not queue.dedup_per_group
    assert fifo(DeduplicationScope="messageGroup").dedup_per_group


def test_a_limit_by_group_needs_deduplication_by_group() -> None:
    error = refused(FifoQueue="true", FifoThroughputLimit="perMessageGroupId")
    assert error.code == "InvalidAttributeValue"
    assert "allowed only when the value for DeduplicationScope is messageGroup" in error.message
    assert refused(FifoQueue="true", DeduplicationScope="else").code == "InvalidAttributeValue"


# Throttling ----------------------------------------------------------------------------------------


def test_throttles_are_described_where_they_are_set() -> None:
    queue = created(ThrottleRecvCapacity="12.5", ThrottleRecvRefillPerSecond="0.1")
    found = {name: value for name, value in described(queue).items() if name.startswith("Throttle")}
    assert found == {"ThrottleRecvCapacity": "12.5", "ThrottleRecvRefillPerSecond": "0.1"}
    zero = {"ThrottleRecvCapacity": "0", "ThrottleRecvRefillPerSecond": "0"}
    assert queue.changed(zero) == created()


def test_a_pair_is_judged_when_all_of_the_call_is_in() -> None:
    queue = created(**SEND)
    assert (
        queue.changed({"ThrottleSendRefillPerSecond": "500", "ThrottleSendCapacity": "500"}).throttle.send.refill == 500
    )
    assert refused(queue, ThrottleSendRefillPerSecond="500").code == "InvalidAttributeValue"


@pytest.mark.parametrize("kind", ["Send", "Recv", "Default"])
@pytest.mark.parametrize(
    ("capacity", "refill"),
    [
        *(("100", text) for text in ("-1", "nan", "inf", "Infinity", "x", "1_0", " 1", "0x10", "1e400", "100001")),
        ("100001", "1"),
        ("10", "0"),
        ("0", "10"),
        ("10", "11"),
        ("9.9", "1"),
        ("1e-5", "1e-5"),
    ],
)
def test_a_throttle_that_cannot_work_is_refused(kind: str, capacity: str, refill: str) -> None:
    names = (f"Throttle{kind}Capacity", f"Throttle{kind}RefillPerSecond")
    error = refused(**dict(zip(names, (capacity, refill), strict=True)))
    assert (error.code, error.status) == ("InvalidAttributeValue", 400)
    assert any(name in error.message for name in names)


def test_half_a_throttle_is_refused() -> None:
    assert refused(ThrottleSendCapacity="10").code == "InvalidAttributeValue"
    assert refused(ThrottleSendCapacities="10").code == "InvalidAttributeName"
