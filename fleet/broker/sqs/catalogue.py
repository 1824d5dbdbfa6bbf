"""The queues that there are, and those that this door has in hand: with their engines, and whoever waits for them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from fleet.broker.sqs import errors, records
from fleet.broker.sqs.counts import DoorCounts, QueueCounts
from fleet.broker.sqs.gather import Gather
from fleet.broker.sqs.records import FEATURES, QueueRecord
from fleet.broker.sqs.wait import Receiving
from fleet.state import purging
from fleet.state.catalogue import Catalogue, Change
from fleet.state.connect import Client
from fleet.state.engine import Ahead, Engine, New, Rules, Sent, Showing, Stale, Taking, Verdict
from fleet.state.keys import OwnQueueKeys

T = TypeVar("T")
PREFIX = "sqs/"
BUCKET_IDLE_MS = 3_600_000
DEDUP_MS = 5 * 60 * 1000
MOST_IN_FLIGHT = {False: 120_000, True: 20_000}
"""Of a standard queue, and of a FIFO queue."""
_MOST_SENT, _MOST_CONCLUDED, _MOST_CHARGED = 200, 500, 500
_SMALL_BYTES = 64 * 1024
_MOST_REMEMBERED = 20_000
_TRIES = 20
"""A receive may wait for as long as others take to change the queue so often."""


class Queue:
    """One queue as this door knows it: thrown away when it turns out that it has changed."""

    def __init__(
        self, client: Client, name: str, record: QueueRecord, now_ms: Callable[[], str], counts: QueueCounts
    ) -> None:
        self.client = client
        self.counts = counts
        self.name = name
        self.record = record
        self.attributes = record.attributes
        self._now_ms = now_ms
        count = record.attributes.partitions
        self.engines = [engine_of(client, name, record, partition) for partition in range(count)]
        self.sends = [
            Gather(self._sender(partition, engine), most=_MOST_SENT, weigh=_weight)
            for partition, engine in enumerate(self.engines)
        ]
        self.concludes = [
            Gather(self._concluder(partition, engine), most=_MOST_CONCLUDED)
            for partition, engine in enumerate(self.engines)
        ]
        self._charges: dict[str, Gather[int, tuple[float, float]]] = {}
        self.receiving = Receiving(
            partitions=count,
            ordered=record.attributes.fifo,
            receive=self._receive,
            put_back=self.put_back,
        )
        self.on_moved: Callable[[Queue], None] = lambda _: None

    def tell_time(self) -> None:
        for engine in self.engines:
            engine.now_ms = self._now_ms()

    def wall_ms(self) -> int:
        return int(self._now_ms() or time.time_ns() // 1_000_000)

    def rules(self, visibility_s: int, *, per_lane: int = 10) -> Rules:
        attributes = self.attributes
        redrive = attributes.redrive
        return Rules(
            visibility_ms=visibility_s * 1000,
            per_lane=per_lane,
            retention_ms=attributes.retention_s * 1000,
            max_count=redrive.max_receive_count if redrive else 0,
            target=redrive.target if redrive else "",
            delay_ms=attributes.delay_s * 1000 if attributes.fifo else 0,
            max_out=MOST_IN_FLIGHT[attributes.fifo],
        )

    async def purge(self, token: str, *, hold_off_ms: int) -> bool:
        """False if another one was begun within that time. One that is cut off, another door finishes."""
        purge, queue = f"{self.record.incarnation}-{token}", PREFIX + self.name
        is_first = await purging.begin(self.client, queue, purge, hold_off_ms=hold_off_ms)
        # It may be ours that was begun: the queue has changed since, and we ask again.
        if not is_first and await purging.begun(self.client, queue) != purge:
            return False
        await self._purge(purge)
        return True

    async def finish_purge(self) -> None:
        purge = await purging.begun(self.client, PREFIX + self.name)
        if purge.startswith(f"{self.record.incarnation}-"):
            await self._purge(purge)

    async def _purge(self, purge: str) -> None:
        for engine in self.engines:
            await engine.purge(purge)

    async def put_back(self, partition: int, showings: Sequence[Showing]) -> None:
        """As if nobody had been shown these."""
        verdicts = [Verdict(one.number, one.times, one.group, "u") for one in showings]
        await self.concludes[partition].ask(verdicts)

    async def charge(self, bucket: str, n: int, *, capacity: float, refill: float) -> tuple[float, float]:
        """Tokens that are left, and in how many ms there would be enough: 0 if there were."""
        gather = self._charges.get(bucket)
        if gather is None:

            async def call(asked: Sequence[int]) -> list[tuple[float, float]]:
                # Partition 0 is where there is one bucket for all of them.
                found = await self.engines[0].charge(
                    bucket, asked, capacity=capacity, refill=refill, idle_ms=BUCKET_IDLE_MS
                )
                return [(found.tokens, wait_ms) for wait_ms in found.wait_ms]

            gather = self._charges[bucket] = Gather(call, most=_MOST_CHARGED)
        return (await gather.ask([n]))[0]

    def _sender(self, partition: int, engine: Engine) -> Callable[[Sequence[New]], Awaitable[list[Sent]]]:
        async def send(new: Sequence[New]) -> list[Sent]:
            engine.now_ms = self._now_ms()
            sent = await engine.send(new, dedup_ms=DEDUP_MS)
            self.counts.sent(partition, sum(one.is_new for one in sent))
            return sent

        return send

    def _concluder(self, partition: int, engine: Engine) -> Callable[[Sequence[Verdict]], Awaitable[list[int]]]:
        async def conclude(verdicts: Sequence[Verdict]) -> list[int]:
            engine.now_ms = self._now_ms()
            results = await engine.conclude(verdicts)
            self.counts.concluded(partition, verdicts, results)
            return results

        return conclude

    async def _receive(self, partition: int, most: int, visibility_s: int, per_lane: int) -> Taking:
        engine = self.engines[partition]
        engine.now_ms = self._now_ms()
        taking = await engine.receive(most, self.rules(visibility_s, per_lane=per_lane))
        if taking.moved:
            self.on_moved(self)
        return taking


def _weight(new: New) -> int:
    """A call takes hundreds of small messages, or some large ones: others wait for Redis meanwhile."""
    return 1 + len(new.stored) // _SMALL_BYTES


def engine_of(client: Client, name: str, record: QueueRecord, partition: int) -> Engine:
    return Engine(
        client,
        OwnQueueKeys(PREFIX + name, partition),
        kind="o" if record.attributes.fifo else "s",
        incarnation=record.incarnation,
        version=record.version,
    )


class Queues:
    def __init__(
        self,
        client: Client,
        now_ms: Callable[[], str] = lambda: "",
        on_moved: Callable[[Queue], None] = lambda _: None,
        counts: DoorCounts | None = None,
    ) -> None:
        self.client = client
        self._counts = counts if counts is not None else DoorCounts()
        self.catalogue = Catalogue(client)
        self._now_ms = now_ms
        self._on_moved = on_moved
        self._known: dict[str, Queue] = {}
        self._by_prefix: dict[str, Queue] = {}

    def now_ms(self) -> int:
        return int(self._now_ms() or time.time_ns() // 1_000_000)

    # As the catalogue has it --------------------------------------------------------------------------

    async def seen(self, name: str) -> tuple[str, QueueRecord] | None:
        text = await self.catalogue.get("queues", name)
        return (text, records.read(text)) if text else None

    async def find(self, name: str) -> tuple[str, QueueRecord]:
        found = await self.seen(name)
        if found is None:
            self.forget(name)
            raise errors.no_such_queue()
        return found

    async def change(self, name: str, seen: str, record: QueueRecord | None) -> bool:
        text = records.written(record) if record is not None else ""
        changed = await self.catalogue.change(Change("queues", name, seen, text))
        self.forget(name)
        return changed

    async def names(self) -> list[str]:
        return sorted({name async for name, _ in self.catalogue.all("queues")})

    async def all(self) -> dict[str, QueueRecord]:
        return {name: records.read(text) async for name, text in self.catalogue.all("queues")}

    # As we have it in hand ----------------------------------------------------------------------------

    async def use(self, name: str, job: Callable[[Queue], Awaitable[T]]) -> T:
        """Do it with the queue as we know it; if that has changed, read it again and go on with that."""
        for _ in range(_TRIES):
            queue = self._known.get(name) or await self._read(name)
            queue.tell_time()
            try:
                return await job(queue)
            except Stale:
                self.forget(name, queue)
                if (await self.find(name))[1] == queue.record:
                    await self._catch_up(name, queue)
            except Ahead:
                # Who changed it died before it could say so; or it was deleted, so long ago that nobody remembers.
                if (await self.find(name))[1] == queue.record:
                    await establish(queue.engines, queue.record)
                else:
                    self.forget(name, queue)
        raise errors.service_unavailable()

    async def _catch_up(self, name: str, queue: Queue) -> None:
        """The catalogue knows less than its queue: in a Cluster it may come back without its last writes."""
        incarnation, version = max([await engine.known() for engine in queue.engines])
        record = msgspec.structs.replace(queue.record, incarnation=incarnation, version=version)
        if await self.change(name, records.written(queue.record), record):
            engines = [engine_of(self.client, name, record, place) for place in range(len(queue.engines))]
            await establish(engines, record)

    async def _read(self, name: str) -> Queue:
        _, record = await self.find(name)
        if not FEATURES.issuperset(record.needs):
            raise errors.service_unavailable()
        known = self._known.get(name)
        if known is not None and known.record == record:
            return known
        if len(self._known) >= _MOST_REMEMBERED:
            self._forget_idle()
        queue = Queue(self.client, name, record, self._now_ms, self._counts.of_queue(name))
        queue.on_moved = self._on_moved
        self._known[name] = queue
        for engine in queue.engines:
            self._by_prefix[engine.prefix] = queue
        return queue

    def learn(self, name: str, record: QueueRecord) -> None:
        """That is what the catalogue has: who changed it may have died before it told the queue."""
        known = self._known.get(name)
        if known is not None and known.record != record:
            self.forget(name)

    def forget(self, name: str, queue: Queue | None = None) -> None:
        """What others are asking of it goes on, and who waits there asks the next one."""
        known = self._known.get(name)
        if known is None or (queue is not None and known is not queue):
            return
        del self._known[name]
        for engine in known.engines:
            if self._by_prefix.get(engine.prefix) is known:
                del self._by_prefix[engine.prefix]
        known.receiving.retire()

    def _forget_idle(self) -> None:
        for name, queue in list(self._known.items()):
            if not queue.receiving.waiting:
                self.forget(name)

    def on_signal(self, prefix: str) -> None:
        """Something shows there, or will."""
        queue = self._by_prefix.get(prefix)
        if queue is not None:
            queue.receiving.on_signal()

    def look_everywhere(self) -> None:
        """Signals may have been missed."""
        for queue in self._known.values():
            queue.receiving.on_signal()

    def end_waits(self) -> None:
        """Who waits is answered now: this door is closing."""
        for queue in self._known.values():
            queue.receiving.end()

    @property
    def waiting(self) -> int:
        return sum(queue.receiving.waiting for queue in self._known.values())


async def establish(engines: Sequence[Engine], record: QueueRecord, *, keep_ms: int | None = None) -> None:
    """Let each partition know what we know. One that knows more says so to whoever asks it next."""
    delay_ms = record.attributes.delay_s * 1000 if record.attributes.fifo else None
    told = (engine.establish(keep_ms=keep_ms, delay_ms=delay_ms) for engine in engines)
    done = await asyncio.gather(*told, return_exceptions=True)
    for result in done:
        if isinstance(result, BaseException) and not isinstance(result, Stale):
            raise result


def dedup_digest(group: str, dedup_id: str, *, per_group: bool) -> str:
    """What is kept of a dedup id: short, whatever it is."""
    scope = f"{group}\0" if per_group else ""
    digest = hashlib.blake2b(f"{scope}{dedup_id}".encode(), digest_size=15).digest()
    return base64.b64encode(digest).decode()
