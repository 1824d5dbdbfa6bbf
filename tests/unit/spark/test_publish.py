"""A shard goes in rounds: in order, and none after one in which something was not published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from fleet.errors import Fenced, FleetError, SparkGone
from spark import schemas
from spark.sources import publish
from spark.sources.publish import publish_claims, rows_of
from tests.unit.spark.test_send import TO


class Session:
    """Runs the tasks of a round here, one after the other."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.rounds: list[int] = []

    def parallelize(self, parts: list[bytes], tasks: int) -> Any:
        assert tasks == len(parts)
        self.rounds.append(tasks)

        def collect(task: Callable[[list[bytes]], Iterator[Any]]) -> list[Any]:
            return [said for part in parts for said in task([part])]

        return SimpleNamespace(mapPartitions=lambda task: SimpleNamespace(collect=lambda: collect(task)))


CLAIMS = pa.table(
    {
        "shard": [0, 0, 0, 1, 0, 0],
        "seq": [5, 1, 2, 1, 4, 3],
        "job_id": ["e", "a", "b", "x", "d", "c"],
        "attempt": [1] * 6,
        "msg_group": ["g"] * 6,
        "mode": ["NEXT_ON_ERROR"] * 6,
        "pool": ["P"] * 6,
    }
)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids, in the order of sending. What is called `trouble` is not taken."""
    seen: list[str] = []

    def batch_publisher(_to: object) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        def send(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for row in rows_of(batch):
                    trouble = "the queue is away" if row.job_id == "trouble" else None
                    if row.job_id == "a break of the line":
                        return
                    seen.extend([] if trouble else [row.job_id])
                    yield pa.RecordBatch.from_pylist(
                        [{"sent": int(not trouble), "seen": 0, "trouble": trouble}], schema=publish._SCHEMA
                    )

        return send

    monkeypatch.setattr(publish, "batch_publisher", batch_publisher)
    monkeypatch.setattr(publish, "_OWN_ROUND", 2)
    return seen


def test_a_shard_goes_in_rounds_and_in_order(sent: list[str]) -> None:
    session = Session()
    said = publish_claims(session, CLAIMS, TO, go_on=lambda: True)  # type: ignore[arg-type]
    assert [one for one in sent if one != "x"] == ["a", "b", "c", "d", "e"]
    assert (sum(row.sent for row in said), session.rounds) == (6, [2, 1, 1])
    assert CLAIMS.schema.names == schemas.TO_PUBLISH.names


def test_what_stands_behind_trouble_is_not_sent(sent: list[str]) -> None:
    position = CLAIMS.schema.get_field_index("job_id")
    troubled = CLAIMS.set_column(position, "job_id", pa.array(["e", "a", "trouble", "x", "d", "c"]))
    with pytest.raises(FleetError, match="the queue is away"):
        publish_claims(Session(), troubled, TO, go_on=lambda: True)  # type: ignore[arg-type]
    assert sorted(sent) == ["a", "x"]


def test_a_task_of_which_less_is_heard_than_was_sent_ends_the_driver(sent: list[str]) -> None:
    position = CLAIMS.schema.get_field_index("job_id")
    broken = CLAIMS.set_column(position, "job_id", pa.array(["e", "a", "a break of the line", "x", "d", "c"]))
    with pytest.raises(SparkGone):
        publish_claims(Session(), broken, TO, go_on=lambda: True)  # type: ignore[arg-type]
    assert sorted(sent) == ["a", "x"]


def test_no_round_begins_when_the_lead_is_lost(sent: list[str]) -> None:
    leads = iter([True, True, False])
    with pytest.raises(Fenced):
        publish_claims(Session(), CLAIMS, TO, go_on=lambda: next(leads))  # type: ignore[arg-type]
    assert sorted(sent) == ["a", "b", "c", "d", "x"]
