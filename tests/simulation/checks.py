"""What must hold at every moment, and what must be true in the end. The first check that fails ends the run."""

from __future__ import annotations

import fnmatch
from collections import defaultdict, deque
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fleet.message import DEFAULT_POOL
from fleet.state import keys
from fleet.state.keys import FleetKeys, OwnQueueKeys, PoolKeys, QueueKeys
from fleet.state.pool import AWAY_GRACE_MS
from fleet.state.scripts import SEP
from tests.simulation.endpoint import Endpoints, Transfer
from tests.simulation.loop import Loop, Process
from tests.simulation.redis import RedisHost
from tests.simulation.scenario import HOLDING, KINDS_OF, Family, GroupPlan, MessagePlan, Scenario

RATE_WINDOW_S = 60.0
RATE_GRACE_S = 1.5
"""A worker hears of a new limit with its next call. What it sent before that is allowed."""
REPEATS_NOTHING: frozenset[Family] = frozenset({"queues", "config", "operator", "endpoints"})
"""Faults of these families do not explain a second delivery of what a worker knows to be accepted."""
FLAPS = 5
"""The most revisions allowed in half a minute in which nobody changed a configuration."""

_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True)
class Violation:
    kind: str
    text: str
    at_s: float

    def __str__(self) -> str:
        return f"{self.kind} at {self.at_s:.3f} s: {self.text}"


class Broken(Exception):
    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


class Excuses:
    """What was done to the fleet that suspends a promise: its docs say which."""

    def __init__(self) -> None:
        self.forgot_s = -1e9
        """When Redis last lost something, or its clock was stepped."""
        self.ended_s = -1e9
        """When leases last ended unknown to their holders: Redis lost them, or its clock was stepped forward."""
        self.late_ms = 0.0
        """By how much steps of clocks can make what was sent back to a source come too late, as Redis sees it."""
        self.owned_twice = False
        """Whether a step of Redis's clock may have ended an owner's lease while it was reading its queue."""
        self.ever_forgot = False
        self.forgot_just_now = False
        self.stepped_back: tuple[float, float] | None = None
        """When Redis's clock last stepped back, and by how many seconds.

        If it forgets too, epochs begin anew below those that endpoints have seen.
        """
        self.policies: dict[str, set[str]] = defaultdict(set)
        self.moved: set[str] = set()
        """Pools that were taken out of the configuration, or drained, for a while."""
        self.configured_s = -1e9
        self.rivals = 0
        self.put_aside: set[str] = set()
        self.void_acks: dict[str, dict[str, str]] = {}
        """By queue, broker id and message of what was acked under an older handle: SQS deletes none of it, and
        JetStream may show it by then."""


class Checks:
    def __init__(
        self, *, scenario: Scenario, loop: Loop, redis: RedisHost, endpoints: Endpoints, excuses: Excuses
    ) -> None:
        self.violation: Violation | None = None
        self._scenario = scenario
        self._loop = loop
        self._redis = redis
        self._endpoints = endpoints
        self._excuses = excuses
        self._open: dict[str, list[Transfer]] = defaultdict(list)
        self._leases: dict[str, int] = {}
        self._clock_ms: dict[str, float] = {}
        self._asked_s: dict[str, float] = {}
        """When a pool was first seen to be asked for work after Redis's clock stepped back."""
        self._rate_since: dict[str, tuple[int, float]] = {}
        self._started: dict[str, deque[float]] = defaultdict(deque)
        self._revision = ""
        self._revised: deque[float] = deque()
        self._messages = {message.id: message for message in scenario.messages}
        self._groups = {group.name: group for group in scenario.groups}
        self._kind = {queue.name: queue.kind for queue in scenario.queues}
        self._in_group: dict[tuple[str, bool], list[str]] = defaultdict(list)
        """Messages of a group and tier, as their queue accepted them."""
        self._place: dict[str, int] = {}
        self.times_accepted: dict[str, int] = defaultdict(int)
        self._accepted: dict[str, Transfer] = {}
        """Each message's last request that was accepted."""
        kinds = {fault.kind for fault in scenario.faults}
        self._may_repeat = bool(scenario.families - REPEATS_NOTHING or kinds & {*KINDS_OF["together"]})
        self._invariants = redis.store.lua.execute(
            "local f = loadstring(...) return f", Path(__file__).with_name("invariants.lua").read_text("utf-8")
        )(redis.store.s)
        self._known_keys = _Names()
        endpoints.on_written = self.on_written
        endpoints.on_over = self.on_over
        endpoints.on_accepted = self.on_accepted
        redis.after = self.after_redis

    def broken(self, kind: str, text: str) -> None:
        if self.violation is None:
            self.violation = Violation(kind, text, self._loop.now_s)

    # State ------------------------------------------------------------------------------------------

    def after_redis(self, process: Process | None, what: str) -> None:
        store, excuses = self._redis.store, self._excuses
        if not (store.has_changed or excuses.forgot_just_now):
            return
        forgot, excuses.forgot_just_now = excuses.forgot_just_now, False
        found, store.has_changed = self._invariants(store.now_us, forgot)
        if found is None:
            return
        created, problems, facts, revision, parked, again = _decode(found)
        for key in created:
            if not self._known_keys.has(key):
                self.broken("key", f"{what} of {process} made the key {key}, which is of no family")
        self._excuses.put_aside.update(parked)
        for queue, broker_id, then, now in again:
            if broker_id not in self._excuses.void_acks.get(queue, ()):
                text = f"{broker_id} of {queue} was settled as {then}, and stands in its pool as {now}"
                self.broken("twice", f"after {what} of {process}: {text}")
        if problems:
            self.broken("state", f"after {what} of {process}: {'; '.join(problems[:5])}")
        for code, leases, concurrency, rate in facts:
            # A lowered limit lets what runs finish; if Redis forgot that something had finished, it runs again.
            if concurrency and leases > max(int(concurrency), self._leases.get(code, 0)) and not forgot:
                self.broken(
                    "concurrency",
                    f"{leases} leases in pool {code} of concurrency {concurrency} after {what} of {process}",
                )
            self._leases[code] = leases
            limit = int(rate) if rate else 0
            if self._rate_since.get(code, (0, 0.0))[0] != limit:
                self._rate_since[code] = limit, self._loop.now_s
        if revision and revision != self._revision:
            self._revision = revision
            self._on_revision()

    def _on_revision(self) -> None:
        now_s = self._loop.now_s
        self._revised.append(now_s)
        while self._revised[0] < now_s - 30.0:
            self._revised.popleft()
        calm = now_s - self._excuses.configured_s > 40.0 and now_s - self._excuses.forgot_s > 40.0
        if calm and len(self._revised) > FLAPS:
            self.broken("flapping", f"{len(self._revised)} revisions in 30 s, and nobody changed a configuration")

    def on_look(self, stopped: list[Process]) -> None:
        """A process that does nothing for longer than a lease lasts holds none: what it had on the wire is over by
        then."""
        if self._redis.is_away:
            return
        store, now_ms = self._redis.store, self._redis.now_ms()
        store.set_time_us(now_ms * 1000)
        for pool in {group.pool for group in self._scenario.groups}:
            if self._begins_anew(pool, now_ms) or not stopped:
                continue
            owners = store.command("HGETALL", PoolKeys(pool).owners)
            for lane, holder in zip(owners[0::2], owners[1::2], strict=True):
                deadline = store.command("ZSCORE", PoolKeys(pool).leases, lane)
                for process in stopped:
                    if f"-{process.number}-" in holder and deadline is not None and float(deadline) > now_ms:
                        stopped_s = self._loop.now_s - process.stopped_s
                        self.broken("wedged", f"{process} is stopped for {stopped_s:.1f} s and holds {lane} of {pool}")

    def _begins_anew(self, pool: str, now_ms: float) -> bool:
        """Whether a step back of Redis's clock may let this pool's leases last longer.

        They may from when somebody asks for work again; or, if nobody had asked for longer than the step, for its
        length.
        """
        now_s, (stepped_s, by_s) = self._loop.now_s, self._excuses.stepped_back or (-1e9, 0.0)
        clock_ms = float(self._redis.store.command("HGET", PoolKeys(pool).settings, "clock") or 0)
        asked_s = self._asked_s.get(pool, -1e9)
        if clock_ms > now_ms or (clock_ms != self._clock_ms.get(pool) and asked_s < stepped_s):
            asked_s = self._asked_s[pool] = now_s
        self._clock_ms[pool] = clock_ms
        if by_s <= stepped_s:
            asked_s = max(asked_s, stepped_s + by_s)
        return asked_s < stepped_s or now_s - asked_s < self._scenario.ttl_ms / 1000 + 2.0

    # Deliveries -------------------------------------------------------------------------------------

    def on_written(self, transfer: Transfer) -> None:
        now_s = self._loop.now_s
        at_work = self._open[transfer.lane]
        at_work[:] = [other for other in at_work if not (other.is_over or other.http.process.is_dead)]
        for other in at_work:
            process = other.http.process
            was_stopped = process.is_stopped or process.stops > other.stops
            # A worker whose lease Redis forgot, or a step of its clock ended, hears so within the lease's time. A step
            # back ends no lease.
            is_known = self._excuses.ended_s + self._scenario.ttl_ms / 1000 < now_s
            if not was_stopped and is_known:
                self.broken(
                    "overlap",
                    f"{transfer.message_id} is sent by {transfer.http.process} under epoch {transfer.epoch} while"
                    f" {process} delivers {other.message_id} of the same lane under epoch {other.epoch}",
                )
        at_work.append(transfer)
        if transfer.attempt == 1:
            self._count(transfer.pool, now_s)

    def _count(self, pool: str, now_s: float) -> None:
        started = self._started[pool]
        started.append(now_s)
        while started[0] <= now_s - RATE_WINDOW_S:
            started.popleft()
        limit, since_s = self._rate_since.get(pool, (0, 0.0))
        since_s = max(since_s, self._excuses.forgot_s) + RATE_GRACE_S
        if limit and sum(at_s > since_s for at_s in started) > limit:
            self.broken("rate", f"pool {pool} of {limit} a minute began {limit + 1} deliveries in less than 60 s")

    def on_over(self, transfer: Transfer) -> None:
        at_work = self._open.get(transfer.lane)
        if at_work and transfer in at_work:
            at_work.remove(transfer)

    def on_sent(self, message: MessagePlan) -> None:
        """Its queue has it."""
        before = self._in_group[message.group, message.is_high]
        self._place[message.id] = len(before)
        before.append(message.id)

    def on_accepted(self, transfer: Transfer) -> None:
        self.times_accepted[transfer.message_id] += 1
        self._is_repeated(transfer)
        if self.times_accepted[transfer.message_id] > 1 or transfer.message_id not in self._messages:
            return
        message = self._messages[transfer.message_id]
        group = self._groups[message.group]
        if not self._promises_order(group):
            return
        for earlier in self._in_group[message.group, message.is_high][: self._place[message.id]]:
            if not self._is_through(earlier):
                kind = self._kind[group.queue]
                text = f"{message.id} of group {group.name} ({kind}, pool {group.pool}) was accepted before {earlier}"
                self.broken("order", text)
                return

    def _is_repeated(self, transfer: Transfer) -> None:
        before, self._accepted[transfer.message_id] = self._accepted.get(transfer.message_id), transfer
        if self._may_repeat or before is None or not before.is_heard or transfer.message_id not in self._messages:
            return
        if transfer.is_over:
            return  # an earlier attempt, given up at its deadline and acted on after the one that followed it
        queue = self._groups[self._messages[transfer.message_id].group].queue
        if transfer.message_id not in self._excuses.void_acks.get(queue, {}).values():
            text = f"{transfer.message_id} was accepted again, by {transfer.http.process}, and no fault explains it"
            self.broken("twice", text)

    def _is_through(self, message_id: str) -> bool:
        return (
            self.times_accepted[message_id] > 0
            or message_id in self._endpoints.rejected
            or message_id in self._excuses.put_aside
        )

    def _promises_order(self, group: GroupPlan) -> bool:
        policies = self._excuses.policies[group.pool]
        if group.mode is not None:
            policies = {{"IMMEDIATE": "none", "NEXT_ON_ERROR": "skip", "BLOCK_ON_ERROR": "hold"}[group.mode]}
        if "skip" in policies or "none" in policies:
            return False
        kind = self._kind[group.queue]
        if kind in HOLDING:
            return True
        # In these, only what waits in place is in order, and only for as long as Redis remembers it.
        return (
            kind in ("jetstream", "activemq")
            and policies <= {"hold", "park"}
            and not self._excuses.ever_forgot
            and not self._excuses.owned_twice
            # It is not waited for longer than that; what a dead owner of JetStream was given, only for its visibility
            # timeout.
            and self._excuses.late_ms <= (0 if kind == "jetstream" else AWAY_GRACE_MS)
            and group.pool not in self._excuses.moved
        )

    # In the end -------------------------------------------------------------------------------------

    def lost(self) -> list[str]:
        return [m.id for m in self._scenario.messages if m.id in self._place and not self._is_through(m.id)]

    def is_tracked(self, queue: str) -> bool:
        """Whether anything of it is under way. If Redis forgot that something is over, its record is kept for some
        days, as acked."""
        records = self._redis.store.command("HGETALL", QueueKeys(queue).tracked)[1::2]
        return not all(self._excuses.ever_forgot and record.split(SEP)[2] == "a" for record in records)

    def _kept_of(self, queue: str) -> tuple[str, ...]:
        return () if self.is_tracked(queue) else ("tracked", "apps")

    def leftovers(self) -> list[str]:
        # What had come back before Redis forgot it, or came to another pool, stays noted as away for a day.
        moved = self._excuses.moved
        pools = {"*"} if self._excuses.ever_forgot else {*moved, DEFAULT_POOL} if moved else set[str]()
        may_remain = (*keys.FAMILIES, *(f"{{p:{pool}}}:{part}" for pool in pools for part in ("away", "a:*")))
        may_remain += tuple(f"{{q:{queue}}}:{part}" for queue in self._kind for part in self._kept_of(queue))
        return [
            key
            for key in self._redis.store.all_keys()
            if not any(fnmatch.fnmatchcase(key, glob.replace("[", "[[]")) for glob in may_remain)
        ]


class _Names:
    """All names that `fleet/state/keys.py` can make."""

    def __init__(self) -> None:
        self._exact: set[str] = {str(value) for name, value in vars(FleetKeys).items() if not name.startswith("_")}
        self._within = {"p": _parts(PoolKeys("?")), "q": _parts(QueueKeys("?")), "b": _parts(OwnQueueKeys("?"))}

    def has(self, key: str) -> bool:
        if key in self._exact or any(key.startswith(name) for name in self._exact if name.endswith(":")):
            return True
        tag, _, rest = key.partition("}:")
        parts = self._within.get(tag[1:2], set()) if tag.startswith("{") and tag[2:3] == ":" else set()
        return rest in parts or any(part.endswith(":") and rest.startswith(part) for part in parts)


def _parts(family: object) -> set[str]:
    made = {
        str(getattr(family, name))
        for kind in type(family).__mro__
        for name, member in vars(kind).items()
        if isinstance(member, property) and name != "prefix"
    }
    made |= {family.outbox("")} if isinstance(family, PoolKeys) else set()
    return {name.partition("}:")[2] for name in made}
