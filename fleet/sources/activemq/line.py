"""One connection to a STOMP broker, for as long as it lives: stomp.py's reader, bridged to the event loop.

stomp.py reads and parses in a thread of its own and calls back there; what it read is handed over in bulk. Writing has
a thread too, because a broker that stops reading would block it. Heartbeats are sent by the event loop: a thread would
keep the connection of a wedged process alive, and with it the messages that it was given.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from stomp.transport import Transport

from fleet.errors import SourceUnavailable
from fleet.sources.activemq.address import Address
from fleet.sources.activemq.frames import HEARTBEAT, StompCommand
from fleet.waiting import happens

log = logging.getLogger("fleet.sources")

HEARTBEAT_MS = 5000
_SILENT_BEATS = 3
"""A broker beats at a tick only if it has said nothing since the last one: a word just after a tick means two ticks of
silence."""
CONNECT_S = 5.0
ANSWER_S = 10.0
"""A broker whose store is full answers a SEND when it has room again. We do not wait for that."""
_JOIN_S = 1.0
_READ_BYTES = 16 * 1024
"""stomp.py moves what is left of a read once per frame, so larger reads make it slower."""
_QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)

# It would log every lost connection with a traceback; the code that uses a line says it in one sentence.
logging.getLogger("stomp.py").setLevel(logging.CRITICAL)

Answer = str | None
"""'': done. Text: why the broker refused. None: not answered before the line was lost."""


class _Reader(Transport):  # type: ignore[misc]
    """stomp.py's transport on a socket that is connected already, without its listeners, which cost time on every
    frame."""

    def __init__(self, line: socket.socket, on_frame: Callable[[Any], None], on_end: Callable[[], None]) -> None:
        super().__init__([line.getpeername()[:2]], False, False, auto_decode=False)
        self._line = line
        self._on_frame = on_frame
        self.on_disconnected = on_end
        self.set_listener("line", self)

    def attempt_connection(self) -> None:
        self.socket = self._line

    def receive(self) -> bytes:
        data = self._line.recv(_READ_BYTES)
        if _QUICKACK is not None:
            # The broker holds back a short frame until what it sent before is acknowledged, which takes up to 40 ms.
            self._line.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
        return data

    def process_frame(self, frame: Any, _raw: bytes) -> None:
        self._on_frame(frame)


class _Asked:
    """Frames whose receipts are awaited together."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.answers: list[Answer] = [None] * count
        self.left = count
        self.done: asyncio.Future[None] = loop.create_future()

    def answer(self, index: int, answer: str) -> None:
        self.answers[index] = answer
        self.left -= 1
        if not self.left:
            self.end()

    def end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class StompLine:
    """Opened once, closed once. Another connection is another line."""

    def __init__(
        self,
        *,
        address: Address,
        on_message: Callable[[dict[str, str], bytes], None] | None = None,
        on_messages_end: Callable[[], None] | None = None,
        heartbeat_ms: int = HEARTBEAT_MS,
    ) -> None:
        self._address = address
        self._on_message = on_message
        self._on_messages_end = on_messages_end
        self._heartbeat_ms = heartbeat_ms
        self._silence_s = math.inf
        self._inbox: deque[Any] = deque()
        self._is_woken = False
        self._asked: dict[str, tuple[_Asked, int]] = {}
        self._receipts = 0
        self._said_at = self._heard_at = time.monotonic()
        self._connected: asyncio.Future[None] | None = None
        self._beats: asyncio.Task[None] | None = None
        self._reader: _Reader | None = None
        self._socket: socket.socket | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="fleet-stomp-write")
        self._last_write: Future[None] | None = None
        self.lost = asyncio.Event()
        self.why_lost = ""

    @property
    def is_up(self) -> bool:
        return self._beats is not None and not self.lost.is_set()

    async def open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connected = self._loop.create_future()
        try:
            async with asyncio.timeout(CONNECT_S):
                self._socket = await self._connect()
                self._reader = _Reader(self._socket, self._read, self._ended)
                self._reader.start()
                self._write(self._hello().encoded())
                await self._connected
        except TimeoutError:
            self.drop("no answer")
        except socket.gaierror as error:
            self.drop(error.strerror or "no such host")
        except OSError as error:
            self.drop(os.strerror(error.errno) if error.errno else str(error))
        except BaseException:
            await self.close()
            raise
        if self.lost.is_set():
            await self.close()
            raise self.unavailable()
        self._beats = asyncio.create_task(self._beat())

    async def ask(self, commands: Sequence[StompCommand]) -> list[Answer]:
        """Send all at once, and wait until the broker has answered each."""
        return await self._ask(commands, len(commands)) if commands else []

    async def ask_last(self, commands: Sequence[StompCommand]) -> Answer:
        """Send all at once, and wait for the answer to the last one. A refusal may be about any of them.

        The broker works in order, and what it has answered is on its disk: this way it writes there once, not for each.
        """
        return (await self._ask(commands, 1))[0] if commands else ""

    async def _ask(self, commands: Sequence[StompCommand], wanted: int) -> list[Answer]:
        if not self.is_up:
            raise self.unavailable()
        asked = _Asked(wanted, self._loop)
        silent = len(commands) - wanted
        frames = [command.encoded() for command in commands[:silent]]
        for index, command in enumerate(commands[silent:]):
            self._receipts += 1
            receipt = str(self._receipts)
            self._asked[receipt] = asked, index
            frames.append(command.encoded(receipt))
        self._write(b"".join(frames))
        try:
            async with asyncio.timeout(ANSWER_S):
                await asked.done
        except TimeoutError:
            # Nobody knows which of them were carried out: a caller that needs to know asks on a new line.
            self.drop("no answer")
        return asked.answers

    def tell(self, commands: Sequence[StompCommand]) -> None:
        """Send, without waiting for an answer."""
        if self.is_up:
            self._write(b"".join(command.encoded() for command in commands))

    def drop(self, why: str) -> None:
        """Give the connection up. Its threads end; `close` waits for them."""
        if self.lost.is_set():
            return
        self.why_lost = why
        self.lost.set()
        if self._connected is not None and not self._connected.done():
            self._connected.set_result(None)
        for asked, _ in self._asked.values():
            asked.end()
        self._asked.clear()
        if self._reader is not None:
            self._reader.running = False
        if self._socket is not None:
            # Wakes both threads, whatever they wait for.
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        self.drop("closed")
        if self._beats is not None:
            self._beats.cancel()
        if self._reader is not None:
            await asyncio.wrap_future(self._writer.submit(self._reader.io_thread.join, _JOIN_S))
            self._reader = None
        self._writer.shutdown()
        if self._socket is not None:
            self._socket.close()

    def unavailable(self) -> SourceUnavailable:
        return SourceUnavailable(f"{self._address}: {self.why_lost or 'not connected'}")

    async def _connect(self) -> socket.socket:
        found = await self._loop.getaddrinfo(self._address.host, self._address.port, type=socket.SOCK_STREAM)
        failure = OSError("no address")
        for family, kind, protocol, _, target in found:
            line = socket.socket(family, kind, protocol)
            try:
                line.setblocking(False)
                await self._loop.sock_connect(line, target)
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                line.setblocking(True)
            except OSError as error:
                line.close()
                failure = error
            except BaseException:
                line.close()
                raise
            else:
                return line
        raise failure

    def _hello(self) -> StompCommand:
        headers = {
            "accept-version": "1.2",
            "host": self._address.host,
            "heart-beat": f"{self._heartbeat_ms},{self._heartbeat_ms}",
        }
        if self._address.user:
            headers |= {"login": self._address.user, "passcode": self._address.password}
        return StompCommand("CONNECT", headers)

    def _write(self, data: bytes) -> None:
        if self.lost.is_set() or self._reader is None:
            return
        self._said_at = time.monotonic()
        # A write that fails needs no handling here: the reader's thread notices the same failure.
        self._last_write = self._writer.submit(self._reader.send, data)

    async def _beat(self) -> None:
        """Beat at half the promised interval. Drop the line when the broker is silent for longer than it may be."""
        while not await happens(self.lost, within_s=self._heartbeat_ms / 4000):
            now = time.monotonic()
            if now - self._heard_at > self._silence_s:
                self.drop("no sign of life")
            elif now - self._said_at > self._heartbeat_ms / 2000 and self._last_write and self._last_write.done():
                self._write(HEARTBEAT)

    # In the reader's thread ------------------------------------------------------------------------

    def _read(self, frame: Any) -> None:
        self._inbox.append(frame)
        if not self._is_woken:
            self._is_woken = True
            self._call(self._take)

    def _ended(self) -> None:
        self._call(lambda: self.drop("the connection was closed"))

    def _call(self, function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: there is nobody left to tell
            self._loop.call_soon_threadsafe(function)

    # In the event loop -----------------------------------------------------------------------------

    def _take(self) -> None:
        # Cleared before the first look, so that what is appended after the last look wakes us again.
        self._is_woken = False
        self._heard_at = time.monotonic()
        messages = 0
        while self._inbox:
            frame = self._inbox.popleft()
            if self.lost.is_set():
                continue
            if frame.cmd == "MESSAGE" and self._on_message is not None:
                messages += 1
                self._on_message(frame.headers, frame.body)
            elif frame.cmd == "RECEIPT":
                self._answer(frame.headers.get("receipt-id", ""), "")
            elif frame.cmd == "ERROR":
                self._error(frame.headers.get("message") or "the broker refused it", frame.headers.get("receipt-id"))
            elif frame.cmd == "CONNECTED" and self._connected is not None and not self._connected.done():
                promised_ms, _, _ = frame.headers.get("heart-beat", "0,0").partition(",")
                # 0: the broker promises no signs of life, so we must not miss any.
                beat_s = max(self._heartbeat_ms, int(promised_ms)) / 1000
                self._silence_s = _SILENT_BEATS * beat_s if int(promised_ms) else math.inf
                self._connected.set_result(None)
        if messages and self._on_messages_end is not None:
            self._on_messages_end()

    def _answer(self, receipt: str, answer: str) -> None:
        asked, index = self._asked.pop(receipt, (None, 0))
        if asked is not None:
            asked.answer(index, answer)

    def _error(self, why: str, receipt: str | None) -> None:
        if self._connected is not None and not self._connected.done():
            self.drop(why)
        elif receipt is not None:
            self._answer(receipt, why)
        elif self._asked:
            # The broker could not even read a frame. It answers in order, so it was the first one without an answer.
            self._answer(next(iter(self._asked)), why)
            # What it takes for a frame from here on may begin in the middle of a body.
            self.drop(why)
        else:
            log.warning("%s: %s", self._address, why)
