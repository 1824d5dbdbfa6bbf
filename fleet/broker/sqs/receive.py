"""ReceiveMessage: at once, or when something comes, or by the id of an attempt that was answered before."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from fleet.broker.names import message_id
from fleet.broker.sqs import asked, attempts, errors, handle, md5, ranges
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import PREFIX, Queue
from fleet.broker.sqs.charges import charged
from fleet.broker.sqs.handle import Handle
from fleet.broker.sqs.names import arn
from fleet.broker.sqs.send import sequence_number
from fleet.broker.sqs.stored import Header, unpack
from fleet.state.engine import Showing

SENDER = "AIDAFLEETLOCAL0000000"
"""There are no accounts here: everybody is this one."""
Given = Sequence[tuple[int, Showing]]


async def receive_message(queue: Queue, call: Call, *, region: str, waited_s: float = 0.0) -> dict[str, Any]:
    """`waited_s`: for how long it has waited already, where the queue has changed meanwhile."""
    params, attributes = call.params, queue.attributes
    await charged(queue, call)
    most = ranges.messages(params)
    visibility_s = ranges.visibility_s(params, attributes.visibility_s)
    wait_s = ranges.wait_s(params, attributes.wait_s)
    system = asked.system_attributes(params)
    attempt = params.get("ReceiveRequestAttemptId") if attributes.fifo else None
    given: Given = ()
    received_ms = 0
    if attempt:
        given, received_ms = await attempts.again(queue, attempt, visibility_s)
    if not given:
        given = await _receive(queue, call, most, visibility_s, max(0.0, wait_s - waited_s))
        received_ms = queue.wall_ms()
        if attempt and given:
            await attempts.note(queue, attempt, given, received_ms)
    if not given:
        if queue.receiving.is_over and not attributes.fifo:
            raise errors.too_many_in_flight(queue.name)
        return {}
    _count(queue, given)
    names: Sequence[str] = params.get("MessageAttributeNames") or ()
    write = _Writer(queue, system, names, region, received_ms)
    return {"Messages": [write.message(partition, showing) for partition, showing in given]}


async def _receive(queue: Queue, call: Call, most: int, visibility_s: int, wait_s: float) -> Given:
    given = await queue.receiving.ask(most, visibility_s=visibility_s, wait_s=wait_s, is_gone=call.is_gone)
    if given and call.is_gone():
        for partition in {partition for partition, _ in given}:
            await queue.put_back(partition, [one for its, one in given if its == partition])
        return ()
    return given


def _count(queue: Queue, given: Given) -> None:
    if len(queue.engines) == 1:
        queue.counts.received(0, len(given))
        return
    for partition, count in Counter(partition for partition, _ in given).items():
        queue.counts.received(partition, count)


class _Writer:
    """Messages as their receiver asked for them."""

    def __init__(
        self, queue: Queue, system: frozenset[str], names: Sequence[str], region: str, received_ms: int
    ) -> None:
        self._queue = queue
        self._system = system
        self._names = names
        self._region = region
        self._received_ms = received_ms

    def message(self, partition: int, showing: Showing) -> dict[str, Any]:
        queue = self._queue
        header, body = unpack(showing.stored)
        raw = body.encode()
        number = int(showing.number)
        incarnation = queue.record.incarnation
        given = Handle(incarnation, partition, number, showing.times, self._received_ms, showing.group)
        found: dict[str, Any] = {
            "MessageId": header.id or message_id(queue.engines[partition].prefix, incarnation, partition, number),
            "ReceiptHandle": handle.encode(given, queue=queue.name),
            "MD5OfBody": md5.of_body(raw),
            "Body": body,
        }
        if self._system:
            found["Attributes"] = self._attributes(header, raw, showing)
        if header.attributes and self._names:
            chosen = asked.message_attributes(self._names, _decoded(header))
            if chosen:
                found["MessageAttributes"] = chosen
                found["MD5OfMessageAttributes"] = md5.of_attributes(chosen)
        return found

    def _attributes(self, header: Header, raw: bytes, showing: Showing) -> dict[str, str]:
        number = int(showing.number)
        fifo = self._queue.attributes.fifo
        every = {
            "SenderId": header.sender or SENDER,
            "SentTimestamp": str(number // 1000),
            "ApproximateReceiveCount": str(showing.times),
            "ApproximateFirstReceiveTimestamp": str(showing.first_ms),
            "AWSTraceHeader": header.trace,
            "MessageGroupId": showing.group if fifo else header.group,
            "DeadLetterQueueSourceArn": arn(self._region, showing.origin.removeprefix(PREFIX))
            if showing.origin
            else "",
        }
        if fifo:
            every["SequenceNumber"] = sequence_number(number)
            every["MessageDeduplicationId"] = header.dedup_id or sha256(raw).hexdigest()
        return {name: value for name, value in every.items() if value and name in self._system}


def _decoded(header: Header) -> dict[str, dict[str, Any]]:
    """With binary values as bytes."""
    return {
        name: {**value, "BinaryValue": _bytes(value["BinaryValue"])} if "BinaryValue" in value else value
        for name, value in header.attributes.items()
    }


def _bytes(text: str) -> bytes:
    return b64decode(text)
