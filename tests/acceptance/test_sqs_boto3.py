"""AWS's own SDK for Python at our SQS door: it must notice nothing."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.servers.aws_models import write_query_models
from tests.servers.local import RedisServer
from tests.servers.sqs_door import REGION, SqsDoor, running_sqs_door

Refused = Callable[[str, str], AbstractContextManager[None]]


def client_of(door: SqsDoor, *, key: str = "any", secret: str = "any", **config: Any) -> Any:
    chosen = Config(**{"retries": {"total_max_attempts": 1, "mode": "standard"}, "read_timeout": 25, **config})
    return boto3.client(
        "sqs",
        region_name=REGION,
        endpoint_url=door.url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=chosen,
    )


@pytest.fixture(scope="module", params=["json", "query"])
def sqs(request: pytest.FixtureRequest, sqs_door: SqsDoor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The SDK as it is, and as it was before it spoke JSON to SQS."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "query":
            patch.setenv("AWS_DATA_PATH", write_query_models(tmp_path_factory.mktemp("aws")))
        patch.setattr(boto3, "DEFAULT_SESSION", None)  # the models are read once for all of a session's clients
        client = client_of(sqs_door)
    assert client.meta.service_model.resolved_protocol == request.param
    yield client
    client.close()


@pytest.fixture
def name() -> str:
    """No other test's names begin with it."""
    return f"t-{secrets.token_hex(5)}"


def drained(sqs: Any, url: str, count: int) -> list[dict[str, Any]]:
    """So many messages, as they come; each is deleted."""
    found: list[dict[str, Any]] = []
    until_s = time.monotonic() + 20
    while len(found) < count and time.monotonic() < until_s:
        given = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=1,
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        found += given
        for one in given:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    return found


# Catalogue -----------------------------------------------------------------------------------------


def test_the_paginators_bring_every_queue_once(sqs: Any, name: str) -> None:
    urls = {sqs.create_queue(QueueName=f"{name}-{number:02}")["QueueUrl"] for number in range(23)}
    pages = list(sqs.get_paginator("list_queues").paginate(QueueNamePrefix=name, PaginationConfig={"PageSize": 5}))
    assert [len(page["QueueUrls"]) for page in pages] == [5, 5, 5, 5, 3]
    assert {url for page in pages for url in page["QueueUrls"]} == urls
    few = (
        sqs.get_paginator("list_queues")
        .paginate(QueueNamePrefix=name, PaginationConfig={"MaxItems": 7})
        .build_full_result()
    )
    assert len(few["QueueUrls"]) == 7


def test_the_paginator_of_dead_letter_sources_brings_every_one(sqs: Any, name: str) -> None:
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    asked = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
    policy = json.dumps({"deadLetterTargetArn": asked["Attributes"]["QueueArn"], "maxReceiveCount": "3"})
    sources = {
        sqs.create_queue(QueueName=f"{name}-{number}", Attributes={"RedrivePolicy": policy})["QueueUrl"]
        for number in range(7)
    }
    pages = sqs.get_paginator("list_dead_letter_source_queues").paginate(
        QueueUrl=dead, PaginationConfig={"PageSize": 3}
    )
    found = [url for page in pages for url in page["queueUrls"]]
    assert (len(found), set(found)) == (7, sources)


def test_the_resources_of_boto3_send_receive_hide_and_delete(sqs_door: SqsDoor, name: str) -> None:
    resource = boto3.resource(
        "sqs", region_name=REGION, endpoint_url=sqs_door.url, aws_access_key_id="any", aws_secret_access_key="any"
    )
    queue = resource.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})
    assert resource.get_queue_by_name(QueueName=name).url == queue.url
    binary = {"DataType": "Binary", "BinaryValue": bytes(range(256))}
    queue.send_message(
        MessageBody="one", MessageAttributes={"raw": binary, "n": {"DataType": "Number", "StringValue": "7"}}
    )
    (message,) = queue.receive_messages(MessageAttributeNames=["All"], AttributeNames=["All"], WaitTimeSeconds=5)
    assert message.body == "one"
    assert message.message_attributes["raw"]["BinaryValue"] == binary["BinaryValue"]
    message.change_visibility(VisibilityTimeout=0)
    (again,) = queue.receive_messages(AttributeNames=["All"], WaitTimeSeconds=5)
    assert (again.message_id, again.attributes["ApproximateReceiveCount"]) == (message.message_id, "2")
    again.delete()
    queue.load()
    assert queue.attributes["ApproximateNumberOfMessages"] == "0"
    queue.delete()
    resource.meta.client.close()


@pytest.fixture
def refused(sqs: Any) -> Refused:
    """A call must fail with this code: the same by either protocol; today's SDK has a class for it too."""

    @contextmanager
    def failing(kind: str, code: str) -> Iterator[None]:
        with pytest.raises(ClientError) as caught:
            yield
        assert caught.value.response["Error"]["Code"] == code
        assert caught.value.response["Error"]["Type"] == "Sender"
        if sqs.meta.service_model.resolved_protocol == "json":
            assert isinstance(caught.value, getattr(sqs.exceptions, kind))

    return failing


def test_errors_have_aws_codes_and_the_classes_that_the_sdk_has_for_them(sqs: Any, name: str, refused: Refused) -> None:
    ours = "AWS.SimpleQueueService"
    with refused("QueueDoesNotExist", f"{ours}.NonExistentQueue"):
        sqs.get_queue_url(QueueName=name)
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    with refused("QueueNameExists", "QueueAlreadyExists"):
        sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "7"})
    with refused("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid"):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="nonsense")
    with refused("EmptyBatchRequest", f"{ours}.EmptyBatchRequest"):
        sqs.send_message_batch(QueueUrl=url, Entries=[])
    with refused("TooManyEntriesInBatchRequest", f"{ours}.TooManyEntriesInBatchRequest"):
        sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": f"{i}", "MessageBody": "x"} for i in range(11)])
    with refused("BatchEntryIdsNotDistinct", f"{ours}.BatchEntryIdsNotDistinct"):
        sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "x"}] * 2)
    with refused("InvalidAttributeName", "InvalidAttributeName"):
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Nonsense"])
    sqs.purge_queue(QueueUrl=url)
    with refused("PurgeQueueInProgress", f"{ours}.PurgeQueueInProgress"):
        sqs.purge_queue(QueueUrl=url)


# Messages ------------------------------------------------------------------------------------------


def test_a_fifo_queue_keeps_its_groups_in_order_for_several_clients_at_once(sqs: Any, name: str) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    for first in range(0, 120, 10):
        entries = [
            {"Id": f"{i}", "MessageBody": f"{i}", "MessageGroupId": f"g{i % 8}"} for i in range(first, first + 10)
        ]
        assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
    again = sqs.send_message(QueueUrl=url, MessageBody="0", MessageGroupId="g0")
    seen: list[tuple[str, int]] = []

    def consume() -> None:
        until_s = time.monotonic() + 30
        while len(seen) < 120 and time.monotonic() < until_s:
            given = sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=3, WaitTimeSeconds=1, AttributeNames=["MessageGroupId"]
            ).get("Messages", [])
            seen.extend((one["Attributes"]["MessageGroupId"], int(one["Body"])) for one in given)
            entries = [{"Id": f"{i}", "ReceiptHandle": one["ReceiptHandle"]} for i, one in enumerate(given)]
            if entries:
                assert "Failed" not in sqs.delete_message_batch(QueueUrl=url, Entries=entries)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(consume) for _ in range(4)]:
            done.result(60)
    assert again["SequenceNumber"]
    for group in range(8):
        assert [number for of, number in seen if of == f"g{group}"] == list(range(group, 120, 8))


def test_a_long_poll_ends_when_something_is_sent(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    with ThreadPoolExecutor(1) as threads:
        began_s = time.monotonic()
        waiting = threads.submit(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        time.sleep(0.3)  # nothing tells us that it waits
        sqs.send_message(QueueUrl=url, MessageBody="at last")
        (message,) = waiting.result(20)["Messages"]
    assert message["Body"] == "at last"
    assert time.monotonic() - began_s < 5


def test_dead_letters_move_there_and_back(sqs: Any, name: str) -> None:
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    dead_arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": dead_arn, "maxReceiveCount": "1"})
    url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison")
    (first,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=5, AttributeNames=["All"])["Messages"]
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    (letter,) = sqs.receive_message(QueueUrl=dead, WaitTimeSeconds=10, VisibilityTimeout=0, AttributeNames=["All"])[
        "Messages"
    ]
    assert (letter["Body"], letter["MessageId"]) == ("poison", sent["MessageId"])
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(f":{name}")
    task = sqs.start_message_move_task(SourceArn=dead_arn)["TaskHandle"]
    (back,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10, AttributeNames=["All"])["Messages"]
    # AWS: "All redriven messages are considered new messages".
    assert back["Body"] == "poison"
    assert back["MessageId"] != sent["MessageId"]
    assert back["Attributes"]["ApproximateReceiveCount"] == "1"
    assert int(back["Attributes"]["SentTimestamp"]) > int(first["Attributes"]["SentTimestamp"])
    assert "DeadLetterQueueSourceArn" not in back["Attributes"]
    until_s = time.monotonic() + 10
    while (found := sqs.list_message_move_tasks(SourceArn=dead_arn)["Results"][0])["Status"] != "COMPLETED":
        assert time.monotonic() < until_s, found
        time.sleep(0.05)  # a task has no event to wait for
    assert found["ApproximateNumberOfMessagesMoved"] == 1
    assert task


# Throttling and signatures -------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "standard", "adaptive"])
def test_a_throttled_client_tries_again_until_everything_is_sent(sqs_door: SqsDoor, name: str, mode: str) -> None:
    # boto3 forgets how often it may retry in all: 500 tokens, 5 for each that was throttled.
    eager = client_of(sqs_door, retries={"total_max_attempts": 12, "mode": mode})
    limits = {"ThrottleSendCapacity": "10", "ThrottleSendRefillPerSecond": "10"}
    url = eager.create_queue(QueueName=name, Attributes=limits)["QueueUrl"]
    retries = sum(
        eager.send_message(QueueUrl=url, MessageBody=f"{number}")["ResponseMetadata"]["RetryAttempts"]
        for number in range(25)
    )
    assert retries > 0
    assert sorted(int(one["Body"]) for one in drained(eager, url, 25)) == list(range(25))
    eager.close()


def test_a_client_that_does_not_retry_hears_of_its_throttling(sqs: Any, name: str) -> None:
    limits = {"ThrottleDefaultCapacity": "10", "ThrottleDefaultRefillPerSecond": "0.01"}
    url = sqs.create_queue(QueueName=name, Attributes=limits)["QueueUrl"]
    entries = [{"Id": f"{i}", "MessageBody": "x"} for i in range(10)]
    sqs.send_message_batch(QueueUrl=url, Entries=entries)
    with pytest.raises(ClientError) as throttled:
        sqs.send_message(QueueUrl=url, MessageBody="one more")
    assert throttled.value.response["Error"]["Code"] == "Throttling"
    headers = throttled.value.response["ResponseMetadata"]["HTTPHeaders"]
    assert int(headers["retry-after"]) >= 1
    assert int(headers["x-amz-retry-after"]) >= 1


def test_only_who_signs_with_a_known_key_comes_in(redis_server: RedisServer, name: str) -> None:
    with running_sqs_door(redis_server.url, keys="AKIDEXAMPLE:the-secret") as door:
        right = client_of(door, key="AKIDEXAMPLE", secret="the-secret")
        url = right.create_queue(QueueName=name)["QueueUrl"]
        right.send_message(QueueUrl=url, MessageBody="signed, with ünïcode")
        for key, secret, code in (
            ("AKIDEXAMPLE", "another", "SignatureDoesNotMatch"),
            ("AKIDUNKNOWN", "the-secret", "InvalidClientTokenId"),
        ):
            wrong = client_of(door, key=key, secret=secret)
            with pytest.raises(ClientError) as refused:
                wrong.receive_message(QueueUrl=url)
            assert refused.value.response["Error"]["Code"] == code
            wrong.close()
        (message,) = right.receive_message(QueueUrl=url)["Messages"]
        assert message["Body"] == "signed, with ünïcode"
        right.close()
