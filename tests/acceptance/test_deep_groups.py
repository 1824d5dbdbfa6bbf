"""Groups of many messages: a lease has dozens of them, and gives them back when it should end."""

from __future__ import annotations

from pathlib import Path

from tests.acceptance.numbers import a_house, active_at, spread
from tests.acceptance.test_seed_pools import ON_ITS_WAY_MS, set_in_file
from tests.waiting import until

AFTER_MS = 1000.0


def test_a_lowered_limit_holds_for_deep_groups_too(tmp_path: Path) -> None:
    """8 groups of 100: each of the 8 leases has up to 64 messages, and is over with the one that is under way."""
    with a_house(tmp_path, pools={"EIGHT": {"concurrency": 8, "capacity": 1000}}) as house:
        sink = house.sink(latency_ms=50)
        house.publish(spread("m", 800, 8, "EIGHT", sink.url))
        house.settle_in()
        house.crew(workers=2)
        until(lambda: sink.answered("m") >= 40, 30, house.logs)
        lowered_ms = set_in_file(house, 2).done_ms
        until(lambda: any(r.began_ms > lowered_ms + AFTER_MS for r in sink.requests("m")), 30, house.logs)
        requests = sink.requests("m")
        late = [r for r in requests if lowered_ms + ON_ITS_WAY_MS < r.began_ms and active_at(requests, r.began_ms) >= 2]
        assert late == [], (
            f"{len(late)} began beside two or more, the last {late[-1].began_ms - lowered_ms:.0f} ms late"
        )
