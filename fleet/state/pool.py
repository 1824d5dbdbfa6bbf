"""A pool in Redis: its lanes, leases on them, outboxes. One typed wrapper per script."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from fleet.outcome import QUEUE_FULL_RETRY_S
from fleet.state.connect import Client, translated
from fleet.state.entry import ITEM_SEP, Entry, Tier, unpack
from fleet.state.keys import PoolKeys
from fleet.state.scripts import SEP, script

SHARE = 50
"""Messages of one batch are taken by a pool in shares of this many, each whole or not at all."""
AWAY_GRACE_MS = 60_000
"""What went back to its source may be this late. If its owner died, it may take the source's visibility longer."""


@dataclass(frozen=True, slots=True)
class PoolSettings:
    concurrency: int
    capacity: int
    rate_limit_per_minute: int | None = None
    on_failure: str = "return"
    draining: bool = False
    park_after: int = 10
    secret: str = field(default="", repr=False)
    secret_file: str = ""


@dataclass(slots=True)
class Settlement:
    """What a worker finished of one lease, in order."""

    lane: str
    epoch: str
    items: list[str] = field(default_factory=list)
    release: str = "keep"
    """`keep`, `ready`, the ms after which the lane may be leased again, or what `failed`, `fenced`, `in_place` make."""


def in_place(delay_ms: int) -> str:
    """Release the lease; its head failed, and is tried again in place after the delay."""
    return f"h{delay_ms}"


def fenced(delay_ms: int) -> str:
    """Release the lease: its endpoint refused its epoch, and is asked again under another after the delay."""
    return f"f{delay_ms}"


def failed(cascade_ms: int, batch: str, queue: str = "") -> str:
    """Release the lease after a nack, and nack what its lane still holds of the same batch.

    With `queue`, all that it holds of that queue: a source that holds the group shows none of it before the head.
    """
    return f"{cascade_ms}{SEP}{batch}{SEP}{queue}"


@dataclass(slots=True)
class Claim:
    """A lease on a lane, and the messages at its head."""

    lane: str
    epoch: str
    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class Policy:
    """What the pool's settings say about a delivery that failed."""

    on_failure: str = "return"
    park_after: int = 10
    draining: bool = False
    rated: bool = False
    """Each message needs a permit of its own."""


@dataclass(slots=True)
class Exchanged:
    tag: Literal["ok", "paused", "unknown"]
    due_ms: int | None
    refused: set[int]
    yields: set[int]
    cascaded: list[str]
    claims: list[Claim]
    policy: Policy
    rate_waits: int = 0
    """Lanes that wait for a permit of the rate limit, and did not before this call."""


@dataclass(frozen=True, slots=True)
class Submitted:
    tag: Literal["ok", "unknown", "draining", "stale"]
    accepted: int
    room: int
    cascaded: frozenset[int]
    behind: dict[int, int]
    """Those that must not overtake older messages of their lane, which are away or wait → after how many ms they may
    come again."""


class Pool:
    """One pool. `now_ms` is for tests; empty means Redis TIME."""

    def __init__(self, client: Client, code: str, *, now_ms: str = "") -> None:
        self.client = client
        self.code = code
        self.keys = PoolKeys(code)
        self.now_ms = now_ms
        self._exchange_keys: tuple[str, list[str]] | None = None

    async def exchange(
        self,
        worker: str,
        *,
        ttl_ms: int,
        want: int = 0,
        chunk: int = 1,
        quiet: bool = False,
        place: int = 0,
        call: int = 0,
        trims: Sequence[int] = (),
        settlements: Sequence[Settlement] = (),
    ) -> Exchanged:
        """Settle, trim and claim in one call.

        `call` numbers it, and `trims` names earlier ones whose outcomes have reached their queues. `quiet`: we ask
        again at once, so wake nobody. `place`: our place among the workers that hear of the pool.
        """
        arguments: list[str | int] = [
            self.now_ms, worker, ttl_ms, want, chunk, "1" if quiet else "0",
            place, call, len(trims), len(settlements), *trims,
        ]  # fmt: skip
        for s in settlements:
            arguments += (s.lane, s.epoch, s.release, len(s.items))
            arguments += s.items
        tag, due, refused, yields, cascaded, claims, policy, tries, waits = await script("exchange")(
            self.client, self._keys_of_exchange(worker), arguments
        )
        return Exchanged(
            tag,
            int(due) if due else None,
            {i - 1 for i in refused},
            {i - 1 for i in yields},
            cascaded,
            _claims(claims, tries),
            Policy(policy[0], int(policy[1] or 0), bool(policy[2]), bool(policy[3])),
            waits,
        )

    def _keys_of_exchange(self, worker: str) -> list[str]:
        if self._exchange_keys is None or self._exchange_keys[0] != worker:
            keys = [
                self.keys.outbox(worker) if key == "outbox" else str(getattr(self.keys, key))
                for key in script("exchange").keys
            ]
            self._exchange_keys = worker, keys
        return self._exchange_keys[1]

    async def submit(
        self,
        queue: str,
        owner_epoch: str,
        entries: Sequence[Entry],
        *,
        call: int = 0,
        full_s: int = QUEUE_FULL_RETRY_S,
        grace_ms: int = AWAY_GRACE_MS,
    ) -> Submitted:
        """`call`: the owner's, see `fence`. `full_s`: after how long what does not fit comes again.

        `grace_ms`: how long newer messages of a lane wait for one that went back, counted from the end of its delay.
        """
        arguments: list[str | int] = [self.now_ms, queue, owner_epoch, call, SHARE, full_s * 1000, grace_ms]
        for entry in entries:
            arguments += entry.fields()
        s = script("submit")
        tag, accepted, room, cascaded, behind = await s(self.client, s.keys_of(self.keys), arguments)
        waits = {i - 1: int(ms) for i, ms in zip(behind[0::2], behind[1::2], strict=True)}
        return Submitted(tag, accepted, room, frozenset(i - 1 for i in cascaded), waits)

    async def renew(self, worker: str, leases: Sequence[tuple[str, str]], *, ttl_ms: int) -> list[str]:
        """Keep (lane, epoch) leases; returns the lanes that are lost."""
        arguments: list[str | int] = [self.now_ms, worker, ttl_ms]
        for lane, epoch in leases:
            arguments += (lane, epoch)
        s = script("renew")
        lost: list[str] = await s(self.client, s.keys_of(self.keys), arguments)
        return lost

    async def configure(self, revision: str, settings: PoolSettings) -> bool:
        s = script("configure")
        rate = settings.rate_limit_per_minute
        arguments: list[str | int] = [
            self.now_ms,
            revision,
            settings.concurrency,
            settings.capacity,
            "" if rate is None else rate,
            settings.on_failure,
            "1" if settings.draining else "",
            settings.park_after,
            settings.secret,
            settings.secret_file,
        ]
        return bool(await s(self.client, s.keys_of(self.keys), arguments))

    async def remove(self, revision: str) -> Literal["gone", "busy", "kept"]:
        """Take the pool away if it is draining and empty."""
        s = script("remove")
        result: Literal["gone", "busy", "kept"] = await s(self.client, s.keys_of(self.keys), [revision])
        return result

    async def fence(self, queue: str, owner_epoch: str, *, call: int = 0) -> bool:
        """From here on refuse what older owners submit, and what this one submits in a call of a lower number."""
        s = script("fence")
        return bool(await s(self.client, s.keys_of(self.keys), [queue, owner_epoch, call]))

    async def owner_of(self, queue: str) -> str:
        """The highest epoch of the queue's owners that this pool has seen."""
        with translated():
            return str(await self.client.hget(self.keys.epochs, f"q:{queue}") or "0")

    async def expect(self, queue: str, owner_epoch: str, messages: Sequence[tuple[str, str, str, str]]) -> bool:
        """Each (tier, lane, key, policy), in their order, comes again from a source that holds no groups, and newer
        messages of its lane wait for it. False if a newer owner has been here."""
        s = script("expect")
        arguments: list[str | int] = [self.now_ms, queue, owner_epoch]
        for message in messages:
            arguments += message
        return bool(await s(self.client, s.keys_of(self.keys), arguments))

    async def expect_no_more(self, messages: Sequence[tuple[str, str, str, str]]) -> None:
        """Each (tier, lane, key, instead) is a copy that came: newer messages no longer wait for it, or wait for
        `instead` in its place."""
        s = script("expect_no_more")
        arguments = [field for message in messages for field in message]
        await s(self.client, s.keys_of(self.keys), arguments)

    async def queued(self, keys: Sequence[str]) -> tuple[list[bool], list[str]]:
        """Which entries the pool still queues, and every outbox item that may not have been copied yet."""
        s = script("queued")
        flags, records = await s(self.client, [self.keys.entries, self.keys.outboxes, self.keys.outbox("")], list(keys))
        return [bool(flag) for flag in flags], [item for record in records for item in record.split(ITEM_SEP)]

    async def recall(self, queue: str, most: int) -> AsyncIterator[list[tuple[str, str]]]:
        """Take back what is queued of one queue and not under a lease: (broker id, token), in the order of each lane.

        `most` lanes a call, until a whole round finds nothing: some may change places while we go through them.
        """
        found = True
        while found:
            found = False
            with translated():
                left = int(await self.client.llen(self.keys.ready))
            while left > 0:
                looked, _, taken = await self._recall(queue, min(most, left), "")
                left = left - looked if looked else 0
                if taken:
                    found = True
                    yield taken
            at = 0
            while True:
                looked, stayed, taken = await self._recall(queue, most, at)
                at += stayed
                if taken:
                    found = True
                    yield taken
                if not looked:
                    break

    async def _recall(self, queue: str, most: int, at: int | str) -> tuple[int, int, list[tuple[str, str]]]:
        s = script("recall")
        looked, stayed, *flat = await s(self.client, s.keys_of(self.keys), [queue, most, at])
        return looked, stayed, list(zip(flat[0::2], flat[1::2], strict=True))

    async def lanes_to_do(self) -> int:
        """How many lanes are leased or ready."""
        asked = self.client.pipeline(transaction=False)
        asked.zcard(self.keys.leases)
        asked.llen(self.keys.ready)
        with translated():
            return sum(await asked.execute())

    async def room(self, tell_at: int | None = None) -> int:
        """How many more messages it takes. With less than `tell_at`, it publishes its code once it has that much."""
        s = script("room")
        room: int = await s(self.client, s.keys_of(self.keys), ["" if tell_at is None else tell_at])
        return room

    async def outboxes(self) -> set[str]:
        """Workers with outcomes that may not have reached their queues yet."""
        with translated():
            return set(await self.client.smembers(self.keys.outboxes))

    async def outbox(self, worker: str) -> dict[int, list[str]]:
        """What each call of a worker settled, oldest first."""
        with translated():
            records = await self.client.hgetall(self.keys.outbox(worker))
        return {call: records[str(call)].split(ITEM_SEP) for call in sorted(map(int, records))}

    async def trim_outbox(self, worker: str, calls: Sequence[int]) -> int:
        s = script("trim_outbox")
        left: int = await s(self.client, [self.keys.outboxes, self.keys.outbox(worker)], [worker, *calls])
        return left


def _claims(flat: list[str | int], tries: list[int]) -> list[Claim]:
    if not flat:
        return []
    heads: list[tuple[str, str, Tier, int]] = []
    at = total = 0
    # The heads come first; together they say how many entries stand behind them.
    while at + 2 * total < len(flat):
        lane, epoch, tier, count = flat[at : at + 4]
        heads.append((lane, epoch, tier, int(count)))  # type: ignore[arg-type]
        total += int(count)
        at += 4
    claims = []
    for lane, epoch, tier, count in heads:
        entries = [
            unpack(flat[i], flat[i + 1], lane, tier)  # type: ignore[arg-type]
            for i in range(at, at + 2 * count, 2)
        ]
        at += 2 * count
        claims.append(Claim(lane, epoch, entries))
    if tries:
        all_entries = [entry for claim in claims for entry in claim.entries]
        for place, count in zip(tries[0::2], tries[1::2], strict=True):
            all_entries[place - 1].tries = count
    return claims
