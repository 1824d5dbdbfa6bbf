"""What a door counts, on its way into the totals of the fleet: an addition or two a request."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.broker.sqs.errors import SqsError
from fleet.metrics.broker import OTHERS
from fleet.metrics.counters import Counters
from fleet.metrics.sqs import FAILED, OK, QUEUE, REFUSED, REQUEST, THROTTLED
from fleet.state.engine import DONE, Verdict

_MOST_QUEUES = 10_000
"""Of which a door counts each by itself: queues come and go, and a count stays as long as its process."""


class DoorCounts:
    def __init__(self, counters: Counters | None = None) -> None:
        self.counters = counters if counters is not None else Counters()
        self._queues: set[str] = set()

    def request(self, verb: str, outcome: str, seconds: float) -> None:
        """How many there were in all follows from the times: what went well costs nothing more."""
        self.counters.observe(REQUEST, verb or OTHERS, seconds)
        if outcome != OK:
            self.counters.add(REQUEST, verb or OTHERS, outcome)

    def of_queue(self, name: str) -> QueueCounts:
        if len(self._queues) < _MOST_QUEUES:
            self._queues.add(name)
        return QueueCounts(self.counters, name if name in self._queues else OTHERS)


class QueueCounts:
    def __init__(self, counters: Counters, label: str) -> None:
        self._counters = counters
        self._label = label

    def sent(self, partition: int, count: int) -> None:
        if count:
            self._counters.add(QUEUE, self._label, f"sent.{partition}", count)

    def received(self, partition: int, count: int) -> None:
        self._counters.add(QUEUE, self._label, f"received.{partition}", count)

    def concluded(self, partition: int, verdicts: Sequence[Verdict], results: Sequence[int]) -> None:
        deleted = 0
        for verdict, result in zip(verdicts, results, strict=True):
            if result == DONE and verdict.what == "d":
                deleted += 1
        if deleted:
            self._counters.add(QUEUE, self._label, f"deleted.{partition}", deleted)

    def throttled(self, bucket: str) -> None:
        self._counters.add(QUEUE, self._label, f"{THROTTLED}.{bucket}")


def outcome_of(error: SqsError) -> str:
    if error.code == "Throttling":
        return THROTTLED
    return REFUSED if error.status < 500 else FAILED
