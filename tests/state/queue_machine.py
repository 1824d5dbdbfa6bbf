"""Drives a queue from its source through a pool and back: visibility lapses, owners stop and are followed.

Nothing here says how the scripts do it. It says what comes of it: order, the newest receipt, one owner, nothing lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coordinator.acknowledge import Acknowledger
from coordinator.admit import Admission
from coordinator.bring import Bringer
from coordinator.put_off import PoolLimits, PutOff
from coordinator.submit import Portion, Submitter, Untaken
from coordinator.takeover import take_over
from fleet.alarms import Alarms
from fleet.clock import SystemClock
from fleet.errors import Fenced
from fleet.lease import Lease
from fleet.sources.base import Received
from fleet.state.connect import Client
from fleet.state.entry import ACK, Entry, nack, outbox_item
from fleet.state.keys import QueueKeys
from fleet.state.pool import AWAY_GRACE_MS, Claim, Pool, PoolSettings, Settlement, failed, fenced, in_place
from fleet.state.queue import Queue
from fleet.state.scripts import SEP
from fleet.state.warnings import Warnings
from tests.clocks import HandClock
from tests.state.model_queue import VISIBILITY_MS, ModelQueue
from tests.state.stage import NOON_MS, TTL_MS

T = TypeVar("T")
WORKERS = st.sampled_from(["w1", "w2"])
GROUPS = st.lists(st.sampled_from("aab"), min_size=1, max_size=5)
CAPACITIES = st.sampled_from([4, 8, 8, 50])
LEASE_MS = 15_000
CONCURRENCY = 2
GIVEN_UP_MS = 2 * (VISIBILITY_MS + AWAY_GRACE_MS)
"""Who went back and was not shown for as long is waited for no more."""


class GatedBringer(Bringer):
    """An owner may be stopped when it has tracked a batch and has not submitted it."""

    def __init__(self, pool: Pool, submitter: Submitter) -> None:
        super().__init__(submitter=submitter, late=cast(Any, None), ours=lambda: True)
        submitter._pools["P"] = pool
        self.gate = asyncio.Event()
        self.gate.set()
        self.reached = asyncio.Event()

    async def bring(self, by_pool: dict[str, Portion], batch_id: str) -> Untaken:
        if by_pool:
            self.reached.set()
            await self.gate.wait()
        # However long a busy machine takes: what a pool that is silent has coming is another test's.
        return [one for code, part in by_pool.items() for one in await self._submitter.submit(code, part, batch_id)]


class Owner:
    """A coordinator as far as this queue goes."""

    def __init__(self, client: Client, source: ModelQueue, name: str, capacity: int) -> None:
        now_ms = str(source.now_ms)
        # By its own clock it is the owner, however long a busy machine takes: Redis alone refuses it.
        self.lease = Lease(
            client=client, key=QueueKeys("q").owner, owner=name, ttl_ms=LEASE_MS, clock=HandClock(), now_ms=now_ms
        )
        self.client, self.source, self.capacity = client, source, capacity
        self.queue = Queue(client, "q", now_ms=now_ms)
        self.pool = Pool(client, "P", now_ms=now_ms)
        self.alarms = Alarms(warnings=Warnings(client), source=name)
        self.task: asyncio.Task[None] | None = None
        """What it was stopped in."""

    async def begin(self) -> None:
        assert await self.lease.acquire()
        self.queue.epoch = self.lease.epoch
        counts = Counter[str]()
        self._acknowledger = Acknowledger(queue=self.queue, source=self.source, lease=self.lease, counts=counts)
        await take_over(client=self.client, queue=self.queue, source=self.source)
        shared: dict[str, Any] = {"queue": self.queue, "source": self.source}
        shared |= {"alarms": self.alarms, "counts": counts}
        submitter = Submitter(
            client=self.client,
            on_room=lambda *_: None,
            put_off=PutOff(lambda _: PoolLimits(self.capacity, CONCURRENCY), lambda _: False, SystemClock()),
            **shared,
        )
        self._bringer = GatedBringer(self.pool, submitter)
        self._admission = Admission(pool_for=lambda code: code, bringer=self._bringer, lease=self.lease, **shared)

    async def admit(self, batch: list[Received]) -> None:
        await self._admission.admit(batch)

    async def admit_half(self, batch: list[Received]) -> bool:
        """Whether it was stopped in the middle: there was something new."""
        self._bringer.gate.clear()
        self._bringer.reached.clear()
        self.task = asyncio.create_task(self.admit(batch))
        reached = asyncio.create_task(self._bringer.reached.wait())
        await asyncio.wait({self.task, reached}, return_when=asyncio.FIRST_COMPLETED)
        reached.cancel()
        if not self.task.done():
            return True
        await self.wake()
        return False

    async def wake(self) -> None:
        assert self.task is not None
        self._bringer.gate.set()
        task, self.task = self.task, None
        await task

    async def apply(self) -> None:
        await self._acknowledger.catch_up()


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, connected: Callable[[], Awaitable[Client]]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.client = self.run(connected())
        self.pool = Pool(self.client, "P", now_ms=str(NOON_MS))
        self.claims: list[Claim] = []
        self.calls = 0
        self.owners: list[Owner] = []
        self.stopped: list[Owner] = []
        self.acked: set[int] = set()
        """What a worker has delivered."""
        self.seen_ms: dict[int, int] = {}
        """When a message was offered to the pool, or stood in it, for the last time."""

    def run(self, call: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await call

        return self.runner.run(awaited())

    def teardown(self) -> None:
        async def ended() -> None:
            for owner in self.owners:
                if owner.task is not None:
                    owner.task.cancel()
                    await asyncio.wait({owner.task})
                await owner.alarms.flush()
            await self.client.aclose()

        self.run(ended())
        self.runner.close()

    # What may happen ----------------------------------------------------------------------------

    @initialize(holds_groups=st.booleans(), returns=st.booleans(), groups=GROUPS, capacity=CAPACITIES)
    def begin(self, holds_groups: bool, returns: bool, groups: list[str], capacity: int) -> None:
        # The only source with an order across batches under `return` is one that holds groups.
        self.on_failure = "return" if returns and holds_groups else "hold"
        self.capacity = capacity
        self.source = ModelQueue(holds_groups, NOON_MS)
        self.follow()
        self.run(self.pool.configure("1", PoolSettings(CONCURRENCY, capacity, None, self.on_failure)))
        self.send(groups)
        self.poll(3)

    def follow(self) -> None:
        self.owner = Owner(self.client, self.source, f"c{len(self.owners)}", self.capacity)
        self.owners.append(self.owner)
        self.run(self.owner.begin())

    @rule(groups=GROUPS)
    def send(self, groups: list[str]) -> None:
        for group in groups:
            self.source.send(group)

    @rule(most=st.integers(1, 6))
    def poll(self, most: int) -> None:
        self.run(self.owner.admit(self.receive(most)))

    def receive(self, most: int) -> list[Received]:
        batch = self.source.receive(most)
        under_way = self.run(self.everything())["tracked"]
        for received in batch:
            # A copy of what is under way back to its source tells the pool nothing.
            if received.broker_id not in under_way:
                self.seen_ms[int(received.broker_id)] = self.source.now_ms
        return batch

    @rule(most=st.integers(1, 6))
    def stop_in_the_middle(self, most: int) -> None:
        """It has tracked what it polled; another follows when its lease is over."""
        owner = self.owner
        if self.run(owner.admit_half(self.receive(most))):
            self.stopped.append(owner)
            self.take_over()

    @precondition(lambda self: bool(self.stopped))
    @rule()
    def wake_the_stopped(self) -> None:
        before = self.run(self.everything())
        with pytest.raises(Fenced):
            self.run(self.stopped.pop(0).wake())
        assert self.run(self.everything()) == before

    @rule()
    def take_over(self) -> None:
        """And whatever the one before still says to the queue's state is refused."""
        before = self.owner
        self.advance(LEASE_MS)
        self.follow()
        state = self.run(self.everything())
        queue = before.queue
        known = [(broker, record.split(SEP)[1]) for broker, record in state["tracked"].items()]
        for call in (
            queue.track([(broker, f"m{broker}", "P", "a", "stale") for broker, _ in known]),
            queue.untrack(known),
            queue.settled(applied=1, want=1),
        ):
            with pytest.raises(Fenced):
                self.run(call)
        assert self.run(self.everything()) == state

    @precondition(lambda self: self.source.holds_groups)
    @rule(most=st.integers(1, 3))
    def lose_a_batch(self, most: int) -> None:
        """Given to somebody who died before anybody else heard of it."""
        self.source.lapse()
        for received in self.source.receive(most):
            self.source.sent[int(received.broker_id)].is_unseen = True
        self.apply()

    @rule(worker=WORKERS, want=st.integers(1, 2), chunk=st.integers(1, 3))
    def claim(self, worker: str, want: int, chunk: int) -> None:
        answer = self.run(self.pool.exchange(worker, ttl_ms=TTL_MS, want=want, chunk=chunk))
        for claimed in answer.claims:
            begun = set(self.acked)
            for message in claimed.entries:
                self.may_begin(int(message.broker_id), begun)
                begun.add(int(message.broker_id))
        self.claims += answer.claims

    def may_begin(self, number: int, begun: set[int]) -> None:
        assert number not in begun, "it was delivered before"
        group = self.source.sent[number].group
        for older in self.source.sent[:number]:
            if older.group == group and older.number not in begun:
                unseen_ms = self.source.now_ms - self.seen_ms.get(older.number, NOON_MS)
                assert not self.source.holds_groups and unseen_ms > GIVEN_UP_MS, f"{number} overtakes {older.number}"

    @precondition(lambda self: bool(self.claims))
    @rule(worker=WORKERS, data=st.data(), count=st.integers(0, 3), ending=st.sampled_from(["keep", "ready", "fenced"]))
    def settle(self, worker: str, data: Any, count: int, ending: str) -> None:
        claimed = data.draw(st.sampled_from(self.claims))
        done = claimed.entries[:count]
        items = [outbox_item(message, ACK) for message in done]
        made = Settlement(claimed.lane, claimed.epoch, items, fenced(500) if ending == "fenced" else ending)
        self.finish(worker, claimed, made, done)

    @rule(worker=WORKERS, count=st.integers(0, 2), delay_ms=st.sampled_from([0, 5_000, 30_000]))
    def fail(self, worker: str, count: int, delay_ms: int) -> None:
        """Some of a group are delivered, and the next one fails."""
        self.claim(worker, 1, 3)
        if not self.claims:
            return
        claimed = self.claims[-1]
        done, failing = claimed.entries[:count], claimed.entries[count : count + 1]
        made = Settlement(claimed.lane, claimed.epoch, [outbox_item(message, ACK) for message in done], "ready")
        if failing and self.on_failure == "hold":
            made.release = in_place(delay_ms)
        elif failing:
            made.items.append(outbox_item(failing[0], nack(delay_ms)))
            made.release = failed(min(delay_ms, 10_000), failing[0].batch, "q")
        self.finish(worker, claimed, made, done)

    def finish(self, worker: str, claimed: Claim, made: Settlement, done: list[Entry]) -> None:
        self.calls += 1
        answer = self.run(
            self.pool.exchange(worker, ttl_ms=TTL_MS, call=self.calls, settlements=[made] if made.lane else [])
        )
        if not answer.refused:
            self.acked |= {int(message.broker_id) for message in done}
            claimed.entries = claimed.entries[len(made.items) :]
        if answer.refused or made.release != "keep" or not claimed.entries:
            self.claims.remove(claimed)

    @rule(worker=WORKERS, trims=st.booleans())
    def report(self, worker: str, trims: bool) -> None:
        """A worker copies its outcomes to the queue; and again, where it did not trim them."""
        outbox = self.run(self.pool.outbox(worker))
        items = [item.split(SEP) for items in outbox.values() for item in items]
        outcomes = [(broker, token, verdict) for _, broker, token, verdict in items]
        if outcomes:
            self.run(Queue(self.client, "q").report(outcomes))
        if trims and outbox:
            self.run(self.pool.trim_outbox(worker, list(outbox)))

    @rule(worker=WORKERS, trims=st.booleans())
    def bring(self, worker: str, trims: bool) -> None:
        self.report(worker, trims)
        self.apply()

    @rule()
    def apply(self) -> None:
        self.run(self.owner.apply())

    @rule(ms=st.sampled_from([500, 5_000, TTL_MS, VISIBILITY_MS + 1, AWAY_GRACE_MS + VISIBILITY_MS + 5_001]))
    def advance(self, ms: int) -> None:
        self.source.now_ms += ms
        actors: list[Pool | Queue] = [self.pool, self.owner.pool, self.owner.queue]
        for actor in actors:
            actor.now_ms = str(self.source.now_ms)

    @rule(groups=st.lists(st.sampled_from("ab"), max_size=2))
    def lapse(self, groups: list[str]) -> None:
        """What was out is shown again beside what came since."""
        self.source.lapse()
        self.send(groups)
        self.poll(6)

    @rule()
    def everything_is_delivered(self) -> None:
        """All goes well for a while: nothing was lost, and nothing is left."""
        for _ in range(40):
            if all(message.is_gone for message in self.source.sent) and not self.run(self.owner.queue.tracked_count()):
                break
            self.advance(VISIBILITY_MS + 1)
            self.poll(10)
            self.claim("w1", 2, 100)
            for claimed in list(self.claims):
                items = [outbox_item(message, ACK) for message in claimed.entries]
                made = Settlement(claimed.lane, claimed.epoch, items, "ready")
                self.finish("w1", claimed, made, list(claimed.entries))
            for worker in ("w1", "w2"):
                self.report(worker, True)
            self.apply()
        state = self.run(self.everything())
        assert self.acked == {message.number for message in self.source.sent if message.is_gone}
        assert len(self.acked) == len(self.source.sent)
        assert (state["tracked"], state["entries"], state["settled"]) == ({}, {}, [])

    # What must always hold ----------------------------------------------------------------------

    async def everything(self) -> dict[str, Any]:
        queue, asked = QueueKeys("q"), self.client.pipeline(transaction=False)
        asked.hgetall(queue.tracked)
        asked.hgetall(self.pool.keys.entries)
        asked.lrange(queue.settled, 0, -1)
        asked.hgetall(self.pool.keys.outbox("w1"))
        asked.hgetall(self.pool.keys.outbox("w2"))
        asked.zrange(self.pool.keys.away, 0, -1, withscores=True)
        names = ("tracked", "entries", "settled", "w1", "w2", "away")
        return dict(zip(names, await asked.execute(), strict=True))

    @invariant()
    def what_is_tracked_has_the_newest_receipt(self) -> None:
        if not self.owners:
            return
        state = self.run(self.everything())
        for broker, record in state["tracked"].items():
            message = self.source.sent[int(broker)]
            assert message.is_unseen or message.is_gone or record.split(SEP)[0] == message.receipt
        for key, value in state["entries"].items():
            number = int(key.split(SEP)[1])
            self.seen_ms[number] = self.source.now_ms
            assert number not in self.acked
            # What the pool says of it will be believed.
            assert state["tracked"][str(number)].split(SEP)[1] == value.split(SEP)[0]
