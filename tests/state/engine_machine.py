"""Drives the engine under our own queues: every verb, in any order, beside a few lines that say what each may answer.

Messages are conserved: each that was taken stands in the queue, in its outbox or in the target, or has left by a verb
that says so. Of a subscription the topic's other one is emptied now and then, so bodies are held by one or by two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

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
    Verdict,
    every_body,
)
from fleet.state.keys import OwnQueueKeys
from fleet.state.topic import Copies, Topic
from tests.state.stage import NOON_MS

T = TypeVar("T")
VISIBILITY_MS, RETENTION_MS, MAX_COUNT = 30_000, 600_000, 2
BACKOFF_MS, MOST_BACKOFF_MS = 1_000, 3_000
TARGET = "dead"
GROUPS = st.sampled_from(["", "a", "a", "b"])
SELDOM = st.sampled_from([False] * 7 + [True])
"""Of what leaves nothing: the rest would mostly happen to an empty queue."""


@dataclass
class Message:
    number: int
    group: str
    body: str
    ripe_ms: int
    """Sent with a delay until then; 0 if not."""
    until_ms: int = 0
    """Hidden until then; 0 if it never was."""
    deadline_ms: int = 0
    times: int = 0
    voided: bool = False
    """Shown again at somebody's word, which ends the handle."""

    def is_hidden(self, now_ms: int) -> bool:
        return max(self.until_ms, self.ripe_ms) > now_ms

    def is_old(self, now_ms: int) -> bool:
        return self.number / 1000 + RETENTION_MS <= now_ms


@dataclass
class Handle:
    number: str
    times: int
    group: str


@dataclass
class Model:
    queue: list[Message] = field(default_factory=list)
    outbox: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    dedup: dict[str, int] = field(default_factory=dict)

    def of(self, number: str) -> Message | None:
        return next((one for one in self.queue if one.number == int(number)), None)

    def before(self, message: Message) -> list[Message]:
        return [
            one for one in self.queue if message.group and one.group == message.group and one.number < message.number
        ]


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
    @rule(data=st.data(), what=st.sampled_from(["d", "d", "h0", "h5000", "s0", "s7000", "m", "m", "m"]))
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
        if what[0] in "dm":
            self.model.queue.remove(message)
            if what[0] == "m":
                self.model.outbox.append(message.body)
        else:
            message.deadline_ms = message.until_ms = self.now_ms + int(what[1:])
            message.until_ms += BACKOFF_MS if more else 0
            message.voided = what[0] == "s"

    @rule(
        ms=st.sampled_from(
            [1, 999, 5_000, VISIBILITY_MS, VISIBILITY_MS + MOST_BACKOFF_MS, VISIBILITY_MS, DEDUP_MS, RETENTION_MS]
        )
    )
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

    @rule(really=SELDOM)
    def purge(self, really: bool) -> None:
        if not really:
            return
        assert self.run(self.engine.purge()) == len(self.model.queue)
        self.model.queue, self.model.dedup = [], {}

    @rule(really=SELDOM)
    def another_of_that_name(self, really: bool) -> None:
        if not really:
            return
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
    @rule(really=SELDOM)
    def the_other_subscription_is_emptied(self, really: bool) -> None:
        if not really:
            return
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
            kept = {self.engine.keys.state, self.engine.keys.seen}
            assert self.run(self.keys_left()) <= kept
        finally:
            self.run(self.client.aclose())
            self.loop.close()


class StandardMachine(EngineMachine):
    kind: Kind = "s"


class SubscriptionMachine(EngineMachine):
    kind: Kind = "t"
