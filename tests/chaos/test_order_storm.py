"""The order of groups in a storm: on each kind of queue that keeps it visibility lapses, clocks step, tails go back.

Real processes, which are killed and stopped besides. Heads fail now and then, the pool is small, and two queues feed
it, so that groups wait in place, go back to their source, and do not fit. The journals say what came of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.chaos.order_storm import CONCURRENCY, ROWS, Form, Outcome, Row, outcome_of

SHORT, WHOLE = Form(messages=1_020, groups=48, rounds=1), Form(messages=8_000, groups=100, rounds=5)

Storms = dict[str, Future[Outcome]]


@pytest.fixture(
    scope="module", params=[pytest.param(SHORT, id="short"), pytest.param(WHOLE, id="whole", marks=pytest.mark.long)]
)
def storms(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storms]:
    """Those that were asked for, all at once: each has its own processes, and most of its time it waits."""
    asked = (getattr(item, "callspec", None) for item in request.session.items)
    params = [one.params for one in asked if one is not None and one.params.get("storms") is request.param]
    rows: dict[str, Row] = {one["row"].kind: one["row"] for one in params}
    with ThreadPoolExecutor(len(rows)) as pool:
        yield {
            kind: pool.submit(outcome_of, tmp_path_factory.mktemp(kind), row, request.param)
            for kind, row in rows.items()
        }


@pytest.mark.parametrize("row", [pytest.param(row, id=row.kind) for row in ROWS])
def test_groups_keep_their_order_through_lapses_steps_and_tails(storms: Storms, row: Row) -> None:
    outcome = storms[row.kind].result()
    verdict = outcome.verdict
    # Of each lease that a step forward ended: what was on the wire, and what was sent until its holder heard of that.
    by_steps = outcome.steps_forward * 2 * CONCURRENCY
    print(f"{verdict.table()}\n{outcome.facts}; up to {by_steps} by steps of the clock")
    assert outcome.died == []
    assert verdict.sent == verdict.accepted == outcome.sent
    assert verdict.lost == 0, verdict.examples
    assert verdict.inversions == 0, verdict.examples
    assert verdict.overlaps == 0, verdict.examples
    assert verdict.overlaps_by_fenced <= by_steps, verdict.examples
    assert verdict.duplicates <= outcome.in_doubt + by_steps, verdict.examples
    assert outcome.leftover_keys == []
    # Else it was no storm of tails.
    assert outcome.tails_seen > 0 or row.source_holds
