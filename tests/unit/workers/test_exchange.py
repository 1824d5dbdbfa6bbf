"""What a worker owes to a pool, what it is granted there, and when it asks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.errors import StateError, StateUnavailable
from fleet.lease import safe_deadline
from fleet.state.cluster import PerNode
from fleet.state.entry import ACK, outbox_item
from fleet.state.keys import PoolKeys
from fleet.state.pool import Claim, Exchanged, Policy
from tests.clocks import LoopClock
from tests.state.stage import in_group
from workers.account import Account
from workers.exchange import KEEP_EVERY_MS, MAX_CLAIM, PERMIT_MS, STALL_MS, PoolLink
from workers.lease import LaneLease
from workers.seats import Seats

TTL_MS = 10_000
TOOK_S = 0.01
"""What a call takes."""


class Scene:
    """A pool that answers each call with the next of what is in store, and everybody else whom a link knows."""

    code, keys = "P", PoolKeys("P")

    def __init__(self, *answers: Exchanged | StateError, seats: int = 500, took_s: float = TOOK_S) -> None:
        self._took_s = took_s
        self.answers = list(answers)
        self.calls: list[dict[str, Any]] = []
        self.called_s: list[float] = []
        self.started: list[LaneLease] = []
        self.reported: list[tuple[int, list[str]]] = []
        self.recoveries = 0
        self.stopping = False
        self.seats = Seats(seats, lambda: self.stopping)
        self.account = Account(clock=LoopClock(), alarms=cast(Any, None))
        self.link = PoolLink(
            pool=cast(Any, self),
            worker="w",
            ttl_ms=TTL_MS,
            clock=LoopClock(),
            seats=self.seats,
            calls_at_once=PerNode(None, 16),
            reporter=cast(Any, SimpleNamespace(report=self._report, recover=self._recover)),
            account=self.account,
            start=self.started.append,
            on_claimed=lambda _: None,
            on_state=lambda _: None,
            on_crash=lambda task: task.result(),
        )

    async def exchange(self, worker: str, **asked: Any) -> Exchanged:
        self.calls.append(asked)
        self.called_s.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if self.answers else answered()
        await asyncio.sleep(self._took_s)
        if isinstance(answer, StateError):
            raise answer
        return answer

    def _report(self, link: PoolLink, call: int, items: list[str]) -> None:
        self.reported.append((call, items))

    def _recover(self, link: PoolLink) -> None:
        self.recoveries += 1

    def asked(self, what: str) -> list[Any]:
        return [call[what] for call in self.calls]

    async def claimed(self, *lanes: str, count: int = 1, **answer: Any) -> list[LaneLease]:
        """What is granted first."""
        self.answers.insert(0, answered(*lanes, count=count, **answer))
        self.link.wake()
        await asyncio.sleep(5)
        self.calls.clear()
        self.called_s.clear()
        return self.started[-len(lanes) :]


def answered(*lanes: str, count: int = 1, epoch: str = "7", **more: Any) -> Exchanged:
    claims = [Claim(lane, epoch, in_group(count, lane)) for lane in lanes]
    facts = {"tag": "ok", "due_ms": None, "refused": set(), "yields": set(), "cascaded": [], "policy": Policy(), **more}
    return Exchanged(claims=claims, **facts)


def acked(lease: LaneLease) -> str:
    return outbox_item(lease.entry, ACK)


# When it asks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "seats", "stopping", "wants"),
    [
        ("wake", 500, False, [MAX_CLAIM]),
        ("wake", 3, False, [3]),
        ("wake", 0, False, []),
        ("wake", 500, True, []),
        ("look", 500, False, [MAX_CLAIM]),
        ("look", 0, False, [0]),
        ("look", 500, True, [0]),
        ("poke", 500, False, []),
    ],
)
async def test_it_asks_for_as_many_as_have_room_and_a_look_asks_in_any_case(
    call: str, seats: int, stopping: bool, wants: list[int]
) -> None:
    scene = Scene(seats=seats)
    scene.stopping = scene.link.stopping = stopping
    getattr(scene.link, call)()
    await asyncio.sleep(5)
    assert scene.asked("want") == wants
    assert scene.seats.has_room == (seats > 0), "what was not granted is free again"


@pytest.mark.parametrize(
    ("seats", "granted", "wants"),
    [
        (500, [MAX_CLAIM - 1], [MAX_CLAIM]),
        (500, [MAX_CLAIM, MAX_CLAIM, 0], [MAX_CLAIM] * 3),
        # It has no room for more, but others who have are told by its call.
        (MAX_CLAIM + 1, [MAX_CLAIM, 1], [MAX_CLAIM, 1, 0]),
    ],
)
async def test_where_all_that_it_wants_is_granted_there_may_be_more(
    seats: int, granted: list[int], wants: list[int]
) -> None:
    answers = [answered(*(f"{call}-{lane}" for lane in range(count))) for call, count in enumerate(granted)]
    scene = Scene(*answers, seats=seats)
    scene.link.wake()
    await asyncio.sleep(5)
    assert (scene.asked("want"), len(scene.started)) == (wants, sum(granted))


@pytest.mark.parametrize(("ends", "after_ms", "release"), [(False, KEEP_EVERY_MS, "keep"), (True, 0.4, "ready")])
async def test_outcomes_of_a_lease_that_goes_on_gather_for_a_moment_and_one_that_ends_is_settled_at_once(
    ends: bool, after_ms: float, release: str
) -> None:
    scene = Scene(took_s=0.0001)
    (lease,) = await scene.claimed("a")
    for pause_s in (0.0002, 0.0002, 0.0):
        scene.link.owe(lease).items.append(acked(lease))
        scene.link.poke()
        await asyncio.sleep(pause_s)
    if ends:
        scene.link.release(lease)
        scene.link.poke()
    await asyncio.sleep(5)
    first_s, second_s = scene.called_s
    assert (second_s - first_s) * 1000 == pytest.approx(after_ms)
    first, second = scene.asked("settlements")
    assert [len(one.items) for one in (*first, *second)] == [1, 2]
    assert second[0].release == release


@pytest.mark.parametrize(("holds", "calls"), [(True, 0), (False, 1)])
async def test_what_is_trimmed_goes_along_unless_there_is_nothing_to_go_with(holds: bool, calls: int) -> None:
    scene = Scene()
    if holds:
        await scene.claimed("a")
    scene.link.trim(5)
    await asyncio.sleep(5)
    assert scene.asked("trims") == [[5]] * calls
    assert scene.link.busy == holds


# What it is granted --------------------------------------------------------------------------------


@pytest.mark.parametrize("rated", [False, True])
async def test_a_lease_lasts_from_the_moment_before_it_was_asked_for_and_so_does_its_permit(rated: bool) -> None:
    scene = Scene()
    (lease,) = await scene.claimed("a", policy=Policy(rated=rated))
    assert lease.deadline_ms == safe_deadline(0.0, TTL_MS)
    assert lease.permit_ms == (PERMIT_MS if rated else float("inf"))
    assert (scene.link.leases, scene.link.policy.rated) == ({"a": lease}, rated)


async def test_what_was_ours_and_is_granted_anew_is_dropped_first() -> None:
    scene = Scene()
    (first,) = await scene.claimed("a")
    (second,) = await scene.claimed("a", epoch="8")
    assert (scene.link.leases, scene.account.counts) == ({"a": second}, {"leases_lost": 1})
    assert first is not second


async def test_an_epoch_that_is_granted_again_is_not_settled_for_its_first_lease() -> None:
    """Redis forgot the first grant, and its clock had stepped back: seed 601088, with one worker."""
    scene = Scene()
    (first,) = await scene.claimed("a")
    scene.answers.append(answered("a"))
    scene.link.wake()
    await asyncio.sleep(TOOK_S / 2)
    scene.link.release(first).items.append(acked(first))
    await asyncio.sleep(5)
    assert scene.asked("settlements") == [[]], "the outcome is of a lease that nobody knows"
    assert scene.link.leases == {"a": scene.started[1]}


async def test_where_a_high_priority_message_waits_its_lease_is_told_to_yield() -> None:
    scene = Scene()
    one, other = await scene.claimed("a", "b")
    scene.answers.append(answered(yields={1}))
    for lease in (one, other):
        scene.link.owe(lease).items.append(acked(lease))
    scene.link.poke()
    await asyncio.sleep(5)
    assert (one.yielding, other.yielding) == (False, True)


# What it owes --------------------------------------------------------------------------------------


async def test_what_is_accepted_is_reported_and_what_is_refused_is_a_lost_lease() -> None:
    scene = Scene()
    kept, lost, ended = await scene.claimed("kept", "lost", "ended")
    scene.answers.append(answered(refused={1, 2}, cascaded=["a sibling"]))
    for lease in (kept, lost):
        scene.link.owe(lease).items.append(acked(lease))
    scene.link.release(ended).items.append(acked(ended))
    scene.link.poke()
    await asyncio.sleep(5)
    assert scene.reported == [(scene.calls[0]["call"], ["a sibling", acked(kept)])]
    assert scene.link.leases == {"kept": kept}
    assert scene.account.counts == {"settlements_refused": 2, "leases_lost": 1}


async def test_an_answer_that_does_not_come_is_asked_for_again_in_the_same_words() -> None:
    scene = Scene()
    (lease,) = await scene.claimed("a")
    scene.answers += [StateUnavailable("away")] * 3
    scene.link.release(lease).items.append(acked(lease))
    scene.link.poke()
    await asyncio.sleep(5)
    first, *again, after = scene.calls
    assert again == [first] * 3, "said twice it counts once"
    assert (after["call"], after["settlements"], after["want"]) == (first["call"] + 1, [], MAX_CLAIM)
    assert scene.recoveries == 1, "the outbox knows what was accepted"


async def test_who_stops_and_owes_nothing_waits_for_no_answer() -> None:
    scene = Scene(StateUnavailable("away"), StateUnavailable("away"))
    scene.link.stopping = True
    scene.link.look()
    await asyncio.sleep(5)
    assert (len(scene.calls), scene.link.busy) == (1, False)


async def test_what_is_dropped_is_not_settled_and_its_seat_is_free() -> None:
    scene = Scene(seats=1)
    (lease,) = await scene.claimed("a")
    scene.link.owe(lease).items.append(acked(lease))
    had_room = scene.seats.has_room
    scene.link.drop(lease)
    await asyncio.sleep(5)
    assert (had_room, scene.seats.has_room) == (False, True)
    assert [(call["want"], call["settlements"]) for call in scene.calls] == [(1, [])]


# While Redis keeps us waiting -----------------------------------------------------------------------


async def test_redis_is_silent_after_an_error_or_a_while_until_it_answers() -> None:
    scene, now_ms = Scene(), LoopClock().boot_ms
    await scene.claimed("a")
    scene.answers.append(StateUnavailable("away"))
    scene.link.look()
    await asyncio.sleep(TOOK_S / 2)
    assert not scene.link.is_stalled(now_ms())
    assert scene.link.is_stalled(now_ms() + STALL_MS + TOOK_S * 1000)
    await asyncio.sleep(TOOK_S)
    assert scene.link.is_stalled(now_ms()), "it is known at once that nothing is settled"
    await asyncio.sleep(5)
    assert not scene.link.is_stalled(now_ms())


async def test_what_was_held_back_begins_when_redis_has_answered_if_it_is_still_held() -> None:
    scene = Scene()
    kept, lost = await scene.claimed("kept", "lost")
    scene.started.clear()
    for lease in (kept, lost):
        scene.link.hold_back(lease)
    scene.link.drop(lost)
    scene.link.look()
    await asyncio.sleep(5)
    assert scene.started == [kept]
