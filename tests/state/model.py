"""A pool in plain Python: what the scripts must amount to, written for clarity and not for speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fleet.state.entry import Entry, nack, outbox_item
from fleet.state.pool import SHARE, Settlement
from tests.state.model_away import AwayOfCall, ModelAway, keeps_order, tier_and_lane

RATE_WINDOW_MS = 61_000
FAILED_BATCH_MS = 60_000
PROMISE_MS = 30_000
FULL_MS = 30_000
FENCED_MOST, FENCED_BACK_MS = 10, 30_000
SOONEST_MS = 1000


@dataclass
class ModelLease:
    epoch: int
    tier: str
    deadline_ms: int
    worker: str


@dataclass
class ModelPool:
    now_ms: int
    concurrency: int
    capacity: int
    rate: int | None = None
    promised: tuple[int, int] = (0, 0)
    """A capacity that was lowered, and until when what was asked for under it is taken."""
    paused: bool = False
    clock: int | None = None
    last_epoch: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    lists: dict[str, dict[str, list[str]]] = field(default_factory=lambda: {"r": {}, "h": {}})
    ready: list[str] = field(default_factory=list)
    leases: dict[str, ModelLease] = field(default_factory=dict)
    later: dict[str, int] = field(default_factory=dict)
    in_place: dict[str, int] = field(default_factory=dict)
    """How many messages of each lane that rests were there when it began to, or came since."""
    failed: dict[tuple[str, str], int] = field(default_factory=dict)
    permits: list[int] = field(default_factory=list)
    unrated: int = 0
    """The last epoch that was granted without a permit."""
    outboxes: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    on_failure: str = "return"
    away: ModelAway = field(default_factory=ModelAway)
    tries: dict[str, int] = field(default_factory=dict)
    """How often a message failed in place."""
    refusals: dict[str, int] = field(default_factory=dict)
    """How often in a row an endpoint refused the epochs of a lane."""

    def waiting(self, group: str, tier: str) -> list[str]:
        return self.lists[tier].get(group, [])

    def has_messages(self, group: str) -> bool:
        return bool(self.waiting(group, "r") or self.waiting(group, "h"))

    # Submit -------------------------------------------------------------------------------------

    def follow_clock(self) -> None:
        """Redis's clock may have stepped back: what is due by it moves along. Noted once a second."""
        if self.clock is not None and abs(self.now_ms - self.clock) < 1000:
            return
        step = 0 if self.clock is None else max(0, self.clock - self.now_ms)
        self.clock = self.now_ms
        for lease in self.leases.values():
            lease.deadline_ms -= step
        self.later = {lane: until - step for lane, until in self.later.items()}
        self.failed = {mark: until - step for mark, until in self.failed.items()}
        self.permits = [at - step for at in self.permits]
        self.promised = self.promised[0], self.promised[1] - step
        self.away.step_back(step)

    def note_time(self) -> None:
        """Something is due by it: it moves with a step back from here on."""
        if self.clock is not None and self.now_ms - self.clock >= 1000:
            self.clock = self.now_ms

    @property
    def pool_now_ms(self) -> int:
        return max(self.now_ms, self.clock or 0)

    def configure(self, concurrency: int, capacity: int, rate: int | None, on_failure: str) -> None:
        self.note_time()
        if rate is not None and self.rate is None:
            # What is under way was begun without a permit.
            self.permits += [self.pool_now_ms] * len(self.leases)
            self.unrated = self.last_epoch if self.leases else self.unrated
        promised = self.promised[0] if self.promised[1] > self.pool_now_ms else 0
        if self.capacity > capacity:
            self.promised = max(promised, self.capacity), self.pool_now_ms + PROMISE_MS
        elif promised <= capacity:
            self.promised = (0, 0)
        self.concurrency, self.capacity, self.rate, self.on_failure = concurrency, capacity, rate, on_failure

    def most(self) -> int:
        return max(self.capacity, self.promised[0]) if self.promised[1] > self.pool_now_ms else self.capacity

    def submit(self, entries: Sequence[Entry]) -> tuple[int, set[int], dict[int, int]]:
        """In shares: (how many from the front were taken, which are cascaded, which come too early and by how much)."""
        self.failed = {mark: until for mark, until in self.failed.items() if until > self.pool_now_ms}
        resting = sum(self.in_place.values())
        share, accepted, cascaded, behind = max(1, min(SHARE, self.most() - resting)), 0, set[int](), dict[int, int]()
        away = AwayOfCall(self.away, self.pool_now_ms, (entry.key for entry in entries))
        for first in range(0, len(entries), share):
            part = entries[first : first + share]
            taken = self._submit_share(part, away)
            if taken is None:
                for entry in entries[first:]:
                    if entry.key not in self.entries and keeps_order(entry, self.on_failure):
                        before = away.before(tier_and_lane(entry))
                        by_ms = self.pool_now_ms + FULL_MS if not before or before[0] == entry.key else 0
                        away.turned_away(tier_and_lane(entry), entry.key, by_ms)
                break
            accepted += len(part)
            cascaded |= {first + i for i in taken[0]}
            behind |= {first + i: ms for i, ms in taken[1].items()}
        if away.end():
            self.note_time()
        return accepted, cascaded, behind

    def _may_rest(self, lane: str, joining: Sequence[Entry]) -> bool:
        """Whether one more may wait in place with its lane, and with all others that do."""
        of_lane = self.in_place[lane] + sum(entry.lane == lane for entry in joining)
        of_all = sum(self.in_place.values()) + sum(entry.lane in self.in_place for entry in joining)
        return of_lane < max(1, self.capacity // 4) and of_all < max(1, self.capacity // 2)

    def _submit_share(self, entries: Sequence[Entry], away: AwayOfCall) -> tuple[set[int], dict[int, int]] | None:
        """None where it does not fit."""
        fresh: dict[str, Entry] = {}
        cascaded, behind = set(), {}
        turned_away: list[tuple[str, str, int]] = []
        for i, entry in enumerate(entries):
            if entry.key in self.entries or entry.key in fresh:
                continue
            name = tier_and_lane(entry)
            older = [key for key in away.before(name) if key not in fresh]
            older += [key for of, key, _ in turned_away if of == name]
            may_rest = entry.lane not in self.in_place or self._may_rest(entry.lane, list(fresh.values()))
            if (entry.batch, entry.lane) in self.failed:
                cascaded.add(i)
            elif may_rest and older[:1] in ([], [entry.key]):
                fresh[entry.key] = entry
            else:
                by_ms = 0 if may_rest else self.later[entry.lane]
                behind[i] = max(SOONEST_MS, away.wait_ms(name) if may_rest else by_ms - self.pool_now_ms)
                if older or keeps_order(entry, self.on_failure):
                    turned_away.append((name, entry.key, by_ms))
        if fresh and len(self.entries) + len(fresh) > self.most():
            return None
        for entry in fresh.values():
            away.came(tier_and_lane(entry), [entry.key])
        for one in turned_away:
            away.turned_away(*one)
        for entry in fresh.values():
            self._join(entry)
        return cascaded, behind

    def _join(self, entry: Entry) -> None:
        if entry.lane in self.in_place:
            self.in_place[entry.lane] += 1
        idle = not self.has_messages(entry.lane) and entry.lane not in self.leases
        self.entries[entry.key] = entry
        self.lists["h" if entry.high_priority else "r"].setdefault(entry.lane, []).append(entry.key)
        if idle:
            assert entry.lane not in self.later
            self.ready.append(entry.lane)

    def recall(self, queue: str) -> list[str]:
        """What is queued of one queue, but for what is leased: its coordinator stops."""
        back: list[str] = []
        for lane in [*self.ready, *(lane for _, lane in sorted((at, lane) for lane, at in self.later.items()))]:
            for tier in "hr":
                keys = [key for key in self.waiting(lane, tier) if self.entries[key].queue == queue]
                expected = self.away.lanes.get(tier + lane)
                if expected is not None:
                    self.away.stood_before(tier + lane, keys, expected.by_ms)
                back += [outbox_item(self._forget(key), "") for key in keys]
        self.ready = [lane for lane in self.ready if self.has_messages(lane)]
        for lane in [lane for lane in self.later if not self.has_messages(lane)]:
            del self.later[lane], self.in_place[lane]
        self.refusals = {lane: count for lane, count in self.refusals.items() if self.has_messages(lane)}
        return back

    # Settle -------------------------------------------------------------------------------------

    def settle(
        self, worker: str, call: int, trims: Sequence[int], settlements: Sequence[Settlement]
    ) -> tuple[set[int], set[int], list[str]]:
        """(indices refused, indices whose lease should yield, items made for siblings)"""
        self.follow_clock()
        outbox = self.outboxes.setdefault(worker, {})
        for trimmed in trims:
            outbox.pop(trimmed, None)
        settled: set[str] = set()
        refused, yields = set(), set()
        cascaded: list[str] = []
        again = []
        over = len(self.leases) - self.concurrency
        for i, settlement in enumerate(settlements):
            lease = self.leases.get(settlement.lane)
            if lease is None or (str(lease.epoch), lease.worker) != (settlement.epoch, worker):
                refused.add(i)
                continue
            if self.rate is not None and lease.epoch <= self.unrated and call not in outbox:
                # Its holder heard late, and may have begun the next.
                begun = len(settlement.items) + (settlement.release == "keep")
                self.permits += [self.now_ms] * begun
            if self._take(settlement, lease.tier):
                settled.update(settlement.items)
                self.refusals.pop(settlement.lane, None)
                if "\x1f" in settlement.release:
                    cascaded += self._cascade(settlement)
            if settlement.release == "keep":
                if over > 0 or (lease.tier == "r" and self.waiting(settlement.lane, "h")):
                    yields.add(i)
                over -= 1
            else:
                del self.leases[settlement.lane]
                if self.has_messages(settlement.lane):
                    if settlement.release == "ready" or "\x1f" in settlement.release:
                        again.append(settlement.lane)
                    else:
                        cascaded += self._wait(settlement.lane, lease.tier, settlement.release)
        settled.update(cascaded)
        if settled:
            assert call not in outbox, "a call settles once"
            outbox[call] = settled
        self.ready += again
        return refused, yields, cascaded

    def _wait(self, lane: str, tier: str, release: str) -> list[str]:
        """For the ms that the release says, behind a letter: `h` for a head that failed, `f` for a refused epoch."""
        delay_ms = int(release.lstrip("hf"))
        back_ms, stays = delay_ms, True
        if release.startswith("h") and self.waiting(lane, tier):
            head = self.waiting(lane, tier)[0]
            self.tries[head] = self.tries.get(head, 0) + 1
        if release.startswith("f"):
            self.refusals[lane] = self.refusals.get(lane, 0) + 1
            stays, back_ms = self.refusals[lane] < FENCED_MOST, max(delay_ms, FENCED_BACK_MS)
        items = self._rest(lane, delay_ms, back_ms, stays)
        if release.startswith("f") and not self.has_messages(lane):
            del self.refusals[lane]
        return items

    def _rest(self, lane: str, delay_ms: int, back_ms: int, stays: bool) -> list[str]:
        """It waits in place with its share of the pool; the end of it, or all of it, goes back."""
        most = min(max(1, self.capacity // 4), max(1, self.capacity // 2) - sum(self.in_place.values()))
        if not stays or most < 1:
            return self._send_back(lane, "h", 0, back_ms) + self._send_back(lane, "r", 0, back_ms)
        high = len(self.waiting(lane, "h"))
        items = self._send_back(lane, "r", max(most - high, 0 if high else 1), delay_ms)
        self.later[lane] = self.now_ms + delay_ms
        self.in_place[lane] = high + len(self.waiting(lane, "r"))
        return items

    def _send_back(self, lane: str, tier: str, stay: int, delay_ms: int) -> list[str]:
        """All behind the first few; where their order is promised, whatever is newer waits for them."""
        back = [self.entries[key] for key in self.waiting(lane, tier)[stay:]]
        ordered = [entry.key for entry in back if keeps_order(entry, self.on_failure)]
        self.away.stood_before(tier + lane, ordered, self.now_ms + delay_ms)
        for entry in back:
            self._forget(entry.key)
        return [outbox_item(entry, nack(delay_ms)) for entry in back]

    def _take(self, settlement: Settlement, tier: str) -> bool:
        keys = self.waiting(settlement.lane, tier)
        heads = [outbox_item(self.entries[key], "") for key in keys[: len(settlement.items)]]
        said = [item[: item.rindex("\x1f") + 1] for item in settlement.items]
        if not said or heads != said:
            return False
        for key in keys[: len(said)]:
            self._forget(key)
        return True

    def _cascade(self, settlement: Settlement) -> list[str]:
        cascade_ms, batch, queue = settlement.release.split("\x1f")
        self.failed[batch, settlement.lane] = self.now_ms + FAILED_BATCH_MS
        items = []
        for tier in ("h", "r"):
            for key in list(self.waiting(settlement.lane, tier)):
                if self.entries[key].batch == batch or self.entries[key].queue == queue:
                    items.append(outbox_item(self.entries[key], nack(int(cascade_ms))))
                    self._forget(key)
        return items

    def _forget(self, key: str) -> Entry:
        entry = self.entries.pop(key)
        self.tries.pop(key, None)
        tier = self.lists["h" if entry.high_priority else "r"]
        tier[entry.lane].remove(key)
        if not tier[entry.lane]:
            del tier[entry.lane]
        return entry

    # Claim --------------------------------------------------------------------------------------

    def claim(self, worker: str, *, ttl_ms: int, want: int, chunk: int) -> list[tuple[str, int, list[str]]]:
        """(group, epoch, keys) of each lease granted."""
        lapsed = sorted((lease.deadline_ms, g) for g, lease in self.leases.items() if lease.deadline_ms <= self.now_ms)
        for _, group in lapsed:
            del self.leases[group]
        self.ready = [group for _, group in lapsed if self.has_messages(group)] + self.ready
        for at_ms, group in sorted((at, g) for g, at in self.later.items()):
            if at_ms <= self.now_ms:
                del self.later[group]
                del self.in_place[group]
                self.ready.append(group)
        if self.paused:
            return []
        most = min(want, self.concurrency - len(self.leases))
        if self.rate is not None:
            chunk = 1
            self.permits = [at for at in self.permits if at > self.now_ms - RATE_WINDOW_MS]
            most = min(most, self.rate - len(self.permits))
        if self.rate is None and len(self.ready) < most:
            chunk *= 4  # nobody waits for a slot, so runs may be longer
        granted: list[tuple[str, int, list[str]]] = []
        while len(granted) < most and self.ready:
            group = self.ready.pop(0)
            tier = "h" if self.waiting(group, "h") else "r"
            self.last_epoch = max(self.last_epoch + 1, self.now_ms * 1000)
            self.leases[group] = ModelLease(self.last_epoch, tier, self.now_ms + ttl_ms, worker)
            granted.append((group, self.last_epoch, self.waiting(group, tier)[:chunk]))
            if self.rate is not None:
                self.permits.append(self.now_ms)
        return granted

    def renew(self, worker: str, held: Sequence[tuple[str, str]], *, ttl_ms: int) -> list[str]:
        self.note_time()
        lost = []
        for group, epoch in held:
            lease = self.leases.get(group)
            if (
                lease is None
                or (str(lease.epoch), lease.worker) != (epoch, worker)
                or lease.deadline_ms <= self.pool_now_ms
            ):
                lost.append(group)
            else:
                lease.deadline_ms = self.pool_now_ms + ttl_ms
        return lost
