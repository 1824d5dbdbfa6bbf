"""SendMessage and its batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleet.broker.names import message_id
from fleet.broker.sqs import batch, message
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import Queue, dedup_digest
from fleet.broker.sqs.charges import charged
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.message import Sent
from fleet.broker.sqs.stored import header_of, pack
from fleet.state import engine as engines
from fleet.state.engine import New


async def send_message(queue: Queue, call: Call) -> dict[str, Any]:
    await charged(queue, call)
    sent = message.check(call.params, queue.attributes)
    partition = queue.attributes.partition_of(sent.group)
    (taken,) = await queue.sends[partition].ask([new_message(queue, sent)])
    return _receipt(queue, sent, partition, taken)


async def send_message_batch(queue: Queue, call: Call) -> dict[str, Any]:
    entries = batch.check(call.verb, call.params)
    await charged(queue, call)
    batch.check_sent(entries, queue.attributes)
    good: list[tuple[str, Sent]] = []
    failed: list[dict[str, Any]] = []
    for entry in entries:
        try:
            good.append((entry["Id"], message.check(entry, queue.attributes, in_batch=True)))
        except SqsError as error:
            failed.append(error.entry(entry["Id"]))
    successful = await _send_all(queue, good)
    result: dict[str, Any] = {"Successful": successful}
    if failed:
        result["Failed"] = failed
    return result


async def _send_all(queue: Queue, good: Sequence[tuple[str, Sent]]) -> list[dict[str, Any]]:
    parts: dict[int, list[int]] = {}
    for place, (_, sent) in enumerate(good):
        parts.setdefault(queue.attributes.partition_of(sent.group), []).append(place)
    found: dict[int, dict[str, Any]] = {}
    for partition, places in parts.items():
        taken = await queue.sends[partition].ask([new_message(queue, good[place][1]) for place in places])
        for place, one in zip(places, taken, strict=True):
            id_, sent = good[place]
            found[place] = {"Id": id_, **_receipt(queue, sent, partition, one)}
    return [found[place] for place in range(len(good))]


def new_message(queue: Queue, sent: Sent) -> New:
    """As the engine takes it."""
    attributes = queue.attributes
    stored = pack(header_of(sent, fifo=attributes.fifo), sent.body.decode())
    delay_s = attributes.delay_s if sent.delay_s is None else sent.delay_s
    if not attributes.fifo:
        return New(stored, delay_ms=delay_s * 1000)
    dedup = dedup_digest(sent.group, sent.dedup_id, per_group=attributes.dedup_per_group)
    return New(stored, sent.group, dedup, delay_s * 1000)


def _receipt(queue: Queue, sent: Sent, partition: int, taken: engines.Sent) -> dict[str, Any]:
    found = sent.receipt()
    prefix = queue.engines[partition].prefix
    found["MessageId"] = message_id(prefix, queue.record.incarnation, partition, taken.number)
    if queue.attributes.fifo:
        found["SequenceNumber"] = sequence_number(taken.number)
    return found


def sequence_number(number: int) -> str:
    """Twenty digits, as at AWS: they rise as text does."""
    return f"{number:020d}"
