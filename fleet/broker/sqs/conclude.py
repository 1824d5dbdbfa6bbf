"""DeleteMessage, ChangeMessageVisibility, and their batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fleet.broker.sqs import batch, errors, handle, ranges
from fleet.broker.sqs.attributes import MOST_VISIBILITY_S
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import Queue
from fleet.broker.sqs.charges import charged
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.handle import Handle
from fleet.state.engine import DONE, GONE, LAPSED, SHOWN_AGAIN, Verdict

What = Callable[[Queue, Handle, dict[str, Any]], str]
"""What is asked for, as the engine has it."""
Judge = Callable[[Queue, str, int], SqsError | None]
"""(queue, receipt handle, what came of it) → what its asker is told."""


async def delete_message(queue: Queue, call: Call) -> None:
    await charged(queue, call)
    await _single(queue, call, _delete, _deleted)


async def change_message_visibility(queue: Queue, call: Call) -> None:
    await charged(queue, call)
    await _single(queue, call, _hide, _hidden)


async def delete_message_batch(queue: Queue, call: Call) -> dict[str, Any]:
    return await _batch(queue, call, _delete, _deleted)


async def change_message_visibility_batch(queue: Queue, call: Call) -> dict[str, Any]:
    return await _batch(queue, call, _hide, _hidden)


async def _single(queue: Queue, call: Call, what: What, judge: Judge) -> None:
    params = call.params
    given = _handle(queue, params)
    (result,) = await queue.concludes[given.partition].ask([_verdict(given, what(queue, given, params))])
    error = judge(queue, params["ReceiptHandle"], result)
    if error is not None:
        raise error


async def _batch(queue: Queue, call: Call, what: What, judge: Judge) -> dict[str, Any]:
    entries = batch.check(call.verb, call.params)
    await charged(queue, call)
    failed: dict[str, SqsError] = {}
    parts: dict[int, tuple[list[dict[str, Any]], list[Verdict]]] = {}
    for entry in entries:
        try:
            given = _handle(queue, entry)
            verdict = _verdict(given, what(queue, given, entry))
        except SqsError as error:
            failed[entry["Id"]] = error
            continue
        part = parts.get(given.partition)
        if part is None:
            part = parts[given.partition] = ([], [])
        part[0].append(entry)
        part[1].append(verdict)
    for partition, (asked, verdicts) in parts.items():
        results = await queue.concludes[partition].ask(verdicts)
        for entry, result in zip(asked, results, strict=True):
            if result != DONE and (refused := judge(queue, entry["ReceiptHandle"], result)) is not None:
                failed[entry["Id"]] = refused
    successful = [{"Id": entry["Id"]} for entry in entries if entry["Id"] not in failed]
    return _result(successful, [error.entry(id_) for id_, error in failed.items()])


def _result(successful: Sequence[dict[str, Any]], failed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"Successful": successful}
    if failed:
        found["Failed"] = failed
    return found


def _handle(queue: Queue, params: dict[str, Any]) -> Handle:
    text = params.get("ReceiptHandle")
    if not text:
        raise errors.missing_parameter("ReceiptHandle")
    return handle.decode(
        text, queue=queue.name, incarnation=queue.record.incarnation, partitions=queue.attributes.partitions
    )


def _verdict(given: Handle, what: str) -> Verdict:
    return Verdict(str(given.number), given.count, given.group, what)


def _delete(*_: object) -> str:
    return "d"


def _hide(queue: Queue, given: Handle, params: dict[str, Any]) -> str:
    seconds = ranges.changed_visibility_s(params)
    if queue.wall_ms() + seconds * 1000 > given.received_ms + MOST_VISIBILITY_S * 1000:
        raise errors.visibility_beyond_limit(seconds)
    return f"h{seconds * 1000}"


def _deleted(queue: Queue, text: str, result: int) -> SqsError | None:
    """What is gone is deleted. Of an ordered queue a showing whose time is over may not delete: another may have it."""
    if queue.attributes.fifo and result in (LAPSED, SHOWN_AGAIN):
        return errors.receipt_handle_expired(text)
    return None


def _hidden(queue: Queue, text: str, result: int) -> SqsError | None:
    if result == DONE:
        return None
    if result == GONE:
        return errors.message_not_available(text)
    return errors.receipt_handle_expired(text) if queue.attributes.fifo else errors.message_not_in_flight()
