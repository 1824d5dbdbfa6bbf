from __future__ import annotations

from collections import Counter

from fleet.operate.views import QueueNow, queue_json
from fleet.sources.base import Depth
from fleet.state.observe import QueueView


def test_no_fewer_messages_were_taken_than_something_became_of() -> None:
    # The coordinator that took a hundred was killed before its heartbeat; another gave them back.
    counts = Counter(received=10, acked=5, nacked=100, refused=3, malformed=1)
    queue = QueueNow(QueueView("q", "c", tracked=4, settled=0, dead=0, counts=counts), Depth(0, 0, 0.0))
    shown = queue_json(queue)
    assert (shown["totalMessages"], shown["totalFailed"]) == (113, 100)
