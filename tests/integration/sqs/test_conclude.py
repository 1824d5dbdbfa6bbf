"""DeleteMessage, ChangeMessageVisibility and their batches over the door."""

from __future__ import annotations

import pytest

from tests.integration.sqs.shop import Shop, refused
from tests.servers.sqs_door import ClockedDoor

EXPIRED = "The receipt handle has expired."
NOT_AVAILABLE = "Message does not exist or is not available for visibility timeout change."


def test_what_is_deleted_does_not_come_back(sqs: Shop) -> None:
    url = sqs.queue(VisibilityTimeout="0")
    sqs.send(url, "x")
    sqs.delete(url, sqs.one(url))
    assert sqs.bodies(url) == []
    assert sqs.counts(url) == (0, 0, 0)


@pytest.mark.parametrize("fifo", [False, True])
def test_to_delete_what_is_gone_is_fine(sqs: Shop, fifo: bool) -> None:
    url = sqs.fifo() if fifo else sqs.queue()
    sqs.send(url, "x", "g" if fifo else "")
    found = sqs.one(url)
    for _ in range(2):
        sqs.delete(url, found)


@pytest.mark.parametrize("handle", ["garbage", "AAAA", "ä", "x" * 2000])
def test_garbage_is_no_handle(sqs: Shop, handle: str) -> None:
    url = sqs.queue()
    with refused("ReceiptHandleIsInvalid"):
        sqs.delete(url, {"ReceiptHandle": handle})
    with refused("ReceiptHandleIsInvalid"):
        sqs.hide(url, {"ReceiptHandle": handle}, 1)


def test_a_handle_of_another_queue_is_none(sqs: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "x")
    found = sqs.one(url)
    with refused("ReceiptHandleIsInvalid"):
        sqs.delete(sqs.queue(), found)


def test_a_handle_of_an_earlier_delivery_deletes_in_a_standard_queue(sqs: Shop) -> None:
    url = sqs.queue(VisibilityTimeout="0")
    sqs.send(url, "x")
    first = sqs.one(url)
    sqs.one(url)
    sqs.delete(url, first)
    assert sqs.bodies(url) == []


def test_a_lapsed_handle_deletes_nothing_in_a_fifo_queue(sqs: Shop) -> None:
    url = sqs.fifo(VisibilityTimeout="0")
    sqs.send(url, "x", "g")
    first = sqs.one(url)
    handle = first["ReceiptHandle"]
    with refused("InvalidParameterValue", f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {EXPIRED}"):
        sqs.delete(url, first)
    (second,) = sqs.receive(url, VisibilityTimeout=30)
    with refused("InvalidParameterValue", f"Value {handle} for parameter ReceiptHandle is invalid. Reason: {EXPIRED}"):
        sqs.delete(url, first)
    sqs.delete(url, second)


@pytest.mark.parametrize("fifo", [False, True])
def test_a_visibility_of_zero_shows_it_at_once(sqs: Shop, fifo: bool) -> None:
    url = sqs.fifo() if fifo else sqs.queue()
    sqs.send(url, "x", "g" if fifo else "")
    sqs.hide(url, sqs.one(url), 0)
    assert sqs.one(url)["Attributes"]["ApproximateReceiveCount"] == "2"


def test_a_group_waits_for_a_message_that_is_shown_again(sqs: Shop) -> None:
    url = sqs.fifo()
    for body in ("1", "2", "3"):
        sqs.send(url, body, "g")
    sqs.hide(url, sqs.receive(url, 1)[0], 0)
    assert sqs.bodies(url) == ["1", "2", "3"]


@pytest.mark.parametrize("fifo", [False, True])
def test_what_is_gone_cannot_be_hidden(sqs: Shop, fifo: bool) -> None:
    url = sqs.fifo() if fifo else sqs.queue()
    sqs.send(url, "x", "g" if fifo else "")
    found = sqs.one(url)
    sqs.delete(url, found)
    text = f"Value {found['ReceiptHandle']} for parameter ReceiptHandle is invalid. Reason: {NOT_AVAILABLE}"
    with refused("InvalidParameterValue", text):
        sqs.hide(url, found, 10)


def test_what_is_shown_again_cannot_be_hidden_and_stays_shown(sqs: Shop) -> None:
    url, fifo = sqs.queue(), sqs.fifo()
    for one, group in ((url, ""), (fifo, "g")):
        sqs.send(one, "x", group)
    found, ordered = sqs.one(url, VisibilityTimeout=0), sqs.one(fifo, VisibilityTimeout=0)
    with refused("AWS.SimpleQueueService.MessageNotInflight", "The specified message isn't in flight."):
        sqs.hide(url, found, 10)
    with refused("InvalidParameterValue", lambda text: text.endswith(EXPIRED)):
        sqs.hide(fifo, ordered, 10)
    entry = {"Id": "x", "ReceiptHandle": found["ReceiptHandle"], "VisibilityTimeout": 10}
    (failed,) = sqs.client.change_message_visibility_batch(QueueUrl=url, Entries=[entry])["Failed"]
    assert (failed["Code"], failed["SenderFault"]) == ("AWS.SimpleQueueService.MessageNotInflight", True)
    assert (sqs.bodies(url), sqs.bodies(fifo)) == (["x"], ["x"])


def test_a_visibility_above_twelve_hours_is_refused(sqs: Shop) -> None:
    url = sqs.queue()
    sqs.send(url, "x")
    with refused("InvalidParameterValue", lambda text: "43201" in text and "VisibilityTimeout" in text):
        sqs.hide(url, sqs.one(url), 43_201)


def test_a_message_is_hidden_for_twelve_hours_in_total(clocked: ClockedDoor, timed: Shop) -> None:
    url = timed.queue()
    timed.send(url, "x")
    found = timed.one(url, VisibilityTimeout=3600)
    clocked.pass_s(1800)
    text = (
        "Value 43200 for parameter VisibilityTimeout is invalid."
        " Reason: Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
    )
    with refused("InvalidParameterValue", text):
        timed.hide(url, found, 43_200)
    timed.hide(url, found, 43_200 - 1800)
    clocked.pass_s(43_200 - 1801)
    assert timed.bodies(url) == []
    clocked.pass_s(1)
    assert timed.bodies(url) == ["x"]


# Batches ---------------------------------------------------------------------------------------------


def test_a_batch_of_deletions_fails_by_the_entry(sqs: Shop) -> None:
    url = sqs.queue()
    for i in range(3):
        sqs.send(url, f"{i}")
    handles = [one["ReceiptHandle"] for one in sqs.receive(url)]
    entries = [{"Id": f"d{i}", "ReceiptHandle": handle} for i, handle in enumerate([*handles, "garbage"])]
    found = sqs.client.delete_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in found["Successful"]] == ["d0", "d1", "d2"]
    assert found["Failed"] == [
        {
            "Id": "d3",
            "SenderFault": True,
            "Code": "ReceiptHandleIsInvalid",
            "Message": 'The input receipt handle "garbage" is not a valid receipt handle.',
        }
    ]
    assert sqs.counts(url) == (0, 0, 0)


def test_a_batch_of_visibilities_fails_by_the_entry(sqs: Shop) -> None:
    url = sqs.queue()
    for i in range(2):
        sqs.send(url, f"{i}")
    first, second = (one["ReceiptHandle"] for one in sqs.receive(url))
    entries = [
        {"Id": "now", "ReceiptHandle": first, "VisibilityTimeout": 0},
        {"Id": "beyond", "ReceiptHandle": second, "VisibilityTimeout": 43_201},
    ]
    found = sqs.client.change_message_visibility_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in found["Successful"]] == ["now"]
    assert [(one["Id"], one["Code"]) for one in found["Failed"]] == [("beyond", "InvalidParameterValue")]
    assert sqs.counts(url) == (1, 1, 0)


def test_a_batch_of_messages_fails_by_the_entry(sqs: Shop) -> None:
    url = sqs.queue(MaximumMessageSize="1024")
    bodies = ["good", "x" * 1025, "bell\x07", "also good"]
    entries = [{"Id": f"{i}", "MessageBody": body} for i, body in enumerate(bodies)]
    found = sqs.client.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in found["Successful"]] == ["0", "3"]
    assert [(one["Id"], one["Code"]) for one in found["Failed"]] == [
        ("1", "InvalidParameterValue"),
        ("2", "InvalidMessageContents"),
    ]
    assert sorted(sqs.bodies(url)) == ["also good", "good"]


@pytest.mark.parametrize("fifo", [False, True])
def test_a_handle_whose_time_is_over_deletes_in_a_standard_queue_alone(
    timed: Shop, clocked: ClockedDoor, fifo: bool
) -> None:
    url = (timed.fifo if fifo else timed.queue)()
    timed.send(url, "x", "g" if fifo else "")
    found = timed.one(url)
    clocked.pass_s(30)
    if fifo:
        with refused("InvalidParameterValue", lambda text: text.endswith(EXPIRED)):
            timed.delete(url, found)
        assert timed.bodies(url) == ["x"]
    else:
        timed.delete(url, found)
        assert timed.bodies(url) == []


def test_an_extension_counts_from_now(timed: Shop, clocked: ClockedDoor) -> None:
    url = timed.queue()
    timed.send(url, "x")
    found = timed.one(url)
    clocked.pass_s(20)
    timed.hide(url, found, 20)
    clocked.pass_s(19)
    assert timed.bodies(url) == []
    clocked.pass_s(1)
    assert timed.bodies(url) == ["x"]
