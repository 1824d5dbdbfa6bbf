"""Taking messages out of an SQS queue, FIFO or standard. boto3 blocks, so its calls run in threads of ours.

A handle is the time of the receive and SQS's receipt handle. SQS keeps a message invisible for at most 12 hours from
its receive, refuses anything that would pass that, and does not say when the receive was.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from fleet.clock import Clock
from fleet.errors import InvalidConfig, SourceError, SourceUnavailable
from fleet.sources.base import Depth, Receipt, Received
from fleet.sources.daemon_threads import DaemonThreads
from fleet.sources.sqs.address import SqsAddress
from fleet.sources.sqs.client import BATCH, SqsQueue
from fleet.sources.sqs.entry import GROUP_ATTRIBUTE, OWN_GROUP
from fleet.sources.sqs.receive import LongPolls

log = logging.getLogger("fleet.sources")

LONG_POLL_S = 20
MAX_VISIBILITY_S = 43_200
_LIMIT_MARGIN_S = 10
"""Our clock and SQS's may differ; asking for more than the limit changes nothing at all."""
_CLOSE_WITHIN_S = 0.8
_REDELIVERED_MOST = 10_000


class SqsSource:
    """One SQS queue, read by one coordinator at a time."""

    is_looked_into = False
    crash_wait_ms = 0  # FIFO holds its groups; a standard queue promises no order that could be kept by waiting

    def __init__(
        self,
        *,
        name: str,
        address: SqsAddress,
        visibility_ms: int,
        connections: int,
        clock: Clock,
        endpoint: str = "",
        long_poll_s: int = LONG_POLL_S,
    ) -> None:
        if visibility_ms > MAX_VISIBILITY_S * 1000:
            raise InvalidConfig(f"visibility timeout of SQS queue {name} is over {MAX_VISIBILITY_S} s")
        self._name = name
        self.holds_groups = self.shows_in_order = self.gives_few_groups = address.is_fifo
        self._visibility_s = _seconds(visibility_ms)
        self.visibility_ms = self._visibility_s * 1000
        self._connections = connections
        self._clock = clock
        self._long_poll_s = long_poll_s
        self._settlers = 2 * connections + 2
        self._queue = SqsQueue(address=address, endpoint=endpoint, connections=connections + self._settlers)
        self._threads: DaemonThreads | None = None
        self._polls: LongPolls | None = None
        self._newest: OrderedDict[str, str] = OrderedDict()
        """For messages that came again, the handle that counts. A standard queue says yes to an older one and deletes
        nothing."""
        self._newest_lock = threading.Lock()

    async def open(self) -> None:
        if self._threads is None:
            self._threads = DaemonThreads(name=f"sqs-{self._name}", most=self._settlers)
        try:
            facts = await asyncio.wrap_future(self._threads.submit(self._queue.connect))
        except BaseException:
            self._threads.submit(self._queue.close)
            self._threads.stop()
            self._threads = None
            raise
        self.holds_groups = self.shows_in_order = self.gives_few_groups = facts.is_fifo
        if self._polls is None:
            self._polls = LongPolls(
                name=self._name,
                connections=self._connections,
                receive=self._receive,
                show_again=self._show_again,
                on_late=self._queue.close,
                lapse_ms=self.visibility_ms,
                clock=self._clock,
            )

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        if self._polls is None:
            raise SourceUnavailable(f"SQS queue {self._name} is not open")
        return await self._polls.poll(max_messages, wait_ms)

    async def ack(self, receipts: Sequence[Receipt]) -> list[bool]:
        return await self._settle(
            [(one, 0) for one in receipts], lambda chunk: self._queue.delete([receipt for receipt, _ in chunk])
        )

    async def nack(self, receipts: Sequence[tuple[Receipt, int]]) -> list[bool]:
        return await self._settle([(one, _seconds(delay_ms, least=0)) for one, delay_ms in receipts], self._show_after)

    async def extend(self, receipts: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        seconds = _seconds(visibility_ms)
        return await self._settle([(one, seconds) for one in receipts], self._show_after)

    async def depth(self) -> Depth:
        waiting, invisible = await asyncio.wrap_future(self._open_threads().submit(self._queue.depth))
        return Depth(waiting=waiting, invisible=invisible, oldest_s=None)

    async def close(self) -> None:
        """Returns quickly: another coordinator waits, and a long poll may go on for 20 s.

        What the long poll brings later is given back by its own thread. If the process ends before that, the message
        was received by nobody: it shows again when its visibility timeout ends, and in a FIFO queue its group waits for
        that.
        """
        threads, self._threads = self._threads, None
        polls, self._polls = self._polls, None
        if threads is None:
            return
        kept = polls.close() if polls is not None else []
        if kept:
            # Side by side, in any order: FIFO shows nothing of a group until all of it that was out is back.
            chunks = [kept[first : first + BATCH] for first in range(0, len(kept), BATCH)]
            given = [asyncio.wrap_future(threads.submit(_bound(self._show_again, chunk))) for chunk in chunks]
            await asyncio.wait(given, timeout=_CLOSE_WITHIN_S)
        threads.submit(self._queue.close)
        threads.stop()

    # In a thread -----------------------------------------------------------------------------------

    def _receive(self, want: int) -> list[Received]:
        messages = self._queue.receive(want, wait_s=self._long_poll_s, visibility_s=self._visibility_s)
        received_s = self._clock.wall_ms() // 1000
        received = [_received(message, received_s) for message in messages]
        again = [one for one in received if one.receive_count > 1]
        if again:
            self._note_newest(again)
        return received

    def _note_newest(self, again: Sequence[Received]) -> None:
        with self._newest_lock:
            for one in again:
                self._newest[one.broker_id] = one.handle
                self._newest.move_to_end(one.broker_id)
            while len(self._newest) > _REDELIVERED_MOST:
                self._newest.popitem(last=False)

    def _show_again(self, received: Sequence[Received]) -> None:
        try:
            self._show_after([(one.handle.partition(".")[2], 0) for one in received])
        except SourceError as error:
            log.info("%d messages of %s show again when their visibility timeout ends: %s",
                     len(received), self._name, error)  # fmt: skip

    def _show_after(self, chunk: Sequence[tuple[str, int]]) -> list[bool]:
        return self._queue.show_after(chunk)

    # On the loop -----------------------------------------------------------------------------------

    async def _settle(
        self, asked: Sequence[tuple[Receipt, int]], call: Callable[[Sequence[tuple[str, int]]], list[bool]]
    ) -> list[bool]:
        """Ten entries per call, the calls side by side. What cannot be a handle of ours is not sent."""
        threads = self._open_threads()
        places: dict[str, list[int]] = {}
        seconds: dict[str, int] = {}
        now_s = self._clock.wall_ms() // 1000
        for place, (one, delay_s) in enumerate(asked):
            receipt, received_s = _receipt(one.handle)
            if receipt and self._newest.get(one.broker_id, one.handle) == one.handle:
                # SQS takes the same handle only once per call.
                places.setdefault(receipt, []).append(place)
                left_s = received_s + MAX_VISIBILITY_S - _LIMIT_MARGIN_S - now_s
                seconds[receipt] = max(0, min(delay_s, left_s))
        entries = list(seconds.items())
        chunks = [entries[first : first + BATCH] for first in range(0, len(entries), BATCH)]
        calls = [asyncio.wrap_future(threads.submit(_bound(call, chunk))) for chunk in chunks]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        results = [False] * len(asked)
        for chunk, answer in zip(chunks, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            for (receipt, _), done in zip(chunk, answer, strict=True):
                for place in places[receipt]:
                    results[place] = done
        return results

    def _open_threads(self) -> DaemonThreads:
        if self._threads is None:
            raise SourceUnavailable(f"SQS queue {self._name} is not open")
        return self._threads


def _received(message: dict[str, Any], received_s: int) -> Received:
    told = message.get("Attributes") or {}
    group = told.get("MessageGroupId")
    if group is None or group.startswith(OWN_GROUP):
        group = None
        attributes = message.get("MessageAttributes")
        if attributes and GROUP_ATTRIBUTE in attributes:
            group = attributes[GROUP_ATTRIBUTE].get("StringValue") or None
    return Received(
        broker_id=message["MessageId"],
        handle=f"{received_s:x}.{message['ReceiptHandle']}",
        body=message["Body"].encode("utf-8", "surrogatepass"),
        group=group,
        receive_count=int(told.get("ApproximateReceiveCount", 1)),
    )


def _receipt(handle: str) -> tuple[str, int]:
    """SQS's receipt handle and when it was received; '' for anything but a handle of ours."""
    received, _, receipt = handle.partition(".")
    try:
        return receipt, int(received, 16)
    except ValueError:
        return "", 0


def _seconds(milliseconds: int, *, least: int = 1) -> int:
    """SQS counts whole seconds: rounded up, never less than was asked for."""
    return min(MAX_VISIBILITY_S, max(least, math.ceil(milliseconds / 1000)))


def _bound(call: Callable[[Any], Any], argument: Any) -> Callable[[], Any]:
    return lambda: call(argument)
