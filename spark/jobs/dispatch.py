"""PENDING → queue → QUEUED, one epoch at a time: plan → freeze → publish → mark.

What a crash costs at each place: before the freeze nothing has happened. After it, the ledger says what the epoch
is, whoever comes next publishes it from there, and the queue drops what it has. After the publishing, it is marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, Row

from fleet import failpoint
from spark import schemas
from spark.jobs.setup import Setup, spark_errors
from spark.sources.ledger import Epoch, Refused
from spark.sources.publish import Destination, is_own, publisher, raise_trouble
from spark.transforms.plan import Limits, plan

FULL_AT = 0.9
"""Of Redis' memory: as publishers everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One epoch, as it ended."""

    epoch: int
    claimed: int
    sent: int
    """Appended to the queue."""
    seen: int
    """In the queue already: published before a crash."""
    refused: int
    marked: int


def room(setup: Setup) -> int:
    """How many more the queue may hold."""
    if is_own(setup.to.uri) and setup.line.memory_share() >= FULL_AT:
        return 0
    depth, _ = setup.line.depth(setup.to.uri)
    return max(0, setup.feed.max_depth - depth)


def freeze(setup: Setup, *, most: int) -> Epoch | None:
    """The next epoch. None: nothing is due that its group does not hold."""
    claims = setup.attend(lambda: _planned(setup, most))
    if claims.num_rows == 0:
        return None
    rows, fence = (_rows(part) for part in claims.to_batches(10_000)), setup.line.fence
    epoch = setup.attend(
        lambda: setup.ledger.freeze(rows, jobs=claims.num_rows, fence=fence, now_ms=setup.now_ms())
    )  # fmt: skip
    failpoint.hit("feed-frozen")
    return epoch


def _planned(setup: Setup, most: int) -> Any:
    now_ms, feed = setup.now_ms(), setup.feed
    jobs = setup.ask("to_plan", now_ms=now_ms, window=feed.window)
    planned = plan(jobs, now_ms=now_ms, limits=Limits(window=feed.window, room=most, shards=feed.shards))
    with spark_errors():
        return planned.toArrow()


def finish(setup: Setup, epoch: Epoch) -> Done:
    """From wherever the last driver left it."""
    sent, seen, refused = publish(setup, epoch) if epoch.state == "frozen" else (0, 0, [])
    fence = setup.line.fence
    marked = setup.attend(
        lambda: setup.ledger.mark(epoch.number, refused=refused, fence=fence, now_ms=setup.now_ms())
    )  # fmt: skip
    failpoint.hit("feed-marked")
    return Done(
        epoch=epoch.number, claimed=epoch.jobs, sent=sent, seen=seen, refused=len(refused), marked=marked
    )  # fmt: skip


def publish(setup: Setup, epoch: Epoch) -> tuple[int, int, list[Refused]]:
    to = replace(setup.to, fence=setup.line.fence)
    said = setup.attend(lambda: _said(setup, epoch, to))
    refused: list[Refused] = []
    for row in said:
        if row.refused_job is not None:
            refused.append(Refused(row.refused_job, row.refused_attempt, row.trouble))
        elif row.trouble is not None:
            raise_trouble(row.trouble)
    setup.ledger.published(epoch.number, fence=setup.line.fence)
    failpoint.hit("feed-published")
    return sum(row.sent for row in said), sum(row.seen for row in said), refused


def _said(setup: Setup, epoch: Epoch, to: Destination) -> list[Row]:
    shards = tuple(setup.ledger.shards_of(epoch.number))
    claims: DataFrame = setup.ask("to_publish", epoch=epoch.number, shards=shards)
    with spark_errors():
        return claims.mapInArrow(publisher(to), schemas.PUBLISHED).collect()


def _rows(part: Any) -> list[dict[str, Any]]:
    return [{**row, "msg_group": row.pop("message_group")} for row in part.to_pylist()]


def unfinished(setup: Setup) -> Iterator[Done]:
    """What a driver before us has left behind."""
    while (epoch := setup.ledger.unfinished()) is not None:
        yield finish(setup, epoch)
