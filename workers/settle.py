"""What an outcome means for the lease and the message, and how accepted outcomes reach their queues."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import assert_never

from fleet import failpoint
from fleet.errors import StateError
from fleet.outcome import (
    CASCADE_RETRY_S,
    Delivered,
    Failed,
    Outcome,
    OutcomeName,
    Refenced,
    Rejected,
    Unreachable,
    retry_delay_s,
)
from fleet.state.connect import Client
from fleet.state.entry import ACK, nack, outbox_item
from fleet.state.pool import failed
from fleet.state.queue import Queue
from fleet.state.scripts import SEP
from workers.claim import GroupLease, PoolLink

log = logging.getLogger("fleet.worker")

FENCED_PAUSE_MS = 1000
"""A group whose endpoint refused our epoch rests this long: if Redis thinks the lease is ours, asking again at
once would be refused again at once."""
REPORT_EVERY_S = 0.002
"""How often a queue hears of outcomes at most. They are settled already; this is on their way to the source."""
_RETRY_FROM_S, _RETRY_TO_S = 0.05, 1.0


def settle(lease: GroupLease, outcome: Outcome) -> bool:
    """Owe the outcome to the pool. True if the lease goes on with its next message."""
    link, entry = lease.link, lease.entry
    match outcome:
        case Delivered() | Rejected():
            # Rejected is acked too: an endpoint that answers 404 today would do so for ever.
            item = outbox_item(entry, ACK)
            lease.at += 1
            if lease.at < len(lease.entries):
                link.owe(lease).items.append(item)
                return True
            link.end(lease).items.append(item)
        case Failed(retry_s=seconds):
            _return(lease, retry_delay_s(seconds))
        case Unreachable():
            _return(lease, retry_delay_s(None))
        case Refenced():
            link.end(lease, str(FENCED_PAUSE_MS))
        case _:
            assert_never(outcome)
    return False


def _return(lease: GroupLease, delay_s: int) -> None:
    """Nack the message, and with it what its batch still holds of its group."""
    entry = lease.entry
    settlement = lease.link.end(lease)
    settlement.items.append(outbox_item(entry, nack(delay_s * 1000)))
    # Siblings come back sooner only where the source will not show them before the head of their group.
    cascade_s = CASCADE_RETRY_S if entry.source_holds_groups else max(CASCADE_RETRY_S, delay_s)
    settlement.release = failed(cascade_s * 1000, entry.batch)


def name_of(outcome: Outcome) -> OutcomeName:
    match outcome:
        case Delivered():
            return "SUCCESS"
        case Rejected():
            return "ERROR_CONFIG"
        case Failed():
            return "ERROR_PROCESS"
        case Unreachable():
            return "ERROR_CONNECTION"
        case Refenced():
            return "FENCED"
        case _:
            assert_never(outcome)


class _Parcel:
    """What one call settled, until all of it has reached its queues."""

    __slots__ = ("call", "left", "link")

    def __init__(self, link: PoolLink, call: int, left: int) -> None:
        self.link = link
        self.call = call
        self.left = left


class Reporter:
    """Copies accepted outcomes from this worker's outboxes to their queues' settled lists, then has them trimmed.

    One call in flight a queue: what piles up meanwhile goes with the next.
    """

    def __init__(self, *, client: Client, worker: str, on_crash: Callable[[asyncio.Task[None]], None]) -> None:
        self._client = client
        self._worker = worker
        self._on_crash = on_crash
        self._waiting: dict[str, list[tuple[_Parcel, str]]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reported_at: dict[str, float] = {}
        self._recoveries: set[asyncio.Task[None]] = set()
        self.counts: Counter[str] = Counter()

    @property
    def busy(self) -> bool:
        return bool(self._tasks or self._recoveries)

    def lost_lease(self) -> None:
        self.counts["leases_lost"] += 1

    def refused(self, settlements: int) -> None:
        self.counts["settlements_refused"] += settlements

    def report(self, link: PoolLink, call: int, items: list[str]) -> None:
        failpoint.hit("settled")
        parcel = _Parcel(link, call, len(items))
        for item in items:
            queue = item.rsplit(SEP, 3)[0]
            waiting = self._waiting.get(queue)
            if waiting is None:
                waiting = self._waiting[queue] = []
            waiting.append((parcel, item))
        for queue in self._waiting:
            if queue not in self._tasks:
                task = self._tasks[queue] = asyncio.get_running_loop().create_task(self._copy(queue))
                task.add_done_callback(self._on_crash)

    def recover(self, link: PoolLink) -> None:
        """Report all that stands in the outbox of a pool: some of it may have been accepted without our knowing."""
        task = asyncio.get_running_loop().create_task(self._recover(link))
        self._recoveries.add(task)
        task.add_done_callback(self._recoveries.discard)
        task.add_done_callback(self._on_crash)

    async def _recover(self, link: PoolLink) -> None:
        pause_s = _RETRY_FROM_S
        while True:
            try:
                calls = await link.pool.outbox(self._worker)
                break
            except StateError:
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _RETRY_TO_S)
        for call, items in calls.items():
            self.report(link, call, items)

    async def _copy(self, name: str) -> None:
        queue = Queue(self._client, name)
        loop = asyncio.get_running_loop()
        pause_s = _RETRY_FROM_S
        try:
            while name in self._waiting:
                pause_left_s = self._reported_at.get(name, 0.0) + REPORT_EVERY_S - loop.time()
                if pause_left_s > 0:
                    await asyncio.sleep(pause_left_s)
                self._reported_at[name] = loop.time()
                batch = self._waiting.pop(name)
                outcomes = [tuple(item.rsplit(SEP, 3)[1:]) for _, item in batch]
                while True:
                    try:
                        await queue.report(outcomes)  # type: ignore[arg-type]
                        break
                    except StateError as error:
                        # They are safe in the outbox: should we die, the leader copies them.
                        log.debug("outcomes of %s wait: %s", name, error)
                        await asyncio.sleep(pause_s)
                        pause_s = min(pause_s * 2, _RETRY_TO_S)
                failpoint.hit("copied")
                for parcel, _ in batch:
                    parcel.left -= 1
                    if parcel.left == 0:
                        parcel.link.trim(parcel.call)
        finally:
            del self._tasks[name]
