"""The sequence of a lease: gate → mediate → settle → the next message, or the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.delivery.reply import Reply
from fleet.outcome import Delivered, Failed, NotSent, Outcome, Refenced, Unreachable
from fleet.state.pool import Policy
from tests.clocks import LoopClock
from tests.unit.workers.links import Link, lease_on
from workers.deliver import Deliveries
from workers.lease import LaneLease

OK, BUSY, FENCED = Reply(200, b"", 0.1), Reply(429, b"", 0.1), Reply(412, b"", 0.1, fenced=True)
BROKEN, REFUSED = Reply(500, b"", 0.1), Reply(0, b"", 0.1, error="REFUSED")
DOWN = NotSent("its breaker is open")
ANSWERED_S = 0.1


class Scene:
    """Stands in for the mediator, too: each request gets the next of these answers, the last one over and over."""

    def __init__(self, *answers: Reply | Outcome, policy: str = "return") -> None:
        self.link = Link(policy=Policy(policy))
        self.answers = list(answers)
        self.sent: list[tuple[str, int]] = []
        self.sent_s: list[float] = []
        self.ended: list[tuple[str, type[Outcome]]] = []
        account = SimpleNamespace(ended=self._on_ended)
        self.deliveries = Deliveries(mediator=cast(Any, self), account=cast(Any, account), clock=LoopClock())

    def send(
        self,
        lease: LaneLease,
        now_ms: float,
        *,
        again: Callable[[LaneLease], None],
        answered: Callable[[LaneLease, Reply], None],
    ) -> Outcome | None:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not isinstance(answer, Reply):
            return answer
        lease.attempt += 1
        self.sent.append((lease.entry.message_id, lease.attempt))
        self.sent_s.append(round(now_ms / 1000, 3))
        answers = asyncio.get_running_loop().call_later(ANSWERED_S, answered, lease, answer)
        lease.transfer = cast(Any, SimpleNamespace(abort=answers.cancel))
        return None

    def _on_ended(self, lease: LaneLease, outcome: Outcome, seconds: float) -> None:
        assert seconds == (0.0 if isinstance(outcome, NotSent) else 0.1)
        self.ended.append((lease.entry.message_id, type(outcome)))

    async def deliver(self, lease: LaneLease, *, for_s: float = 60.0) -> None:
        self.deliveries.deliver(lease)
        await asyncio.sleep(for_s)

    def released(self, lease: LaneLease) -> str:
        return self.link.owed[lease].release


# The gate ------------------------------------------------------------------------------------------


async def test_what_has_lapsed_is_dropped() -> None:
    scene = Scene(OK)
    lease = lease_on(scene.link, deadline_ms=0)
    await scene.deliver(lease)
    assert (scene.sent, scene.link.dropped, scene.link.owed) == ([], [lease], {})


async def test_what_may_not_begin_is_given_back_at_once() -> None:
    scene = Scene(OK)
    lease = lease_on(scene.link, permit_ms=0)
    await scene.deliver(lease)
    assert (scene.sent, scene.ended, scene.released(lease), scene.link.pokes) == ([], [], "ready", 1)


async def test_while_redis_is_silent_the_next_message_waits_for_the_link() -> None:
    scene = Scene(OK)
    lease = lease_on(scene.link, 2)
    scene.link.stalled = True
    await scene.deliver(lease)
    assert (scene.sent, scene.link.held_back) == ([("mg0", 1)], [lease])
    scene.link.stalled = False
    await scene.deliver(lease)
    assert scene.sent[1:] == [("mg1", 1)]


# Attempts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "sent_s", "outcome"),
    [
        ([OK], [0], Delivered),
        ([BUSY], [0], Failed),
        ([FENCED], [0], Refenced),
        ([BROKEN], [0, 1.1, 3.2], Failed),
        ([REFUSED], [0, 1.1, 3.2], Unreachable),
        ([BROKEN, REFUSED, OK], [0, 1.1, 3.2], Delivered),
        ([REFUSED, BUSY], [0, 1.1], Failed),
    ],
)
async def test_what_may_work_soon_is_sent_three_times_after_a_second_and_after_two(
    answers: list[Reply], sent_s: list[float], outcome: type[Outcome]
) -> None:
    scene = Scene(*answers)
    await scene.deliver(lease_on(scene.link))
    assert scene.sent == [("mg0", attempt) for attempt in range(1, len(sent_s) + 1)]
    assert (scene.sent_s, scene.ended) == (sent_s, [("mg0", outcome)])


async def test_between_two_attempts_people_see_when_the_next_begins() -> None:
    scene = Scene(BROKEN)
    lease = lease_on(scene.link)
    await scene.deliver(lease, for_s=0.5)
    assert (round(lease.resumes_ms), lease.transfer) == (1100, None)


async def test_who_stops_makes_no_further_attempt() -> None:
    scene = Scene(BROKEN)
    scene.link.stopping = True
    await scene.deliver(lease_on(scene.link))
    assert (scene.sent, scene.ended) == ([("mg0", 1)], [("mg0", Failed)])


async def test_a_lease_that_lapses_between_two_attempts_is_not_sent_again() -> None:
    scene = Scene(BROKEN)
    lease = lease_on(scene.link, deadline_ms=1000)
    await scene.deliver(lease)
    assert (scene.sent, scene.ended, scene.link.dropped) == ([("mg0", 1)], [], [lease])


async def test_one_that_is_dropped_between_two_attempts_is_not_sent_again() -> None:
    scene = Scene(BROKEN)
    lease = lease_on(scene.link)
    await scene.deliver(lease, for_s=0.5)
    scene.link.drop(lease)
    await asyncio.sleep(60)
    assert (scene.sent, scene.ended) == ([("mg0", 1)], [])


async def test_a_reply_that_is_read_too_late_counts_for_nothing() -> None:
    scene = Scene(OK)
    lease = lease_on(scene.link, 2, deadline_ms=ANSWERED_S * 1000)
    await scene.deliver(lease)
    assert (scene.sent, scene.ended, scene.link.dropped, scene.link.owed) == ([("mg0", 1)], [], [lease], {})


# What is not sent ----------------------------------------------------------------------------------


async def test_what_is_not_sent_ends_in_a_later_turn_of_the_loop() -> None:
    scene = Scene(DOWN)
    lease = lease_on(scene.link)
    scene.deliveries.deliver(lease)
    assert (scene.ended, scene.link.owed) == ([], {})
    await asyncio.sleep(0)
    assert (scene.ended, scene.link.pokes) == ([("mg0", NotSent)], 1)
    assert lease in scene.link.owed


async def test_it_does_not_end_where_its_lease_is_gone_by_then() -> None:
    scene = Scene(DOWN)
    lease = lease_on(scene.link)
    scene.deliveries.deliver(lease)
    lease_on(scene.link)  # granted anew
    await asyncio.sleep(1)
    assert (scene.ended, scene.link.owed) == ([], {})


async def test_thousands_for_one_dead_endpoint_are_no_stack_of_calls() -> None:
    scene = Scene(DOWN, policy="skip")
    await scene.deliver(lease_on(scene.link, 5000))
    assert len(scene.ended) == 5000


# The next message ----------------------------------------------------------------------------------


async def test_one_follows_the_other_to_the_end_of_the_lease() -> None:
    scene = Scene(OK)
    lease = lease_on(scene.link, 3)
    await scene.deliver(lease)
    assert scene.sent == [("mg0", 1), ("mg1", 1), ("mg2", 1)]
    assert scene.ended == [(f"mg{number}", Delivered) for number in range(3)]
    assert (len(scene.link.owed[lease].items), scene.released(lease), scene.link.pokes) == (3, "ready", 3)


async def test_each_begins_with_its_own_first_attempt_and_its_own_patience() -> None:
    scene = Scene(BROKEN, OK)
    lease = lease_on(scene.link, 2)
    lease.probed_since_ms = 5.0
    await scene.deliver(lease)
    assert scene.sent == [("mg0", 1), ("mg0", 2), ("mg1", 1)]
    assert lease.probed_since_ms == 0


@pytest.mark.parametrize(("policy", "sent"), [("return", 3), ("skip", 6)])
async def test_after_a_failure_its_siblings_go_on_only_where_it_is_skipped(policy: str, sent: int) -> None:
    scene = Scene(BROKEN, policy=policy)
    await scene.deliver(lease_on(scene.link, 2))
    assert len(scene.sent) == sent
