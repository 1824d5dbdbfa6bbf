"""A driver killed with SIGKILL at each place where that could matter. Whoever leads next finishes what it had begun."""

from __future__ import annotations

import dataclasses

import pytest
from sqlalchemy import func, select

from fleet.jobs.records import MODES
from fleet.jobs.schema import claims, epochs
from tests.spark.driver import Ground

JOBS, GROUPS = 6000, 500
MOST_OUT = {"IMMEDIATE": JOBS, "NEXT_ON_ERROR": 10, "BLOCK_ON_ERROR": 1}
"""Of one group, before any outcome is known."""


# Two on each database. `test_whole.py` kills at every one of them, with everything else running; each takes half a
# minute, so three are for the long form.
@pytest.mark.parametrize(
    ("database_url", "place", "state", "seen"),
    [
        pytest.param("sqlite", "feed-frozen:kill:2", "frozen", False, id="after the claim", marks=pytest.mark.long),
        # The third batch of a shard: of an epoch's other shard nothing is in the queue then, or all.
        pytest.param("postgresql", "feed-publishing:kill-driver:3", "frozen", True, id="in the middle of publishing"),
        pytest.param(
            "postgresql", "feed-published:kill:2", "published", False, id="before the mark", marks=pytest.mark.long
        ),
        pytest.param(
            "sqlite", "feed-marked:kill:2", "marked", False, id="at the end of the epoch", marks=pytest.mark.long
        ),
    ],
    indirect=["database_url"],
)
def test_a_killed_driver_costs_no_job_publishes_none_twice_and_keeps_order(
    ground: Ground, place: str, state: str, seen: bool
) -> None:
    added = ground.add(JOBS, groups=GROUPS, modes=MODES)
    # All at once could be out, had each epoch not its limit: the kill is in the second, or amid a large first one.
    ground.feed = dataclasses.replace(ground.feed, batch_size=4000 if seen else 1500)
    ground.killed_at(place)
    with ground.store.engine.connect() as connection:
        states = connection.execute(select(epochs.c.state).order_by(epochs.c.epoch)).scalars().all()
        frozen = connection.execute(select(func.count()).select_from(claims)).scalar_one()
    assert states[-1] == state
    assert frozen > 0
    with ground.leading() as feed:
        replayed = feed.totals.sent + feed.totals.seen
        assert (feed.totals.seen > 0) == seen
        assert (replayed > 0) == (state == "frozen")
        feed.once()
    messages = ground.drain()
    held = {job for place, job in enumerate(added) if place // GROUPS >= MOST_OUT[MODES[place % GROUPS % 3]]}
    ground.judge(set(added) - held, messages)
    assert ground.states() == {("QUEUED", 1): JOBS - len(held), ("PENDING", 1): len(held)}
