"""SendMessage and its batch, over the door."""

from __future__ import annotations

from hashlib import md5

from tests.integration.sqs.shop import Shop, refused


def test_what_was_sent_is_received(sqs: Shop) -> None:
    url = sqs.queue()
    sent = sqs.send(url, "größe <&> \U0001f600")
    found = sqs.one(url)
    assert found["Body"] == "größe <&> \U0001f600"
    assert found["MessageId"] == sent["MessageId"]
    assert found["MD5OfBody"] == sent["MD5OfMessageBody"] == md5(found["Body"].encode()).hexdigest()


def test_a_queue_that_is_not_there_takes_nothing(sqs: Shop) -> None:
    text = "The specified queue does not exist" + ("." if sqs.protocol == "json" else " for this wsdl version.")
    with refused("AWS.SimpleQueueService.NonExistentQueue", text):
        sqs.send(f"{sqs.url}/000000000000/nothing", "x")


def test_an_entry_has_a_delay_of_its_own_and_fails_alone(sqs: Shop) -> None:
    url = sqs.queue()
    entries = [
        {"Id": "later", "MessageBody": "x", "DelaySeconds": 900},
        {"Id": "never", "MessageBody": "y", "DelaySeconds": 901},
        {"Id": "now", "MessageBody": "z"},
    ]
    found = sqs.client.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in found["Successful"]] == ["later", "now"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in found["Failed"]] == [
        ("never", "InvalidParameterValue", True)
    ]
    assert sqs.bodies(url) == ["z"]
    assert sqs.counts(url) == (0, 1, 1)


def test_a_repeated_entry_is_answered_with_the_first_message(sqs: Shop) -> None:
    url = sqs.fifo()
    entries = [{"Id": f"{i}", "MessageBody": "same", "MessageGroupId": "g"} for i in range(3)]
    found = sqs.client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    assert len({one["MessageId"] for one in found}) == 1
    assert sqs.bodies(url) == ["same"]


def test_a_message_of_one_mebibyte_comes_as_it_was_sent(sqs: Shop) -> None:
    url = sqs.queue()
    body = "ü" * (512 * 1024)
    sqs.send(url, body)
    assert sqs.bodies(url) == [body]
