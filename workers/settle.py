"""What an outcome means for the lease and the message, and how accepted outcomes reach their queues."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import assert_never

import msgspec

from fleet import failpoint
from fleet.errors import StateError
from fleet.outcome import (
    CASCADE_RETRY_S,
    Delivered,
    Failed,
    NotSent,
    Outcome,
    OutcomeName,
    Refenced,
    Rejected,
    Uncallable,
    Unreachable,
    retry_delay_s,
)
from fleet.state.connect import Client
from fleet.state.entry import ACK, nack, outbox_item, park
from fleet.state.pool import failed, fenced, held
from fleet.state.queue import Queue
from fleet.state.scripts import SEP
from workers.claim import GroupLease, PoolLink

log = logging.getLogger("fleet.worker")

FENCED_PAUSE_MS = 1000
"""A group whose endpoint refused our epoch rests this long: if Redis thinks the lease is ours, asking again at
once would be refused again at once."""
TOO_MANY_REQUESTS = 429
REPORT_EVERY_S = 0.002
"""How often a queue hears of outcomes at most. They are settled already; this is on their way to the source."""
_RETRY_FROM_S, _RETRY_TO_S = 0.05, 1.0


def settle(lease: GroupLease, outcome: Outcome) -> bool:
    """Owe the outcome to the pool. True if the lease goes on with its next message."""
    match outcome:
        case Delivered():
            return _go_on(lease, ACK)
        case Rejected():
            # Acked too: an endpoint that answers 404 today would do so for ever.
            return _give_up(lease, ACK)
        case Uncallable(reason=reason):
            # Kept: nobody has had it, and with another URL it can be sent again.
            return _give_up(lease, park(_letter(lease, reason)))
        case Failed(retry_s=seconds, status=status, reason=reason):
            # Busy says nothing of the message: it is no reason to put it aside.
            return _fail(lease, retry_delay_s(seconds), reason, counts=status != TOO_MANY_REQUESTS)
        case Unreachable(reason=reason) | NotSent(reason=reason):
            return _fail(lease, retry_delay_s(None), reason, counts=False)
        case Refenced():
            lease.link.end(lease, fenced(FENCED_PAUSE_MS))
            return False
        case _:
            assert_never(outcome)


def _fail(lease: GroupLease, delay_s: int, reason: str, *, counts: bool) -> bool:
    """As the message asks for, or else its pool."""
    policy = lease.link.policy
    on_failure = lease.entry.policy or policy.on_failure
    if policy.draining and on_failure == "hold":
        on_failure = "return"  # a pool that is going away would wait for its endpoint
    match on_failure:
        case "skip":
            return _go_on(lease, nack(delay_s * 1000))
        case "park" if counts and lease.entry.tries + 1 >= policy.park_after:
            return _give_up(lease, park(_letter(lease, reason)))
        case "hold" | "park":
            delay_ms = delay_s * 1000
            lease.link.end(lease, held(delay_ms) if counts else str(delay_ms))
            return False
        case _:
            _return(lease, delay_s)
            return False


def _go_on(lease: GroupLease, verdict: str) -> bool:
    """The message is done with here; the next of its group follows."""
    item = outbox_item(lease.entry, verdict)
    lease.at += 1
    if lease.at < len(lease.entries):
        lease.link.owe(lease).items.append(item)
        return True
    lease.link.end(lease).items.append(item)
    return False


def _give_up(lease: GroupLease, verdict: str) -> bool:
    """What is newer of its group waits until its pool knows of that: if it never did, this one would be sent after."""
    item = outbox_item(lease.entry, verdict)
    lease.at += 1
    lease.link.end(lease).items.append(item)
    return False


def _return(lease: GroupLease, delay_s: int) -> None:
    """Nack the message, and what its group still holds of its batch, or of its queue where that holds groups."""
    entry = lease.entry
    settlement = lease.link.end(lease)
    settlement.items.append(outbox_item(entry, nack(delay_s * 1000)))
    # Siblings come back sooner only where the source will not show them before the head of their group.
    cascade_s = CASCADE_RETRY_S if entry.source_holds_groups else max(CASCADE_RETRY_S, delay_s)
    queue = entry.queue if entry.source_holds_groups else ""
    settlement.release = failed(cascade_s * 1000, entry.batch, queue)


def _letter(lease: GroupLease, reason: str) -> str:
    """All that is needed to send the message again."""
    entry = lease.entry
    letter = {
        "kind": "parked",
        "messageId": entry.message_id,
        "brokerMessageId": entry.broker_id,
        "queueId": entry.queue,
        "poolCode": lease.link.pool.code,
        "messageGroupId": entry.group,
        "mediationTarget": entry.target,
        "authToken": entry.auth_token,
        "highPriority": entry.high_priority,
        "reason": reason,
        "tries": entry.tries + 1,
        "t": time.time_ns() // 1_000_000,
    }
    return msgspec.json.encode(letter).decode()


def name_of(outcome: Outcome) -> OutcomeName:
    match outcome:
        case Delivered():
            return "SUCCESS"
        case Rejected() | Uncallable():
            return "ERROR_CONFIG"
        case Failed():
            return "ERROR_PROCESS"
        case Unreachable():
            return "ERROR_CONNECTION"
        case NotSent():
            return "NOT_SENT"
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
                        if pause_s == _RETRY_FROM_S:
                            log.warning("outcomes of %s wait in the outbox: %s", name, error)
                        await asyncio.sleep(pause_s)
                        pause_s = min(pause_s * 2, _RETRY_TO_S)
                failpoint.hit("copied")
                for parcel, _ in batch:
                    parcel.left -= 1
                    if parcel.left == 0:
                        parcel.link.trim(parcel.call)
        finally:
            del self._tasks[name]
