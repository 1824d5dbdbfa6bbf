"""A few lines of plain Python that say what a queue that holds groups is, and a run of steps against it."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from fleet.sources.base import Outgoing, Publisher, Receipt, Received, Source
from tests.clocks import HandClock

VISIBILITY_MS = 100
DEDUP_MS = 5 * 60 * 1000

Step = tuple[str, int, int]
steps_of_a_run = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "send", "poll", "poll", "ack", "nack", "extend", "stale", "tick"]),
        st.integers(0, 40),
        st.integers(0, 160),
    ),
    max_size=60,
)


@dataclass
class Standing:
    body: bytes
    group: str | None
    visible_at_ms: int
    handle: str = ""
    count: int = 0
    sent_ms: int = 0


@dataclass
class Model:
    """All that stands in the queue, oldest first."""

    queue: list[Standing] = field(default_factory=list)
    dedup: dict[str, int] = field(default_factory=dict)

    def takeable(self, now_ms: int) -> dict[str, list[Standing]]:
        groups: dict[str, list[Standing]] = {}
        blocked: set[str] = set()
        for one in self.queue:
            group = one.group or f"alone {one.body!r}"
            if one.visible_at_ms > now_ms:
                blocked.add(group)
            elif group not in blocked:
                groups.setdefault(group, []).append(one)
        return groups

    def find(self, body: bytes) -> Standing:
        return next(one for one in self.queue if one.body == body)


class Run:
    """`fills`: whether a poll gives as much as is asked for, whatever groups it is of."""

    def __init__(self, clock: HandClock, source: Source, publisher: Publisher, *, fills: bool) -> None:
        self.clock, self.source, self.publisher, self.fills = clock, source, publisher, fills
        self.model = Model()
        self.sent = 0
        self.old_handles: list[tuple[Receipt, bytes]] = []

    async def step(self, kind: str, a: int, b: int) -> None:
        now_ms = self.clock.now_ms
        leased = [one for one in self.model.queue if one.handle]
        # A slice of what is out, so that acks and nacks meet holes, prefixes and tails.
        some = leased[a % (len(leased) + 1) :][: 1 + b % 5]
        match kind:
            case "send":
                await self._send(a, b)
            case "poll":
                self._check_poll(await self.source.poll(1 + a, 0), 1 + a)
            case "ack":
                assert all(await self.source.ack([Receipt("", one.handle) for one in some]))
                self.model.queue = [one for one in self.model.queue if one not in some]
                self.old_handles += [(Receipt("", one.handle), one.body) for one in some]
            case "nack":
                delays = [(b + 37 * place) % 120 for place in range(len(some))]
                pairs = [(Receipt("", one.handle), delay) for one, delay in zip(some, delays, strict=True)]
                assert all(await self.source.nack(pairs))
                self.old_handles += [(pair[0], one.body) for pair, one in zip(pairs, some, strict=True)]
                for one, delay in zip(some, delays, strict=True):
                    one.handle, one.visible_at_ms = "", now_ms + delay
            case "extend":
                assert all(await self.source.extend([Receipt("", one.handle) for one in some], b))
                for one in some:
                    one.visible_at_ms = now_ms + b
            case "stale":
                old = [handle for handle, _ in self.old_handles[-5:]]
                waiting = {one.body for one in self.model.queue}
                gone = [body not in waiting for _, body in self.old_handles[-5:]]
                assert await self.source.ack(old) == gone
                assert not any(await self.source.nack([(one, b) for one in old]))
                assert not any(await self.source.extend(old, b))
            case "tick":
                self.clock.now_ms += b if a else DEDUP_MS
        depth = await self.source.depth()
        invisible = sum(one.visible_at_ms > self.clock.now_ms for one in self.model.queue)
        assert (depth.waiting, depth.invisible) == (len(self.model.queue) - invisible, invisible)
        oldest_ms = min((one.sent_ms for one in self.model.queue), default=self.clock.now_ms)
        assert depth.oldest_s == (self.clock.now_ms - oldest_ms) / 1000

    async def _send(self, a: int, b: int) -> None:
        outgoing: list[Outgoing] = []
        for place in range(1 + a % 6):
            self.sent += 1
            one = Outgoing(
                # Of its own: without a dedup id it stands for one.
                id=f"m{self.sent}",
                body=b"%d" % self.sent + b" " * (5_000 if b == 7 else 0),
                group=[None, "a", "b", "c"][(a + place * b) % 4],
                dedup_id=f"{b % 7}" if b % 3 == 0 else None,
                delay_ms=b if a % 5 == 0 else 0,
            )
            outgoing.append(one)
            if one.dedup_id:
                if self.model.dedup.get(one.dedup_id, 0) > self.clock.now_ms:
                    continue
                self.model.dedup[one.dedup_id] = self.clock.now_ms + DEDUP_MS
            visible_at_ms = self.clock.now_ms + one.delay_ms
            self.model.queue.append(Standing(one.body, one.group, visible_at_ms, sent_ms=self.clock.now_ms))
        assert await self.publisher.publish(outgoing) == [None] * len(outgoing)

    def _check_poll(self, received: list[Received], want: int) -> None:
        takeable = self.model.takeable(self.clock.now_ms)
        there = sum(map(len, takeable.values()))
        assert len(received) == min(want, there) if self.fills else bool(there) <= len(received) <= min(want, there)
        for group, standing in takeable.items():
            bodies = [one.body for one in received if (one.group or f"alone {one.body!r}") == group]
            assert bodies == [one.body for one in standing[: len(bodies)]]
        for one in received:
            standing_one = self.model.find(one.body)
            if standing_one.handle:
                self.old_handles.append((Receipt("", standing_one.handle), one.body))
            standing_one.count += 1
            assert one.receive_count == standing_one.count
            standing_one.handle, standing_one.visible_at_ms = one.handle, self.clock.now_ms + VISIBILITY_MS

    async def drain(self) -> None:
        while self.model.queue:
            self.clock.now_ms += 1000
            received = await self.source.poll(7, 0)
            assert received
            self._check_poll(received, 7)
            assert all(await self.source.ack([Receipt("", one.handle) for one in received]))
            gone = {one.body for one in received}
            self.model.queue = [one for one in self.model.queue if one.body not in gone]
        assert await self.source.poll(7, 0) == []
