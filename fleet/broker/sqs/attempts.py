"""ReceiveRequestAttemptId: for five minutes the same messages and handles, until something becomes of one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from fleet.broker.sqs import errors
from fleet.broker.sqs.catalogue import Queue, dedup_digest
from fleet.state.engine import Showing

KEPT_MS = 5 * 60 * 1000
_MOST_CHARACTERS = 128
Given = Sequence[tuple[Showing, str]]
"""Of one partition, with what was noted: when it was received, and how many came in all."""


async def again(queue: Queue, attempt: str, visibility_s: int) -> tuple[list[tuple[int, Showing]], int]:
    """What this attempt was given before, hidden for as long once more, and when. Nothing if it is void, or new."""
    if not 0 < len(attempt) <= _MOST_CHARACTERS or not attempt.isprintable():
        reason = "ReceiveRequestAttemptId can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise errors.invalid_value(attempt, "ReceiveRequestAttemptId", reason)
    name = dedup_digest("", attempt, per_group=False)
    partitions: Sequence[int] = range(len(queue.engines))
    if len(partitions) > 1:
        # It is void as a whole, so nothing is hidden for longer before it is known to be whole.
        looked = await _ask(queue, name, partitions, None)
        given, received_ms = _whole(looked)
        if not given:
            return [], 0
        partitions = [partition for partition in partitions if _received_ms(looked[partition]) == received_ms]
    found = await _ask(queue, name, partitions, visibility_s * 1000)
    return _whole(found)


async def _ask(queue: Queue, name: str, partitions: Sequence[int], visibility_ms: int | None) -> dict[int, Given]:
    asked = (queue.engines[partition].again(name, visibility_ms=visibility_ms) for partition in partitions)
    return dict(zip(partitions, await asyncio.gather(*asked), strict=True))


def _whole(found: Mapping[int, Given]) -> tuple[list[tuple[int, Showing]], int]:
    """What the newest receive by this id was given, and when; nothing if a part of it is missing."""
    newest_ms = max((_received_ms(pairs) for pairs in found.values()), default=0)
    parts = {partition: pairs for partition, pairs in found.items() if newest_ms and _received_ms(pairs) == newest_ms}
    given = [(partition, showing) for partition, pairs in parts.items() for showing, _ in pairs]
    total = next((int(note.partition("/")[2]) for pairs in parts.values() for _, note in pairs), 0)
    return (given, newest_ms) if given and len(given) == total else ([], 0)


def _received_ms(pairs: Given) -> int:
    return int(pairs[0][1].partition("/")[0]) if pairs else 0


async def note(queue: Queue, attempt: str, given: Sequence[tuple[int, Showing]], received_ms: int) -> None:
    name = dedup_digest("", attempt, per_group=False)
    # How many there are stands with each: in another partition is the rest of them.
    said = f"{received_ms}/{len(given)}"
    for partition in {partition for partition, _ in given}:
        showings = [showing for its, showing in given if its == partition]
        await queue.engines[partition].note_attempt(name, showings, said, keep_ms=KEPT_MS)
