"""PENDING → queue → QUEUED, one epoch at a time: plan → freeze → publish → mark.

What a crash costs at each place: before the freeze, nothing has happened. After it, the ledger says what the epoch is:
the next driver publishes it from there, and the queue drops what it has. After the publishing, it is only marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import Row

from fleet import failpoint
from fleet.sources.own.address import is_own
from fleet.state.registry import NEARLY_FULL
from spark.room import QueueRoom, room_for
from spark.sources.ledger import Backlog, Epoch, Refused
from spark.sources.publish import publish_claims
from spark.sources.send import Destination
from spark.steps.setup import Setup, spark_errors
from spark.transforms.plan import Limits, plan


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


def room(setup: Setup, found: Backlog) -> QueueRoom:
    """How many more the queue may hold."""
    if is_own(setup.to.uri) and setup.lead.memory_share() >= NEARLY_FULL:
        return QueueRoom(0)
    depth, _ = setup.lead.depth(setup.to.uri)
    return room_for(found.pools, depth=depth, max_depth=setup.feed.max_depth)


def freeze(setup: Setup, room: QueueRoom, *, due: int | None = None) -> Epoch | None:
    """The next epoch. None: groups hold all that is due. `due`: how many jobs are due, where it is known."""
    claims = setup.attend(lambda: _claims(setup, room, due))
    if claims.num_rows == 0:
        return None
    fence = setup.lead.fence
    epoch = setup.attend(lambda: setup.ledger.freeze(claims, fence=fence, now_ms=setup.now_ms()))
    failpoint.hit("feed-frozen")
    return epoch


def _claims(setup: Setup, room: QueueRoom, due: int | None) -> pa.Table:
    # Cutting off what is too much takes a sort of all of it: not done where all will fit.
    most = min(room.jobs, setup.feed.batch_size)
    claims = _planned(setup, None if due is not None and due <= most else most, room)
    return claims if claims.num_rows <= most else _planned(setup, most, room)


def _planned(setup: Setup, most: int | None, room: QueueRoom) -> pa.Table:
    feed = setup.feed
    jobs = setup.ask("to_plan", now_ms=setup.now_ms(), window=feed.window)
    limits = Limits(window=feed.window, room=most, pools=room.pools, shards=feed.shards)
    with spark_errors():
        return plan(jobs, limits=limits).toArrow()


def finish(setup: Setup, epoch: Epoch) -> Done:
    """Take the epoch to its end, from wherever the last driver left it."""
    sent, seen, refused = publish(setup, epoch) if epoch.state == "frozen" else (0, 0, [])
    fence = setup.lead.fence
    marked = setup.attend(
        lambda: setup.ledger.mark(epoch.number, jobs=epoch.jobs, fence=fence, now_ms=setup.now_ms())
    )  # fmt: skip
    failpoint.hit("feed-marked")
    return Done(
        epoch=epoch.number, claimed=epoch.jobs, sent=sent, seen=seen, refused=len(refused), marked=marked
    )  # fmt: skip


def publish(setup: Setup, epoch: Epoch) -> tuple[int, int, list[Refused]]:
    to = replace(setup.to, fence=setup.lead.fence)
    said = setup.attend(lambda: _send(setup, epoch, to))
    refused = [Refused(row.refused_job, row.refused_attempt, row.trouble) for row in said if row.refused_job]
    fence = setup.lead.fence
    setup.attend(lambda: setup.ledger.published(epoch.number, refused=refused, fence=fence, now_ms=setup.now_ms()))
    failpoint.hit("feed-published")
    return sum(row.sent for row in said), sum(row.seen for row in said), refused


def _send(setup: Setup, epoch: Epoch, to: Destination) -> list[Row]:
    claims = _in_ledger(setup, epoch) if epoch.claims is None else epoch.claims
    with spark_errors():
        return publish_claims(setup.spark.session, claims, to, go_on=lambda: setup.lead.still_leads(to.fence))


def _in_ledger(setup: Setup, epoch: Epoch) -> pa.Table:
    shards = tuple(setup.ledger.shards_of(epoch.number))
    if not shards:
        return pa.table({})  # somebody has deleted the claims: what they claimed is PENDING, and planned anew
    rows = setup.ask("to_publish", epoch=epoch.number, shards=shards)
    with spark_errors():
        return rows.toArrow()


def unfinished(setup: Setup) -> Iterator[Done]:
    """Finish what a driver before us has left behind."""
    while (epoch := setup.ledger.unfinished()) is not None:
        yield finish(setup, epoch)
