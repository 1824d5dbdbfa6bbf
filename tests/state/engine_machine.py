"""Drives the engine under our own queues: every verb, in any order, beside a few lines that say what each may answer.

Messages are conserved: each that was taken stands in the queue, in its outbox or in the target, or has left by a verb
that says so. Of a subscription the topic's other one is emptied now and then, so bodies are held by one or by two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.state.connect import Client
from fleet.state.engine import (
    DEDUP_MS,
    DONE,
    GONE,
    LAPSED,
    SHOWN_AGAIN,
    Engine,
    Kind,
    New,
    Rules,
    Stale,
    Taking,
    Verdict,
    every_body,
)
from fleet.state.keys import OwnQueueKeys
from fleet.state.topic import Copies, Topic
from tests.state.engine_model import RETENTION_MS, Handle, Message, Model
from tests.state.stage import NOON_MS

T = TypeVar("T")
VISIBILITY_MS, MAX_COUNT = 30_000, 2
BACKOFF_MS, MOST_BACKOFF_MS = 1_000, 3_000
TARGET, ATTEMPT, DAY_MS = "dead", "attempt", 86_400_000
GROUPS = st.sampled_from(["", "a", "a", "b"])
SELDOM = st.sampled_from([""] * 13 + ["purge", "another", "seek"])
"""What begins from nothing: as often as other verbs, it would leave no queue old enough for anything to go wrong."""
PAUSES = st.sampled_from([1, 999, 5_000, *[VISIBILITY_MS, VISIBILITY_MS + MOST_BACKOFF_MS] * 3, DEDUP_MS, RETENTION_MS])


class EngineMachine(RuleBasedStateMachine):
    kind: Kind = "o"

    def __init__(self, connected: Callable[[], Awaitable[Client]]) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.client: Client = self.run(connected())
        self.now_ms = NOON_MS
        self.incarnation = 1
        self.model = Model()
        self.handles: list[Handle] = []
        self.attempt: list[tuple[Message, int]] = []
        """Of the last receive: what it was given, and hidden until when."""
        self.open()
        self.run(self.target.establish())

    def run(self, job: Awaitable[T]) -> T:
        async def done() -> T:
            return await job

        return self.loop.run_until_complete(done())

    def open(self) -> None:
        known: Any = {"incarnation": self.incarnation, "version": 1, "now_ms": str(self.now_ms)}
        self.target = Engine(self.client, OwnQueueKeys("target"), kind="s", **known | {"incarnation": 1})
        if self.kind == "t":
            self.topic = Topic(self.client, "topic", **known)
            self.engine = self.topic.subscription("ours", incarnation=self.incarnation, version=1)
            self.other = self.topic.subscription("other", incarnation=self.incarnation, version=1)
            self.run(self.topic.establish())
            self.run(self.other.establish())
        else:
            self.engine = Engine(self.client, OwnQueueKeys("q"), kind=self.kind, **known)
        self.run(self.engine.establish())

    @property
    def shows(self) -> Rules:
        backoff = {"backoff_ms": BACKOFF_MS, "most_backoff_ms": MOST_BACKOFF_MS} if self.kind == "t" else {}
        return Rules(
            VISIBILITY_MS,
            per_lane=1 if self.kind == "t" else 16,
            retention_ms=RETENTION_MS,
            max_count=MAX_COUNT,
            target=TARGET,
            **backoff,
        )

    # What comes and goes ------------------------------------------------------------------------------

    @initialize(groups=st.lists(GROUPS, min_size=2, max_size=6))
    def begin(self, groups: list[str]) -> None:
        """With messages that are out: of most verbs it is they that matter."""
        self.send(groups, delayed=False, dedup="")
        self.receive(len(groups))

    @rule(
        groups=st.lists(GROUPS, min_size=1, max_size=4),
        delayed=st.booleans(),
        dedup=st.sampled_from(["", "", "x", "y"]),
    )
    def send(self, groups: list[str], delayed: bool, dedup: str) -> None:
        if self.kind == "s":
            groups, dedup = [""] * len(groups), ""
        bodies = [f"tbody {len(self.model.queue)} {place}" for place in range(len(groups))]
        if self.kind == "t":
            copies = [Copies(body, group, [(0, True), (1, False)]) for body, group in zip(bodies, groups, strict=True)]
            numbers = self.run(self.topic.publish(copies, ["ours", "other"])).numbers
            self.model.queue += [
                Message(number, group, body, 0) for number, group, body in zip(numbers, groups, bodies, strict=True)
            ]
            return
        delay_ms = 5_000 if delayed and self.kind == "s" else 0
        new = [
            New(body, group, dedup and f"{dedup}{place}", delay_ms)
            for place, (body, group) in enumerate(zip(bodies, groups, strict=True))
        ]
        for one, sent in zip(new, self.run(self.engine.send(new)), strict=True):
            before = self.model.dedup.get(one.dedup_id) if one.dedup_id else None
            if before is not None and before // 1000 + DEDUP_MS > self.now_ms:
                assert (sent.is_new, sent.number) == (False, before)
                continue
            assert sent.is_new
            if one.dedup_id:
                self.model.dedup[one.dedup_id] = sent.number
            ripe_ms = self.now_ms + delay_ms if delay_ms else 0
            self.model.queue.append(Message(sent.number, one.group, one.stored, ripe_ms))

    @rule(most=st.integers(1, 10))
    def receive(self, most: int) -> None:
        model, now_ms = self.model, self.now_ms
        heads = [one for one in model.queue if not model.before(one) and not one.is_hidden(now_ms)]
        taking = self.run(self.engine.receive(most, self.shows))
        shown = {int(one.number) for one in taking.showings}
        assert len(shown) == len(taking.showings) <= most
        there = set(map(int, self.run(self.members())))
        left = [one for one in model.queue if one.number not in there]
        for one in left:
            assert not one.is_hidden(now_ms)
            if one.is_old(now_ms):
                continue
            assert one.times >= MAX_COUNT
            model.outbox.append(one.body)
        assert taking.moved + taking.dropped == len(left)
        assert taking.dropped == sum(one.is_old(now_ms) for one in left)
        model.queue = [one for one in model.queue if one.number in there]
        for showing in taking.showings:
            message = model.of(showing.number)
            assert message is not None
            assert (showing.stored, showing.group) == (message.body, message.group)
            assert not message.is_hidden(now_ms) and not message.is_old(now_ms) and message.times < MAX_COUNT
            assert all(one.number in shown for one in model.before(message)), "an older one of its group is not with it"
            if self.kind == "t":
                assert not model.before(message), "one of a key at a time"
        if not taking.showings and not left:
            assert not heads
            waits = [max(one.until_ms, one.ripe_ms) for one in model.queue if not model.before(one)]
            assert (taking.due_ms is None) == (not waits)
            assert taking.due_ms is None or taking.due_ms <= max(1, min(waits) - now_ms)
        for showing in taking.showings:
            message = model.of(showing.number)
            assert message is not None
            message.times += 1
            assert showing.times == message.times
            message.voided = False
            message.deadline_ms = message.until_ms = now_ms + VISIBILITY_MS
            message.until_ms += self.backoff(message.times)
            self.handles.append(Handle(showing.number, showing.times, showing.group))
        if self.kind == "o" and taking.showings:
            self.run(self.engine.note_attempt(ATTEMPT, taking.showings, "noted", keep_ms=DAY_MS))
            self.attempt = [(message, message.until_ms) for message in map(model.of, self.numbers(taking)) if message]

    @precondition(lambda self: self.attempt)
    @rule()
    def receive_again(self) -> None:
        """By the id of the last attempt: the same, for as long again, unless something has become of one."""
        given, self.attempt = self.attempt, []
        found = self.run(self.engine.again(ATTEMPT, visibility_ms=VISIBILITY_MS))
        if any(one not in self.model.queue or one.until_ms != was or was <= self.now_ms for one, was in given):
            assert not found
            return
        assert [(int(one.number), one.times, note) for one, note in found] == [
            (one.number, one.times, "noted") for one, _ in given
        ]
        for one, _ in given:
            one.until_ms = one.deadline_ms = self.now_ms + VISIBILITY_MS
        self.attempt = [(one, one.until_ms) for one, _ in given]

    @precondition(lambda self: self.kind != "t")
    @rule(most=st.integers(1, 4), seldom=SELDOM)
    def move_by_a_task(self, most: int, seldom: str) -> None:
        if seldom not in ("purge", "another"):
            return
        count, behind, unknown = self.run(self.engine.move(most, TARGET, 0, [TARGET]))
        there = set(map(int, self.run(self.members())))
        left = [one for one in self.model.queue if one.number not in there]
        assert (count, list(unknown)) == (len(left), [])
        assert not any(one.is_hidden(self.now_ms) for one in left)
        self.model.outbox += [one.body for one in left]
        self.model.queue = [one for one in self.model.queue if one.number in there]
        if not count:
            assert behind is None
            assert all(self.model.before(one) or one.is_hidden(self.now_ms) for one in self.model.queue)

    @staticmethod
    def numbers(taking: Taking) -> list[str]:
        return [one.number for one in taking.showings]

    @rule()
    def tidy(self) -> None:
        found = self.run(self.engine.tidy(self.shows))
        there = set(map(int, self.run(self.members())))
        left = [one for one in self.model.queue if one.number not in there]
        assert not any(one.is_hidden(self.now_ms) for one in left)
        self.model.outbox += [one.body for one in left if not one.is_old(self.now_ms)]
        assert found.dropped == sum(one.is_old(self.now_ms) for one in left)
        assert found.moved + found.dropped == len(left)
        self.model.queue = [one for one in self.model.queue if one.number in there]
        for one in self.model.queue:
            leads = not self.model.before(one)
            assert one.is_hidden(self.now_ms) or not leads or not (one.is_old(self.now_ms) or one.times >= MAX_COUNT)

    def backoff(self, times: int) -> int:
        return min(BACKOFF_MS * 2 ** (times - 1), MOST_BACKOFF_MS) if self.kind == "t" else 0

    async def arrived_bodies(self) -> list[str]:
        return [stored async for _, stored in every_body(self.client, self.target.keys)]

    async def keys_left(self) -> set[str]:
        return {key async for key in self.client.scan_iter() if key.startswith(self.engine.keys.prefix)}

    async def members(self) -> list[str]:
        if self.kind != "t":
            return [number async for number, _ in every_body(self.client, self.engine.keys)]
        generation = await self.client.hget(self.engine.keys.state, "generation") or ""
        found: list[str] = []
        for lanes in (self.engine.keys.ready, self.engine.keys.due):
            for lane in await self.client.zrange(lanes, 0, -1):
                if lane[0] == "\x1e":
                    found.append(lane[1:])
                else:
                    found += await self.client.lrange(f"{self.engine.keys.group_list}{generation}{lane}", 0, -1)
        assert len(set(found)) == len(found)
        return found

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), what=st.sampled_from(["d", "d", "h0", "h0", "h5000", "s0", "s7000", "u", "m", "m"]))
    def conclude(self, data: st.DataObject, what: str) -> None:
        if what == "m":
            what = f"m{TARGET}"
        if what[0] == "s" and self.kind != "t":
            what = "d"
        handle = data.draw(st.sampled_from(self.handles[-12:]))
        message = self.model.of(handle.number)
        expected = DONE
        if message is None:
            expected = GONE
        elif self.kind == "s":
            expected = LAPSED if what[0] == "h" and message.until_ms <= self.now_ms else DONE
        elif message.times != handle.times or message.voided:
            expected = SHOWN_AGAIN
        elif message.deadline_ms <= self.now_ms:
            expected = LAPSED
        more = f"+{BACKOFF_MS}" if what[0] == "h" and self.kind == "t" else ""
        verdict = Verdict(handle.number, handle.times, handle.group, what + more)
        assert self.run(self.engine.conclude([verdict])) == [expected]
        if expected != DONE or message is None:
            return
        if what == "u":
            message.times, message.until_ms, message.deadline_ms = handle.times - 1, self.now_ms, 0
        elif what[0] in "dm":
            self.model.queue.remove(message)
            if what[0] == "m":
                self.model.outbox.append(message.body)
        else:
            message.deadline_ms = message.until_ms = self.now_ms + int(what[1:])
            message.until_ms += BACKOFF_MS if more else 0
            message.voided = what[0] == "s"

    @rule(ms=PAUSES)
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        ours: list[Engine | Topic] = [self.engine, self.target]
        for engine in [*ours, *((self.other, self.topic) if self.kind == "t" else ())]:
            engine.now_ms = str(self.now_ms)

    @precondition(lambda self: self.model.outbox)
    @rule(steps=st.sampled_from(["arrive", "arrive leave", "leave", "arrive arrive leave"]), most=st.integers(1, 4))
    def carry(self, steps: str, most: int) -> None:
        """A courier, which dies between any two steps."""
        moving = self.run(self.engine.outgoing(TARGET, most))
        for step in steps.split():
            if step == "arrive" and moving:
                self.run(self.target.arrive([(one.place, one.number, "", one.stored) for one in moving], source="q.1"))
                self.arrived = moving[-1].place
            elif step == "leave":
                self.run(self.engine.leave(TARGET, getattr(self, "arrived", 0)))

    @rule(how=SELDOM)
    def wipe(self, how: str) -> None:
        if how == "purge":
            assert self.run(self.engine.purge()) == len(self.model.queue)
            self.model.queue, self.model.dedup = [], {}
        elif how == "another":
            self.another_of_that_name()
        elif how == "seek" and self.kind == "t" and self.model.queue:
            bound = self.model.queue[len(self.model.queue) // 2].number
            left = [one for one in self.model.queue if one.number >= bound]
            assert self.run(self.engine.seek(bound)) == len(self.model.queue) - len(left)
            self.model.queue = left

    def another_of_that_name(self) -> None:
        before = self.engine
        self.incarnation += 1
        self.open()
        self.run(self.engine.clear())
        self.model.queue, self.model.dedup = [], {}
        with pytest.raises(Stale):
            self.run(before.receive(10, self.shows))
        with pytest.raises(Stale):
            self.run(before.conclude([Verdict("1", 1, "", "d")]))

    @precondition(lambda self: self.kind == "t")
    @rule()
    def the_other_subscription_is_emptied(self) -> None:
        self.run(self.other.purge())

    # What holds at any time ---------------------------------------------------------------------------

    @invariant()
    def it_counts_right(self) -> None:
        found = self.run(self.engine.depths())
        queue = self.model.queue
        assert found.messages == len(queue)
        assert sorted(map(int, self.run(self.members()))) == sorted(one.number for one in queue)
        hidden = sum(one.is_hidden(self.now_ms) for one in queue)
        assert found.hidden == hidden
        assert found.delayed == sum(one.ripe_ms > self.now_ms and not one.times for one in queue)
        if self.kind == "t":
            assert found.bytes == sum(len(one.body) for one in queue)
            assert found.out_bytes >= sum(
                len(one.body) for one in queue if one.deadline_ms > self.now_ms and not one.voided
            )
            assert found.out == sum(one.deadline_ms > self.now_ms and not one.voided for one in queue)

    @invariant()
    def nothing_is_lost_on_its_way(self) -> None:
        arrived = self.run(self.arrived_bodies())
        waiting = [one.stored for one in self.run(self.engine.outgoing(TARGET, 1000))]
        # What has arrived and not left yet is in both.
        assert sorted(self.model.outbox) == sorted(
            arrived + waiting[len(arrived) + len(waiting) - len(self.model.outbox) :]
        )
        assert self.run(self.engine.depths()).moving == len(waiting)

    def teardown(self) -> None:
        try:
            for _ in range(3 * MAX_COUNT):
                self.time_passes(2 * VISIBILITY_MS)
                while taking := self.run(self.engine.receive(10, Rules(VISIBILITY_MS, per_lane=1))).showings:
                    verdicts = [Verdict(one.number, one.times, one.group, "d") for one in taking]
                    assert set(self.run(self.engine.conclude(verdicts))) == {DONE}
                    self.model.queue = [
                        m for m in self.model.queue if str(m.number) not in {one.number for one in taking}
                    ]
            assert not self.model.queue
            if self.kind == "t":
                self.run(self.other.purge())
                assert self.run(self.client.exists(self.topic.keys.bodies, self.topic.keys.refs)) == 0
            self.carry("arrive leave", 1000)
            assert sorted(self.run(self.arrived_bodies())) == sorted(self.model.outbox)
            kept = {self.engine.keys.state, self.engine.keys.seen, f"{self.engine.keys.prefix}attempt:{ATTEMPT}"}
            assert self.run(self.keys_left()) <= kept
        finally:
            self.run(self.client.aclose())
            self.loop.close()


class StandardMachine(EngineMachine):
    kind: Kind = "s"


class SubscriptionMachine(EngineMachine):
    kind: Kind = "t"
