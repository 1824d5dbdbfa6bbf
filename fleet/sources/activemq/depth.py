"""How deep an ActiveMQ queue is: the broker's statistics plugin says; without the plugin, browsing counts."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

from fleet.errors import SourceUnavailable
from fleet.sources.activemq.address import Address
from fleet.sources.activemq.frames import StompCommand
from fleet.sources.activemq.line import StompLine

_REPLIES = "/temp-queue/replies"
_STATISTICS = "ActiveMQ.Statistics.Destination"
_LAST = "ActiveMQ.Statistics.Destination.List.End.With.Null"
"""Part of the name asked for: it makes the broker send an empty map after the last queue, or in place of an unknown
one."""
_SCHEDULER = "ActiveMQ.Scheduler.Management"
_REPLY_S = 1.0
_QUIET_S = 0.1
_COUNTS = re.compile(rb"<string>(size|inflightCount)</string>\s*<long>(\d+)</long>")


@dataclass(slots=True)
class Statistics:
    """What a source has found out about its broker."""

    are_known: bool = True
    """The statistics plugin answers."""
    schedule_is_known: bool = True


@dataclass(frozen=True, slots=True)
class AtBroker:
    size: int
    """Messages in the queue, given to somebody or not."""
    given: int | None
    """Messages given to somebody and not acked; None if the broker does not say."""
    scheduled: int


class _Replies:
    """What comes on one line, where questions are asked one after the other."""

    def __init__(self) -> None:
        self._came: asyncio.Queue[tuple[dict[str, str], bytes]] = asyncio.Queue()

    def add(self, headers: dict[str, str], body: bytes) -> None:
        self._came.put_nowait((headers, body))

    async def next(self, line: StompLine, wait_s: float) -> tuple[dict[str, str], bytes] | None:
        """None when nothing came in time, or the line was lost."""
        came = asyncio.ensure_future(self._came.get())
        lost = asyncio.ensure_future(line.lost.wait())
        try:
            await asyncio.wait({came, lost}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
            return came.result() if came.done() else None
        finally:
            came.cancel()
            lost.cancel()


async def look(address: Address, statistics: Statistics, *, heartbeat_ms: int) -> AtBroker:
    replies = _Replies()
    line = StompLine(address=address, on_message=replies.add, heartbeat_ms=heartbeat_ms)
    await line.open()
    try:
        size, given, scheduled = await _ask(line, replies, address.queue, statistics)
        if size is None:
            if line.lost.is_set():
                await line.close()
                line = StompLine(address=address, on_message=replies.add, heartbeat_ms=heartbeat_ms)
                await line.open()
            size = await _browse(line, replies, address.queue)
        return AtBroker(size, given, scheduled)
    finally:
        await line.close()


async def _ask(
    line: StompLine, replies: _Replies, queue: str, statistics: Statistics
) -> tuple[int | None, int | None, int]:
    """Size, given, scheduled. The broker sends every scheduled message in full, and its statistics after them."""
    questions = []
    if statistics.schedule_is_known:
        questions.append(_question(_SCHEDULER, {"AMQ_SCHEDULER_ACTION": "BROWSE"}))
    if statistics.are_known:
        questions.append(_question(_STATISTICS + _LAST + queue, {}))
    if not questions:
        return None, None, 0
    line.tell([StompCommand("SUBSCRIBE", {"id": "replies", "destination": _REPLIES, "ack": "auto"}), *questions])
    counts = {b"size": 0, b"inflightCount": 0}
    scheduled = 0
    while (reply := await replies.next(line, _REPLY_S if statistics.are_known else _QUIET_S)) is not None:
        headers, body = reply
        if "map" not in headers.get("transformation", ""):
            scheduled += headers.get("original-destination") == f"/queue/{queue}"
            continue
        found = {name: int(number) for name, number in _COUNTS.findall(body)}
        if not found:
            return counts[b"size"], counts[b"inflightCount"], scheduled
        counts |= found
    statistics.are_known = False
    # If the line was lost: this broker cannot write an answer of this kind, and drops the connection that asked.
    statistics.schedule_is_known = not line.lost.is_set()
    return None, None, scheduled


def _question(queue: str, headers: dict[str, str]) -> StompCommand:
    # A broker without the plugin takes it for a message to a queue of that name, so it has to expire soon.
    soon_ms = str(int((time.time() + _REPLY_S) * 1000))
    return StompCommand("SEND", {"destination": f"/queue/{queue}", "reply-to": _REPLIES, "expires": soon_ms, **headers})


async def _browse(line: StompLine, replies: _Replies, queue: str) -> int:
    """Counts as many as the broker shows to a browser (400 unless it is told otherwise)."""
    line.tell([StompCommand("SUBSCRIBE", {"id": "browser", "destination": f"/queue/{queue}", "browser": "true"})])
    size = 0
    while (reply := await replies.next(line, _REPLY_S)) is not None and reply[0].get("browser") != "end":
        size += reply[0].get("subscription") == "browser"
    if reply is None:
        raise (line.unavailable() if line.lost.is_set() else SourceUnavailable(f"queue {queue} cannot be browsed"))
    return size
