"""Queues over the door: created, found, listed, described, changed, purged and deleted; their tags and permissions."""

from __future__ import annotations

import json
import time

import pytest

from tests.integration.sqs.shop import Shop, a_name, arn_of, name_of, refused
from tests.servers.local import RedisServer
from tests.servers.sqs_door import client_of, running_sqs_door


def test_a_new_queue_has_the_attributes_that_aws_gives_it(sqs: Shop) -> None:
    url = sqs.queue()
    found = sqs.attributes(url)
    assert abs(int(found.pop("CreatedTimestamp")) - time.time()) < 60
    assert abs(int(found.pop("LastModifiedTimestamp")) - time.time()) < 60
    assert found == {
        "QueueArn": arn_of(url),
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "VisibilityTimeout": "30",
        "SqsManagedSseEnabled": "true",
    }


def test_a_new_fifo_queue_has_those_of_its_kind(sqs: Shop) -> None:
    found = sqs.attributes(sqs.queue(fifo=True))
    assert (found["FifoQueue"], found["ContentBasedDeduplication"]) == ("true", "false")
    assert (found["DeduplicationScope"], found["FifoThroughputLimit"]) == ("queue", "perQueue")


def test_to_create_it_again_with_what_is_not_given_or_the_same_is_fine(sqs: Shop) -> None:
    name = a_name()
    url = sqs.queue(name=name, VisibilityTimeout="60", DelaySeconds="5")
    assert sqs.queue(name=name) == url
    assert sqs.queue(name=name, DelaySeconds="5") == url
    assert sqs.client.get_queue_url(QueueName=name)["QueueUrl"] == url


def test_a_url_names_the_host_by_which_it_was_asked(sqs: Shop) -> None:
    near = client_of(sqs.url.replace("127.0.0.1", "localhost"), sqs.protocol)
    name = name_of(sqs.queue())
    assert near.get_queue_url(QueueName=name)["QueueUrl"] == f"{near.meta.endpoint_url}/000000000000/{name}"


@pytest.mark.parametrize("name", ["a b", "a" * 81, "x.fifo", "ö"])
def test_a_name_that_cannot_be_is_refused(sqs: Shop, name: str) -> None:
    text = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    with refused("InvalidParameterValue", text):
        sqs.queue(name=name)


def test_a_fifo_queue_is_named_as_one(sqs: Shop) -> None:
    with refused("InvalidParameterValue", lambda text: "must end with .fifo suffix" in text):
        sqs.queue(fifo=True, name=a_name())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "43201"),
        ("DelaySeconds", "901"),
        ("MessageRetentionPeriod", "59"),
        ("MaximumMessageSize", "1023"),
        ("ReceiveMessageWaitTimeSeconds", "21"),
        ("VisibilityTimeout", "-1"),
        ("VisibilityTimeout", "x"),
    ],
)
def test_a_value_out_of_range_is_refused(sqs: Shop, name: str, value: str) -> None:
    url = sqs.queue()
    with refused("InvalidAttributeValue", f"Invalid value for the parameter {name}."):
        sqs.queue({name: value})
    with refused("InvalidAttributeValue", f"Invalid value for the parameter {name}."):
        sqs.set(url, **{name: value})


def test_a_call_changes_all_or_nothing(sqs: Shop) -> None:
    url = sqs.queue()
    with refused("InvalidAttributeName"):
        sqs.set(url, VisibilityTimeout="60", Color="red")
    assert sqs.attributes(url, "VisibilityTimeout") == {"VisibilityTimeout": "30"}


def test_attributes_are_those_that_are_asked_for(sqs: Shop) -> None:
    url = sqs.queue()
    assert sqs.attributes(url, "QueueArn", "Policy") == {"QueueArn": arn_of(url)}
    assert "Attributes" not in sqs.client.get_queue_attributes(QueueUrl=url)
    with refused("InvalidAttributeName", "Unknown Attribute Color."):
        sqs.attributes(url, "Color")


def test_two_kinds_of_encryption_exclude_each_other(sqs: Shop) -> None:
    with refused("InvalidAttributeValue", lambda text: text.startswith("You can use one type of server-side")):
        sqs.queue(KmsMasterKeyId="alias/aws/sqs", SqsManagedSseEnabled="true")
    url = sqs.queue(KmsMasterKeyId="alias/aws/sqs")
    found = sqs.attributes(url)
    assert (found["KmsMasterKeyId"], found["SqsManagedSseEnabled"]) == ("alias/aws/sqs", "false")


def test_a_policy_is_kept_until_an_empty_one_takes_it_away(sqs: Shop) -> None:
    url = sqs.queue(Policy='{"Version":"2012-10-17","Statement":[]}')
    assert sqs.attributes(url)["Policy"] == '{"Version":"2012-10-17","Statement":[]}'
    sqs.set(url, Policy="")
    assert "Policy" not in sqs.attributes(url)


def test_a_change_through_one_door_holds_at_another(sqs: Shop, other: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "x")
    assert other.bodies(url, VisibilityTimeout=0) == ["x"]
    sqs.set(url, VisibilityTimeout="0")
    assert [other.bodies(url) for _ in range(2)] == [["x"], ["x"]]


def test_messages_in_flight_outlive_a_change_of_their_queue(sqs: Shop, other: Shop) -> None:
    url = sqs.fifo()
    for body in ("1", "2"):
        sqs.send(url, body, "g")
    first, second = sqs.receive(url)
    other.set(url, VisibilityTimeout="600", MessageRetentionPeriod="60", DelaySeconds="1")
    assert sqs.counts(url) == (0, 2, 0)
    sqs.delete(url, first)
    sqs.hide(url, second, 0)
    assert sqs.bodies(url) == ["2"]


# Lists -----------------------------------------------------------------------------------------------


def test_queues_are_listed_by_their_beginning_and_by_the_page(sqs: Shop) -> None:
    start = f"listed-{sqs.protocol}-"
    urls = [sqs.queue(name=f"{start}{i}") for i in range(5)]
    assert sqs.client.list_queues(QueueNamePrefix=start)["QueueUrls"] == urls
    first = sqs.client.list_queues(QueueNamePrefix=start, MaxResults=2)
    assert first["QueueUrls"] == urls[:2]
    pages = sqs.client.get_paginator("list_queues").paginate(QueueNamePrefix=start, PaginationConfig={"PageSize": 2})
    assert [page["QueueUrls"] for page in pages] == [urls[:2], urls[2:4], urls[4:]]
    nothing = sqs.client.list_queues(QueueNamePrefix=f"{start}nothing")
    assert "QueueUrls" not in nothing
    assert "NextToken" not in nothing


@pytest.mark.parametrize("most", [0, 1001])
def test_a_page_has_one_to_a_thousand_queues(sqs: Shop, most: int) -> None:
    with refused("InvalidParameterValue", lambda text: f"Value {most} for parameter MaxResults is invalid." in text):
        sqs.client.list_queues(MaxResults=most)


# Purged, deleted and made anew ------------------------------------------------------------------------


def test_a_purge_throws_away_what_waits_what_is_out_and_what_is_delayed(sqs: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "out")
    (out,) = sqs.receive(url)
    sqs.send(url, "waits")
    sqs.send(url, "delayed", DelaySeconds=900)
    assert sqs.counts(url) == (1, 1, 1)
    sqs.client.purge_queue(QueueUrl=url)
    assert sqs.counts(url) == (0, 0, 0)
    with refused("InvalidParameterValue"):
        sqs.hide(url, out, 0)
    sqs.delete(url, out)
    assert sqs.bodies(url) == []
    sqs.send(url, "new")
    assert sqs.bodies(url) == ["new"]


def test_a_purge_forgets_deduplication_ids(sqs: Shop) -> None:
    url = sqs.fifo()
    first = sqs.send(url, "x", "g")
    sqs.client.purge_queue(QueueUrl=url)
    assert sqs.send(url, "x", "g")["MessageId"] != first["MessageId"]
    assert sqs.bodies(url) == ["x"]


def test_how_often_a_queue_may_be_purged_is_configured(sqs_redis: RedisServer, sqs: Shop) -> None:
    url = sqs.queue()
    with running_sqs_door(sqs_redis.url, FLEET_SQS_PURGE_INTERVAL_S="0") as one:
        client = client_of(one.url, sqs.protocol)
        for _ in range(2):
            client.purge_queue(QueueUrl=url)


def test_a_deleted_queue_is_gone_at_every_door(sqs: Shop, other: Shop) -> None:
    url = sqs.queue()
    other.send(url, "x")
    sqs.client.delete_queue(QueueUrl=url)
    for shop in (sqs, other):
        with refused("AWS.SimpleQueueService.NonExistentQueue"):
            shop.send(url, "y")
        with refused("AWS.SimpleQueueService.NonExistentQueue"):
            shop.receive(url)


def test_a_queue_that_was_deleted_can_be_made_anew_at_once_and_is_empty(sqs: Shop, other: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "x")
    sqs.send(url, "out")
    (old,) = other.receive(url, 1)
    for _ in range(3):
        sqs.client.delete_queue(QueueUrl=url)
        sqs.queue(name=name_of(url))
        assert other.bodies(url) == []
        other.send(url, "again")
        assert sqs.bodies(url, WaitTimeSeconds=5) == ["again"]
    # The handle is of another queue, whatever its name.
    with refused("ReceiptHandleIsInvalid"):
        sqs.delete(url, old)


def test_a_queue_made_anew_knows_no_deduplication_ids(sqs: Shop) -> None:
    url = sqs.fifo()
    first = sqs.send(url, "x", "g")
    sqs.client.delete_queue(QueueUrl=url)
    sqs.queue(fifo=True, name=name_of(url), ContentBasedDeduplication="true")
    assert sqs.send(url, "x", "g")["MessageId"] != first["MessageId"]


# Tags and permissions ---------------------------------------------------------------------------------


def test_tags_are_set_changed_listed_and_taken_away(sqs: Shop) -> None:
    name = a_name()
    url = sqs.client.create_queue(QueueName=name, tags={"team": "a", "stage": "test"})["QueueUrl"]
    sqs.client.tag_queue(QueueUrl=url, Tags={"team": "b", "empty": ""})
    assert sqs.client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "b", "stage": "test", "empty": ""}
    sqs.client.untag_queue(QueueUrl=url, TagKeys=["team", "empty", "nothing"])
    assert sqs.client.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "test"}
    sqs.client.untag_queue(QueueUrl=url, TagKeys=["stage"])
    assert "Tags" not in sqs.client.list_queue_tags(QueueUrl=url)


def test_a_queue_has_at_most_fifty_tags(sqs: Shop) -> None:
    url = sqs.queue()
    with refused("InvalidParameterValue", "Too many tags added for queue. Maximum number of tags is 50."):
        sqs.client.tag_queue(QueueUrl=url, Tags={f"{i}": "" for i in range(51)})


def test_permissions_are_kept_shown_and_enforced_on_nobody(sqs: Shop, other: Shop) -> None:
    url = sqs.queue()
    sqs.client.add_permission(
        QueueUrl=url, Label="theirs", AWSAccountIds=["123456789012"], Actions=["ReceiveMessage", "SendMessage"]
    )
    other.send(url, "x")
    shown = json.loads(sqs.attributes(url, "Policy")["Policy"])
    assert shown["Statement"] == [
        {
            "Sid": "theirs",
            "Effect": "Allow",
            "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
            "Action": ["SQS:ReceiveMessage", "SQS:SendMessage"],
            "Resource": arn_of(url),
        }
    ]
    sqs.client.remove_permission(QueueUrl=url, Label="theirs")
    assert "Policy" not in sqs.attributes(url)


def test_a_permission_is_for_actions_that_there_are(sqs: Shop) -> None:
    url = sqs.queue()
    given = {"QueueUrl": url, "Label": "a", "AWSAccountIds": ["123456789012"]}
    with refused("InvalidParameterValue", lambda text: text.startswith("Value SQS:Dance for parameter ActionName")):
        sqs.client.add_permission(**given, Actions=["Dance"])
    with refused("OverLimit", status=403):
        many = ["SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility"] * 2
        sqs.client.add_permission(**given, Actions=many)
