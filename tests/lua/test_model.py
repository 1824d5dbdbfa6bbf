"""Whatever is called in whatever order, the scripts do what the model does, and its invariants hold."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import fakeredis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from fleet.state.connect import Client, connect
from fleet.state.entry import ACK, Entry, nack, outbox_item
from fleet.state.pool import Claim, Pool, PoolSettings, Settlement, failed
from tests.lua.model import ModelPool
from tests.lua.stage import NOON_MS, OWNER_EPOCH, TTL_MS, entry
from tests.servers import RedisServer

T = TypeVar("T")
WORKERS = st.sampled_from(["w1", "w2"])
MESSAGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["b1", "b2"]), st.sampled_from([False, False, True])),
    min_size=1,
    max_size=6,
)


class PoolMachine(RuleBasedStateMachine):
    """Drives a pool and its model side by side."""

    def __init__(self, connected: Callable[[], Awaitable[Client]]) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.client = self.run(connected())
        self.pool = Pool(self.client, "P", now_ms=str(NOON_MS))
        self.model = ModelPool(NOON_MS, concurrency=2, capacity=12)
        self.revision = 0
        self.sent: list[Entry] = []
        self.tokens = 0
        self.claims: list[Claim] = []
        self.last: tuple[str, int, list[Settlement]] | None = None
        self.calls = 0
        self.taken: set[str] = set()
        self.trimmed: Counter[str] = Counter()
        self.left: dict[tuple[str, bool], int] = {}
        self.highest_epoch = 0

    def run(self, call: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await call

        return self.runner.run(awaited())

    def teardown(self) -> None:
        self.run(self.client.aclose())
        self.runner.close()

    # What may happen ----------------------------------------------------------------------------

    @initialize(messages=MESSAGES)
    def begin(self, messages: list[tuple[str, str, bool]]) -> None:
        self.configure(3, 12, None)
        self.submit(messages, False)
        self.claim("w1", 1, 2)

    @rule(messages=MESSAGES, again=st.booleans())
    def submit(self, messages: list[tuple[str, str, bool]], again: bool) -> None:
        batch = [self.once_more(sent) for sent in self.sent[-3:]] if again else []
        for group, batch_id, high in messages:
            new = entry(str(len(self.sent)), group, batch=batch_id, high=high, token=self.next_token())
            self.sent.append(new)
            batch.append(new)
        answer = self.run(self.pool.submit("q", OWNER_EPOCH, batch))
        known = set(self.model.entries)
        accepted, cascaded, behind = self.model.submit(batch)
        assert (answer.tag, answer.accepted, set(answer.cascaded)) == ("ok", accepted, cascaded)
        assert answer.behind == behind
        assert answer.room == max(0, self.model.capacity - len(self.model.entries))
        self.taken |= {outbox_item(e, "") for key, e in self.model.entries.items() if key not in known}

    @precondition(lambda self: bool(self.model.leases))
    @rule(data=st.data())
    def submit_something_urgent(self, data: Any) -> None:
        self.submit([(data.draw(st.sampled_from(sorted(self.model.leases))), "b1", True)], False)

    def next_token(self) -> str:
        self.tokens += 1
        return str(self.tokens)

    def once_more(self, sent: Entry) -> Entry:
        """As its coordinator says it again; or, if the pool is done with it, as its source shows it again."""
        return self.model.entries.get(sent.key) or replace(sent, token=self.next_token())

    @rule(worker=WORKERS, want=st.integers(1, 3), chunk=st.integers(1, 3))
    def claim(self, worker: str, want: int, chunk: int) -> None:
        self.exchange(worker, [], want=want, chunk=chunk)

    @precondition(lambda self: bool(self.claims))
    @rule(worker=WORKERS, data=st.data())
    def settle(self, worker: str, data: Any) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.lively()), min_size=1, max_size=3, unique_by=id))
        settlements = [self.settlement(claimed, data) for claimed in chosen]
        trims = sorted(self.model.outboxes.get(worker, ()))
        trims = data.draw(st.sampled_from([[], trims[:1], trims]))
        self.exchange(worker, settlements, want=data.draw(st.integers(0, 2)), chunk=2, trims=trims)

    def exchange(self, worker: str, settlements: list[Settlement], **more: Any) -> None:
        self.calls += 1
        self.call(worker, self.calls, settlements, **more)
        if settlements:
            self.last = worker, self.calls, settlements

    def lively(self) -> list[Claim]:
        """The leases that are held, and some that are not any more."""
        held = {(group, str(lease.epoch)) for group, lease in self.model.leases.items()}
        return [c for c in self.claims if (c.group, c.epoch) in held] + self.claims[:1]

    def settlement(self, claimed: Claim, data: Any) -> Settlement:
        most = len(claimed.entries)
        count = data.draw(st.sampled_from([most, min(1, most), 0]))
        ending = data.draw(st.sampled_from([ACK, ACK, nack(30_000), "cascade"]))
        items = [outbox_item(message, ACK) for message in claimed.entries[:count]]
        made = Settlement(
            claimed.group, claimed.epoch, items, data.draw(st.sampled_from(["keep", "keep", "ready", "500"]))
        )
        if items and ending != ACK:
            last = claimed.entries[count - 1]
            items[-1] = outbox_item(last, nack(30_000))
            if ending == "cascade":
                made.release = failed(10_000, last.batch)
        return made

    @precondition(lambda self: self.last is not None)
    @rule()
    def say_the_last_settlements_again(self) -> None:
        assert self.last is not None
        worker, call, settlements = self.last
        before = self.run(self.everything())
        self.call(worker, call, settlements, repeated=True)
        # Time may have passed since, and with it leases and delays.
        if self.model.now_ms == self.asked_ms:
            assert self.run(self.everything()) == before

    def call(
        self,
        worker: str,
        call: int,
        settlements: list[Settlement],
        *,
        want: int = 0,
        chunk: int = 1,
        trims: list[int] | None = None,
        repeated: bool = False,
    ) -> None:
        trims = trims or []
        answer = self.run(
            self.pool.exchange(
                worker, ttl_ms=TTL_MS, want=want, chunk=chunk, call=call, trims=trims, settlements=settlements
            )
        )
        for trimmed in trims:
            self.trimmed.update(self.model.outboxes[worker][trimmed])
        refused, yields, cascaded = self.model.settle(worker, call, trims, settlements)
        held = len(self.model.leases)
        granted = self.model.claim(worker, ttl_ms=TTL_MS, want=want, chunk=chunk)
        assert answer.tag == ("paused" if self.model.paused else "ok")
        assert (answer.refused, answer.yields) == (refused, yields)
        assert sorted(answer.cascaded) == sorted(cascaded)
        assert [(c.group, int(c.epoch), [e.key for e in c.entries]) for c in answer.claims] == granted
        if not repeated:
            self.asked_ms = self.model.now_ms
            for i, settlement in enumerate(settlements):
                if i not in refused:
                    self.note_order(settlement)
        for claimed in answer.claims:
            assert int(claimed.epoch) > self.highest_epoch
            self.highest_epoch = int(claimed.epoch)
            assert [self.model.entries[e.key] for e in claimed.entries] == claimed.entries
        if answer.claims:
            assert len(self.model.leases) <= max(self.model.concurrency, held)
        if len(answer.claims) < want and (self.model.leases or self.model.later) and not self.model.paused:
            assert answer.due_ms is not None
        self.claims += answer.claims

    def note_order(self, settlement: Settlement) -> None:
        """Messages of a group leave in the order in which they came, tier by tier."""
        for claimed in self.claims:
            if (claimed.group, claimed.epoch) != (settlement.group, settlement.epoch):
                continue
            for message in claimed.entries[: len(settlement.items)]:
                lane = message.lane, message.high_priority
                assert int(message.token) > self.left.get(lane, 0)
                self.left[lane] = int(message.token)
            claimed.entries = claimed.entries[len(settlement.items) :]

    @precondition(lambda self: bool(self.claims))
    @rule(data=st.data())
    def renew(self, data: Any) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.lively()), min_size=1, max_size=3, unique_by=id))
        held = [(claimed.group, claimed.epoch) for claimed in chosen]
        assert self.run(self.pool.renew(held, ttl_ms=TTL_MS)) == self.model.renew(held, ttl_ms=TTL_MS)

    @rule(ms=st.sampled_from([1, 499, 500, 3000, TTL_MS - 1, TTL_MS, 40_499, 60_999, 600_000]))
    def advance(self, ms: int) -> None:
        self.model.now_ms += ms
        self.pool.now_ms = str(self.model.now_ms)

    @rule(ms=st.sampled_from([1, 999, 1000, 5_000, 3_600_000]))
    def step_back(self, ms: int) -> None:
        """Redis's clock is set, or a server takes over whose clock is behind."""
        self.advance(-ms)

    @rule(concurrency=st.integers(1, 4), capacity=st.integers(4, 20), rate=st.sampled_from([None, None, None, 3]))
    def configure(self, concurrency: int, capacity: int, rate: int | None) -> None:
        self.revision += 1
        assert self.run(self.pool.configure(str(self.revision), PoolSettings(concurrency, capacity, rate)))
        self.model.configure(concurrency, capacity, rate)

    @rule(paused=st.sampled_from([False, False, True]))
    def pause(self, paused: bool) -> None:
        assert self.run(self.pool.pause(paused))
        self.model.paused = paused

    # What must always hold ----------------------------------------------------------------------

    async def everything(self) -> dict[str, Any]:
        keys, client = self.pool.keys, self.client
        state: dict[str, Any] = {
            "ready": await client.lrange(keys.ready, 0, -1),
            "leases": dict(await client.zrange(keys.leases, 0, -1, withscores=True)),
            "later": dict(await client.zrange(keys.later, 0, -1, withscores=True)),
            "in_place": {lane: int(count) for lane, count in (await client.hgetall(keys.in_place)).items()},
            "owners": await client.hgetall(keys.owners),
            "high": await client.smembers(keys.high),
            "entries": await client.hgetall(keys.entries),
            "outboxes": await self.pool.outboxes(),
        }
        for tier, prefix in (("r", keys.regular_group), ("h", keys.high_group)):
            lists = {group: await client.lrange(prefix + group, 0, -1) for group in "abc"}
            state[tier] = {group: listed for group, listed in lists.items() if listed}
        for worker in ("w1", "w2"):
            state[worker] = {call: set(items) for call, items in (await self.pool.outbox(worker)).items()}
        return state

    @invariant()
    def redis_holds_what_the_model_holds(self) -> None:
        if not self.revision:
            return
        state, model = self.run(self.everything()), self.model
        assert state["ready"] == model.ready
        assert state["leases"] == {g: lease.deadline_ms for g, lease in model.leases.items()}
        assert state["owners"] == {
            g: f"{lease.epoch}\x1f{lease.tier}\x1f{lease.worker}" for g, lease in model.leases.items()
        }
        assert state["later"] == model.later
        assert state["in_place"] == ({**model.in_place, "\x1f": sum(model.in_place.values())} if model.in_place else {})
        assert (state["r"], state["h"]) == (model.lists["r"], model.lists["h"])
        assert state["entries"] == {key: e.fields()[4] for key, e in model.entries.items()}
        for worker in ("w1", "w2"):
            assert state[worker] == model.outboxes.get(worker, {})
        self.hold_by_themselves(state)

    def hold_by_themselves(self, state: dict[str, Any]) -> None:
        """What must be true whatever the model says."""
        for group in "abc":
            places = state["ready"].count(group) + (group in state["leases"]) + (group in state["later"])
            busy = group in state["r"] or group in state["h"]
            assert places == 1 if busy else places == (group in state["leases"]), group
        listed = [key for tier in "rh" for keys in state[tier].values() for key in keys]
        assert sorted(listed) == sorted(state["entries"])
        assert state["high"] == set(state["h"])
        assert set(state["owners"]) == set(state["leases"])
        assert {w for w in ("w1", "w2") if state[w]} <= state["outboxes"]
        # Nothing is lost, nothing is twice: queued, or in one outbox, or trimmed from it.
        gone = [item for w in ("w1", "w2") for box in state[w].values() for item in box] + list(self.trimmed.elements())
        left = [item[: item.rindex("\x1f") + 1] for item in gone]
        waiting = [f"{key}\x1f{value.partition(chr(31))[0]}\x1f" for key, value in state["entries"].items()]
        assert sorted(left + waiting) == sorted(self.taken)


def drive(connected: Callable[[], Awaitable[Client]], *, examples: int, steps: int) -> None:
    class Machine(PoolMachine):
        def __init__(self) -> None:
            super().__init__(connected)

    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    profile = settings(max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=slow)
    run_state_machine_as_test(Machine, settings=profile)


def test_a_pool_on_fakeredis_does_what_the_model_does() -> None:
    async def connected() -> Client:
        return fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer())

    drive(connected, examples=250, steps=40)


def test_a_pool_on_a_real_server_does_what_the_model_does(redis_server: RedisServer) -> None:
    async def connected() -> Client:
        client = await connect(redis_server.url)
        await client.flushall()
        return client

    drive(connected, examples=50, steps=25)
