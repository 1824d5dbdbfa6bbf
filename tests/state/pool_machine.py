"""Drives a pool and its model side by side: whatever may happen to a pool, in whatever order."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet.state.by_hand import PoolByHand
from fleet.state.connect import Client
from fleet.state.entry import ACK, ITEM_SEP, Entry, nack, outbox_item
from fleet.state.pool import Claim, Pool, PoolSettings, Settlement, failed, fenced, in_place
from tests.state.model import ModelPool
from tests.state.model_away import GRACE_MS
from tests.state.stage import NOON_MS, OWNER_EPOCH, TTL_MS, entry

T = TypeVar("T")
WORKERS = st.sampled_from(["w1", "w2"])
MESSAGES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["b1", "b2"]), st.sampled_from([False, False, True])),
    min_size=1,
    max_size=6,
)
QUEUES = st.sampled_from(["holds", "line", "line", "heap"])
"""One that holds groups; one that does not, and shows them in order; one that knows no order."""
POLICIES = st.sampled_from(["hold", "hold", "park", "return"])


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
        self.by_key: dict[str, Entry] = {}

    def run(self, call: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await call

        return self.runner.run(awaited())

    def teardown(self) -> None:
        self.run(self.client.aclose())
        self.runner.close()

    # What may happen ----------------------------------------------------------------------------

    @initialize(messages=MESSAGES, queue=QUEUES, policy=POLICIES)
    def begin(self, messages: list[tuple[str, str, bool]], queue: str, policy: str) -> None:
        self.configure(3, 12, None, policy)
        self.submit(messages, queue, False)
        self.claim("w1", 1, 2)

    @rule(messages=MESSAGES, queue=QUEUES, again=st.booleans())
    def submit(self, messages: list[tuple[str, str, bool]], queue: str, again: bool) -> None:
        batch = [self.once_more(sent) for sent in self.sent[-3:]] if again else []
        self.submit_all(batch + [self.new(group, batch_id, high, queue) for group, batch_id, high in messages])

    def new(self, group: str, batch_id: str, high: bool, queue: str) -> Entry:
        made = entry(str(len(self.sent)), group, queue=queue, batch=batch_id, high=high, token=self.next_token())
        made = replace(made, source_holds_groups=queue == "holds", source_has_order=queue != "heap")
        self.sent.append(made)
        self.by_key[made.key] = made
        return made

    def submit_all(self, batch: list[Entry]) -> None:
        answer = self.run(self.pool.submit("q", OWNER_EPOCH, batch, grace_ms=GRACE_MS))
        known = set(self.model.entries)
        accepted, cascaded, behind = self.model.submit(batch)
        assert (answer.tag, answer.accepted, set(answer.cascaded)) == ("ok", accepted, cascaded)
        assert answer.behind == behind
        assert answer.room == max(0, self.model.capacity - len(self.model.entries))
        self.taken |= {outbox_item(e, "") for key, e in self.model.entries.items() if key not in known}

    @precondition(lambda self: bool(self.model.away.lanes))
    @rule(data=st.data(), late=st.booleans())
    def come_again(self, data: Any, late: bool) -> None:
        """What is away, or some of it, in its order or not, with something newer of its lane in between."""
        name = data.draw(st.sampled_from(sorted(self.model.away.lanes)))
        away = [self.once_more(self.by_key[key]) for key in self.model.away.lanes[name].keys]
        if late:
            self.advance(max(0, self.model.away.lanes[name].by_ms + GRACE_MS + 1 - self.model.now_ms))
        coming = list(data.draw(st.sampled_from([away, away[:1], away[1:], away[::-1], []])))
        for _ in range(data.draw(st.integers(1, 3))):
            newer = self.new(name[1:], "b2", name[0] == "h", "line")
            coming.insert(data.draw(st.integers(0, len(coming))), newer)
        self.submit_all(coming)

    @rule(queue=QUEUES)
    def recall(self, queue: str) -> None:
        """The last coordinator of a queue ends: what nobody works on goes back."""

        async def recalled() -> list[str]:
            pages = [page async for page in self.pool.recall(queue, 100)]
            return [f"{queue}\x1f{broker}\x1f{token}\x1f" for page in pages for broker, token in page]

        back = self.model.recall(queue)
        assert self.run(recalled()) == back
        self.trimmed.update(back)

    @precondition(lambda self: bool(self.model.leases))
    @rule(data=st.data())
    def submit_something_urgent(self, data: Any) -> None:
        self.submit([(data.draw(st.sampled_from(sorted(self.model.leases))), "b1", True)], "holds", False)

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
        chosen = data.draw(st.lists(st.sampled_from(self.lively(worker)), min_size=1, max_size=3, unique_by=id))
        settlements = [self.settlement(claimed, data) for claimed in chosen]
        trims = sorted(self.model.outboxes.get(worker, ()))
        trims = data.draw(st.sampled_from([[], trims[:1], trims]))
        self.exchange(worker, settlements, want=data.draw(st.integers(0, 2)), chunk=2, trims=trims)

    def exchange(self, worker: str, settlements: list[Settlement], **more: Any) -> None:
        self.calls += 1
        self.call(worker, self.calls, settlements, **more)
        if settlements:
            self.last = worker, self.calls, settlements

    def lively(self, worker: str) -> list[Claim]:
        """The leases that it holds, and some that it does not, or not any more."""
        held = {(group, str(lease.epoch)) for group, lease in self.model.leases.items() if lease.worker == worker}
        return [c for c in self.claims if (c.lane, c.epoch) in held] + self.claims[:1]

    def settlement(self, claimed: Claim, data: Any) -> Settlement:
        most = len(claimed.entries)
        count = data.draw(st.sampled_from([most, min(1, most), 0]))
        ending = data.draw(st.sampled_from([ACK, ACK, nack(30_000), "cascade"]))
        items = [outbox_item(message, ACK) for message in claimed.entries[:count]]
        release = data.draw(
            st.sampled_from(["keep", "keep", "ready", "500", in_place(500), in_place(40_000), fenced(500)])
        )
        made = Settlement(claimed.lane, claimed.epoch, items, release)
        if items and ending != ACK:
            last = claimed.entries[count - 1]
            items[-1] = outbox_item(last, nack(30_000))
            if ending == "cascade":
                made.release = failed(10_000, last.batch, last.queue if last.source_holds_groups else "")
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
        assert [(c.lane, int(c.epoch), [e.key for e in c.entries]) for c in answer.claims] == granted
        if not repeated:
            self.asked_ms = self.model.now_ms
            for i, settlement in enumerate(settlements):
                if i not in refused:
                    self.note_order(settlement)
        for claimed in answer.claims:
            assert int(claimed.epoch) > self.highest_epoch
            self.highest_epoch = int(claimed.epoch)
            expected = [
                replace(self.model.entries[e.key], tries=self.model.tries.get(e.key, 0)) for e in claimed.entries
            ]
            assert claimed.entries == expected
        if answer.claims:
            assert len(self.model.leases) <= max(self.model.concurrency, held)
        if len(answer.claims) < want and (self.model.leases or self.model.later) and not self.model.paused:
            assert answer.due_ms is not None
        self.claims += answer.claims

    def note_order(self, settlement: Settlement) -> None:
        """Messages of a group leave in the order in which they came, tier by tier."""
        for claimed in self.claims:
            if (claimed.lane, claimed.epoch) != (settlement.lane, settlement.epoch):
                continue
            for message in claimed.entries[: len(settlement.items)]:
                lane = message.lane, message.high_priority
                assert int(message.token) > self.left.get(lane, 0)
                self.left[lane] = int(message.token)
            claimed.entries = claimed.entries[len(settlement.items) :]

    @precondition(lambda self: bool(self.claims))
    @rule(worker=WORKERS, data=st.data())
    def renew(self, worker: str, data: Any) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.lively(worker)), min_size=1, max_size=3, unique_by=id))
        held = [(claimed.lane, claimed.epoch) for claimed in chosen]
        assert self.run(self.pool.renew(worker, held, ttl_ms=TTL_MS)) == self.model.renew(worker, held, ttl_ms=TTL_MS)

    @rule(ms=st.sampled_from([1, 499, 500, 3000, TTL_MS - 1, TTL_MS, 40_499, 60_999, 600_000]))
    def advance(self, ms: int) -> None:
        self.model.now_ms += ms
        self.pool.now_ms = str(self.model.now_ms)

    @rule(ms=st.sampled_from([1, 999, 1000, 5_000, 3_600_000]))
    def step_back(self, ms: int) -> None:
        """Redis's clock is set, or a server takes over whose clock is behind."""
        self.advance(-ms)

    @rule(
        concurrency=st.integers(1, 4),
        capacity=st.integers(4, 20),
        rate=st.sampled_from([None, None, None, 3]),
        policy=POLICIES,
    )
    def configure(self, concurrency: int, capacity: int, rate: int | None, policy: str) -> None:
        self.revision += 1
        settings = PoolSettings(concurrency, capacity, rate, policy)
        assert self.run(self.pool.configure(str(self.revision), settings))
        self.model.configure(concurrency, capacity, rate, policy)

    @rule(paused=st.sampled_from([False, False, True]))
    def pause(self, paused: bool) -> None:
        assert self.run(PoolByHand(self.client, self.pool.code).pause(paused))
        self.model.paused = paused

    # What must always hold ----------------------------------------------------------------------

    async def everything(self) -> dict[str, Any]:
        keys, asked = self.pool.keys, self.client.pipeline(transaction=False)
        asked.lrange(keys.ready, 0, -1)
        for scored in (keys.leases, keys.later, keys.away):
            asked.zrange(scored, 0, -1, withscores=True)
        for mapping in (keys.in_place, keys.owners, keys.entries, keys.tries):
            asked.hgetall(mapping)
        for members in (keys.high, keys.outboxes):
            asked.smembers(members)
        lists = [
            (prefix, name)
            for prefix, names in (
                (keys.regular_lane, "abc"),
                (keys.high_lane, "abc"),
                (keys.away_lane, ["ra", "rb", "rc", "ha", "hb", "hc"]),
            )
            for name in names
        ]
        for prefix, name in lists:
            asked.lrange(prefix + name, 0, -1)
        for worker in ("w1", "w2"):
            asked.hgetall(keys.outbox(worker))
        ready, leases, later, away, in_place, owners, entries, tries, high, outboxes, *more = await asked.execute()
        listed: dict[str, dict[str, list[str]]] = {keys.regular_lane: {}, keys.high_lane: {}, keys.away_lane: {}}
        for (prefix, name), found in zip(lists, more[:-2], strict=True):
            if found:
                listed[prefix][name] = found
        return {
            "ready": ready,
            "leases": dict(leases),
            "later": dict(later),
            "away": dict(away),
            "in_place": {lane: int(count) for lane, count in in_place.items()},
            "owners": owners,
            "entries": entries,
            "tries": {name: int(count) for name, count in tries.items()},
            "high": high,
            "outboxes": outboxes,
            "r": listed[keys.regular_lane],
            "h": listed[keys.high_lane],
            "away_lanes": listed[keys.away_lane],
            **{
                worker: {int(call): set(items.split(ITEM_SEP)) for call, items in outbox.items()}
                for worker, outbox in zip(("w1", "w2"), more[-2:], strict=True)
            },
        }

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
        seconds = {f"x{n}": e.second_since_ms for n, e in model.away.lanes.items() if e.second_since_ms is not None}
        assert state["away"] == {name: e.by_ms for name, e in model.away.lanes.items()} | seconds
        assert state["away_lanes"] == {name: e.keys for name, e in model.away.lanes.items()}
        assert (state["r"], state["h"]) == (model.lists["r"], model.lists["h"])
        assert state["entries"] == {key: e.fields()[4] for key, e in model.entries.items()}
        assert state["tries"] == model.tries | {f"\x1f{lane}": count for lane, count in model.refusals.items()}
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
        # Nobody waits for what is here already.
        assert not {key for keys in state["away_lanes"].values() for key in keys} & set(listed)
        assert state["high"] == set(state["h"])
        assert set(state["owners"]) == set(state["leases"])
        assert {w for w in ("w1", "w2") if state[w]} <= state["outboxes"]
        # Nothing is lost, nothing is twice: queued, or in one outbox, or trimmed from it.
        gone = [item for w in ("w1", "w2") for box in state[w].values() for item in box] + list(self.trimmed.elements())
        left = [item[: item.rindex("\x1f") + 1] for item in gone]
        waiting = [f"{key}\x1f{value.partition(chr(31))[0]}\x1f" for key, value in state["entries"].items()]
        assert sorted(left + waiting) == sorted(self.taken)
