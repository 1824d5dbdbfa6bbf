"""What becomes of each message of a batch, and in which order: tracked, submitted, given back, buried."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import pytest

from coordinator.admit import Admission, copies_by_pool
from coordinator.route import Routed, route
from coordinator.submit import Portion, Untaken
from fleet.errors import LeaseLapsed
from fleet.message import DEFAULT_POOL
from fleet.sources.base import Received
from fleet.state.queue import Tracking
from tests.unit.coordinator.standins import Alarms, Journal, Lease, Queue, Source, received

NEW = Tracking("new", "1")


class Bringer:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.refuses: set[str] = set()

    async def bring(self, by_pool: dict[str, Portion], batch_id: str) -> Untaken:
        for code, portion in by_pool.items():
            self._journal.append(("bring", code, *(r.received.broker_id for r, _ in portion)))
        return [(r, t, 30) for portion in by_pool.values() for r, t in portion if r.received.broker_id in self.refuses]

    async def expect_no_more(self, by_pool: dict[str, list[tuple[str, str, str, str]]]) -> None:
        self._journal.append(("expect no more", *by_pool))


class World:
    def __init__(self) -> None:
        self.journal: Journal = []
        self.queue, self.source = Queue(self.journal), Source(self.journal)
        self.bringer, self.lease, self.alarms = Bringer(self.journal), Lease(), Alarms()
        self.counts: Counter[str] = Counter()
        self.admission = Admission(
            queue=cast(Any, self.queue),
            source=self.source,
            lease=cast(Any, self.lease),
            pool_for=lambda code: code if code in "PQ" else DEFAULT_POOL,
            bringer=cast(Any, self.bringer),
            alarms=cast(Any, self.alarms),
            counts=self.counts,
        )

    async def admit(self, batch: Sequence[Received], verdicts: Sequence[Tracking] = ()) -> Journal:
        self.queue.verdicts = list(verdicts or [NEW] * len(batch))
        await self.admission.admit(batch)
        return self.journal


@pytest.fixture
def world() -> World:
    return World()


async def test_a_batch_is_tracked_before_any_pool_hears_of_it_and_keeps_its_order_in_each(world: World) -> None:
    batch = [received("1"), received("2", poolCode="Q"), received("3")]
    assert await world.admit(batch) == [("track", "1", "2", "3"), ("bring", "P", "1", "3"), ("bring", "Q", "2")]


async def test_what_does_not_fit_is_given_back_after_all_pools_were_asked(world: World) -> None:
    world.bringer.refuses = {"2"}
    await world.admit([received("1"), received("2")])
    assert world.journal[-3:] == [("bring", "P", "1", "2"), ("untrack", "2"), ("nack", ("newest-2", 30_000))]
    assert world.queue.hidden_ms == {"2": 30_000}


async def test_what_goes_back_is_not_nacked_once_the_lease_is_gone(world: World) -> None:
    world.bringer.refuses, world.lease.held = {"1"}, False
    with pytest.raises(LeaseLapsed):
        await world.admit([received("1")])
    assert world.journal[-1] == ("untrack", "1")


async def test_messages_for_an_unknown_pool_are_counted_and_warned_of_by_pool(world: World) -> None:
    await world.admit([received("1", poolCode="X"), received("2", poolCode="X"), received("3", poolCode="Y")])
    assert ("bring", DEFAULT_POOL, "1", "2", "3") in world.journal
    assert (world.counts["default_pool"], world.alarms.raised["ROUTING"]) == (2, 2)


async def test_what_can_never_be_delivered_is_kept_before_it_is_acked(world: World) -> None:
    bad = Received("bad", "handle-bad", b"no message")
    await world.admit([bad, received("1")], [NEW])
    assert world.journal == [("bury", 1), ("ack", "bad"), ("track", "1"), ("bring", "P", "1")]


async def test_it_is_not_acked_once_the_lease_is_gone(world: World) -> None:
    world.lease.held = False
    with pytest.raises(LeaseLapsed, match="the lease on queue q lapsed"):
        await world.admit([Received("bad", "handle-bad", b"no message")])
    assert world.journal == [("bury", 1)]


async def test_a_copy_is_acked_and_neither_submitted_nor_untracked(world: World) -> None:
    await world.admit([received("1"), received("copy")], [NEW, Tracking("copy")])
    assert world.journal == [("track", "1", "copy"), ("ack", "copy"), ("expect no more", "P"), ("bring", "P", "1")]
    assert world.counts["requeued"] == 1


async def test_what_was_settled_as_ack_before_is_untracked_only_once_the_source_has_let_it_go(world: World) -> None:
    world.source.expired = {"handle-late"}
    await world.admit([received("gone"), received("late")], [Tracking("acked", "1"), Tracking("acked", "2")])
    assert [step for step in world.journal if step[0] == "untrack"] == [("untrack", "gone")]
    assert not [step for step in world.journal if step[0] == "bring"]


async def test_what_is_under_way_is_not_submitted_again(world: World) -> None:
    await world.admit([received("1"), received("2")], [Tracking("redelivered"), NEW])
    assert world.journal == [("track", "1", "2"), ("bring", "P", "2")]
    assert world.counts["redelivered"] == 1


async def test_where_a_source_holds_groups_what_is_newer_goes_back_at_once(world: World) -> None:
    world.source.holds_groups = True
    await world.admit([received("1"), received("2"), received("3", "other")], [Tracking("redelivered"), NEW, NEW])
    assert world.journal == [("track", "1", "2", "3"), ("bring", "P", "3"), ("untrack", "2"), ("nack", ("newest-2", 0))]


# Copies ---------------------------------------------------------------------------------------------


def seen(*batch: tuple[Received, str]) -> Portion:
    routed: list[Routed] = route([one for one, _ in batch], lambda code: code)[0]
    return [(r, Tracking(cast(Any, verdict))) for r, (_, verdict) in zip(routed, batch, strict=True)]


def test_newer_messages_stop_waiting_for_a_copy_by_its_tier_and_lane() -> None:
    copies = seen(
        (received("1", id="m"), "copy"),
        (received("2", id="n", poolCode="Q", highPriority=True), "copy"),
        (received("3", id="o"), "redelivered"),
    )
    assert copies_by_pool("q", copies, Source([])) == {"P": [("r", "g", "q\x1f1", "")], "Q": [("h", "g", "q\x1f2", "")]}


def test_a_copy_beside_its_new_original_is_waited_for_as_that() -> None:
    copies = seen((received("1", id="m"), "new"), (received("2", id="m"), "copy"))
    assert copies_by_pool("q", copies, Source([])) == {"P": [("r", "g", "q\x1f2", "q\x1f1")]}
    of_another_lane = seen((received("1", id="m"), "new"), (received("2", "other", id="m"), "copy"))
    assert copies_by_pool("q", of_another_lane, Source([])) == {"P": [("r", "other", "q\x1f2", "")]}


def test_nobody_waits_for_a_copy_whose_order_its_source_keeps() -> None:
    source = Source([])
    source.holds_groups = True
    assert copies_by_pool("q", seen((received("1"), "copy")), source) == {}
