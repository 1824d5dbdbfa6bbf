"""Metrics of the SQS door: its requests, the messages of its queues, and what their throttles let through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from fleet.metrics.broker import OTHERS, labels
from fleet.metrics.counters import Counts, Key
from fleet.metrics.exposition import PLACES, Exposition

REQUEST, QUEUE = "sqs", "sqs_queue"
"""Of a verb: how long its requests took, and how many ended in an outcome other than `OK`. Of a queue: `sent.3` or
`throttled.Send`, where a partition or a bucket stands behind the dot."""
OK = "ok"
THROTTLED, REFUSED, FAILED = "throttled", "refused", "failed"
_ACTIONS = ("sent", "received", "deleted")


def add_sqs(
    page: Exposition,
    counted: Mapping[Key, Counts],
    *,
    queues: Iterable[str] | None = None,
    tokens: Mapping[tuple[str, str], float] | None = None,
) -> None:
    """`queues`: those that exist, or None for all that were counted; the first of them have labels. `tokens`: by queue
    and bucket, of those."""
    _requests(page, {of: counts for (kind, of), counts in counted.items() if kind == REQUEST})
    of_queue = {of: counts for (kind, of), counts in counted.items() if kind == QUEUE}
    # A door that counted very many queues has counted the rest as others itself.
    label_of = {**labels(of_queue if queues is None else queues), OTHERS: OTHERS}
    sums: Counter[tuple[str, str, str]] = Counter()
    for name, counts in of_queue.items():
        if name in label_of:
            for which, value in counts.items():
                what, _, part = which.partition(".")
                sums[what, label_of[name], part] += value
    page.family(
        "fleet_sqs_messages_total", "counter", "Messages sent, received and deleted.",
        [
            ({"queue": label, "partition": part, "action": what}, value)
            for (what, label, part), value in sorted(sums.items()) if what in _ACTIONS
        ],
    )  # fmt: skip
    page.family(
        "fleet_sqs_throttled_total", "counter", "Calls refused because a bucket had not enough.",
        [
            ({"queue": label, "bucket": part}, value)
            for (what, label, part), value in sorted(sums.items()) if what == THROTTLED
        ],
    )  # fmt: skip
    left = [({"queue": name, "bucket": bucket}, value) for (name, bucket), value in sorted((tokens or {}).items())]
    page.family("fleet_sqs_tokens", "gauge", "Tokens that a bucket holds.", left)


def _requests(page: Exposition, by_verb: Mapping[str, Counts]) -> None:
    samples: list[tuple[dict[str, str], float]] = []
    for verb, counts in sorted(by_verb.items()):
        ended = {outcome: counts[outcome] for outcome in (THROTTLED, REFUSED, FAILED) if outcome in counts}
        ended[OK] = sum(counts.get(place, 0) for place in PLACES) - sum(ended.values())
        samples += [({"verb": verb, "outcome": outcome}, value) for outcome, value in sorted(ended.items())]
    page.family("fleet_sqs_requests_total", "counter", "Requests to the SQS door by outcome.", samples)
    about = "How long a request took, its wait for messages included."
    page.histograms("fleet_sqs_request_seconds", about, "verb", sorted(by_verb.items()))
