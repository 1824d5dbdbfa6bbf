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
