"""ReceiveRequestAttemptId: for five minutes the same messages and handles, until something becomes of one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fleet.broker.sqs import errors
from fleet.broker.sqs.catalogue import Queue, dedup_digest
from fleet.state.engine import Showing

KEPT_MS = 5 * 60 * 1000
_MOST_CHARACTERS = 128


async def again(queue: Queue, attempt: str, visibility_s: int) -> tuple[list[tuple[int, Showing]], int]:
    """What this attempt was given before, hidden for as long once more, and when. Nothing if it is void, or new."""
    if not 0 < len(attempt) <= _MOST_CHARACTERS or not attempt.isprintable():
        reason = "ReceiveRequestAttemptId can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise errors.invalid_value(attempt, "ReceiveRequestAttemptId", reason)
    name = dedup_digest("", attempt, per_group=False)
    found = await asyncio.gather(*(engine.again(name, visibility_ms=visibility_s * 1000) for engine in queue.engines))
    given = [(partition, showing) for partition, pairs in enumerate(found) for showing, _ in pairs]
    received_ms = next((int(note) for pairs in found for _, note in pairs), 0)
    return given, received_ms


async def note(queue: Queue, attempt: str, given: Sequence[tuple[int, Showing]], received_ms: int) -> None:
    name = dedup_digest("", attempt, per_group=False)
    for partition in {partition for partition, _ in given}:
        showings = [showing for its, showing in given if its == partition]
        await queue.engines[partition].note_attempt(name, showings, str(received_ms), keep_ms=KEPT_MS)
