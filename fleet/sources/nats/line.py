"""One connection to a NATS server. When it breaks, waiting calls fail at once, and the next call makes another.

nats-py could reconnect by itself, but is not allowed to. It would keep what is sent meanwhile and send it later, when
nobody waits for it any more, and it would leave a socket open for each attempt that fails after TCP has connected. Nor
is its `flush` used: giving one up breaks the library's reader.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from fleet.errors import SourceUnavailable
from fleet.sources.nats.address import NatsAddress

log = logging.getLogger("fleet.sources")

ANSWER_S = 3.0
"""How long a call waits for the server. The caller tries again, later and later."""
_CONNECT_S = 2.0
_CLOSE_S = 0.4
_PING_EVERY_S = 10
_AT_ONCE = 1000
_AT_ONCE_BYTES = 4 << 20
"""How much is sent before its answers are awaited: a slow line must carry it within `ANSWER_S`."""
NO_RESPONDERS = "503"


class _OneLine(logging.Filter):
    """nats-py logs a traceback when its reader ends. That loses a connection, and is noticed as a lost connection."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.exc_info and record.exc_info[1]:
            record.msg, record.args = f"NATS: {_line(record.exc_info[1])}", ()
            record.exc_info = None
        return True


logging.getLogger("nats.aio.client").addFilter(_OneLine())

Sent = tuple[str, bytes, dict[str, str] | None]


class ApiError(Exception):
    """JetStream refused a request."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


class NatsLine:
    """`on_lost` is called when the connection breaks; what was under way on it gets no answer any more."""

    def __init__(self, address: NatsAddress, *, on_lost: Callable[[], None] | None = None) -> None:
        self.address = address
        self.generation = 0
        """Rises with each connection: what was prepared on an earlier one may be different now."""
        self._on_lost = on_lost
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None
        self._inbox = ""
        self._rounds: dict[str, _Round] = {}
        self._next_round = 0
        self._first_error: asyncio.Future[Exception] | None = None

    @property
    def max_payload_bytes(self) -> int:
        return self._client.max_payload if self._client else 1 << 20

    async def client(self) -> Client:
        """The connected client. If there is none, one attempt to connect serves all callers that ask meanwhile."""
        client = self._client
        if client is not None and client.is_connected:
            return client
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(self._on_connecting_done)
        connecting = self._connecting
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled():  # by our close; the caller itself was not cancelled
                raise self.away("the connection is closed") from None
            raise

    def _on_connecting_done(self, connecting: asyncio.Task[Client]) -> None:
        self._connecting = None
        if not connecting.cancelled():
            connecting.exception()  # callers get the error; if none is left, asyncio must not print it

    def away(self, why: str) -> SourceUnavailable:
        return SourceUnavailable(f"NATS at {self.address.server}: {why}")

    async def subscribe(self, subject: str, on_message: Callable[[Msg], Awaitable[None]]) -> Subscription:
        # Without the library's limits: it would drop what exceeds them. Our requests bound what may come.
        client = await self.client()
        try:
            return await client.subscribe(subject, cb=on_message, pending_msgs_limit=0, pending_bytes_limit=0)
        except (nats.errors.Error, OSError) as error:
            raise self.away(_line(error)) from error

    async def send(self, subject: str, payload: bytes, *, reply: str) -> None:
        client = await self.client()
        try:
            async with asyncio.timeout(ANSWER_S):
                await client.publish(subject, payload, reply=reply)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            raise self.away(_line(error)) from error

    async def api(self, verb: str, request: Any = None) -> dict[str, Any]:
        """A request to JetStream itself. Raises `ApiError` if JetStream refuses."""
        payload = json.dumps(request).encode() if request is not None else b""
        (answer,) = await self.exchange([(f"$JS.API.{verb}", payload, None)])
        if is_no_responders(answer):
            raise self.away("JetStream does not answer there")
        told: dict[str, Any] = json.loads(answer.data)
        if error := told.get("error"):
            raise ApiError(int(error.get("code", 500)), str(error.get("description", "refused")))
        return told

    async def exchange(self, messages: Sequence[Sent], *, into: list[Msg | None] | None = None) -> list[Msg]:
        """Send each in order and wait for the answer to each. Raises `SourceUnavailable` if one is missing.

        `into` then holds what came: an answer, or None, for each message that may have gone out.
        """
        answers = into if into is not None else []
        await self._all(messages, answers, is_whole=True)
        return [answer for answer in answers if answer is not None]

    async def ask(self, messages: Sequence[Sent]) -> list[Msg | None]:
        """The same, with None for a message that the server does not answer although it is there."""
        answers: list[Msg | None] = []
        await self._all(messages, answers, is_whole=False)
        return answers

    async def _all(self, messages: Sequence[Sent], answers: list[Msg | None], *, is_whole: bool) -> None:
        for some in _shares(messages):
            client = await self.client()
            this = _Round(len(some))
            try:
                await self._exchange(client, this, some, is_whole=is_whole)
            finally:
                answers += this.got

    async def _exchange(self, client: Client, this: _Round, messages: Sequence[Sent], *, is_whole: bool) -> None:
        self._next_round += 1
        name = str(self._next_round)
        self._rounds[name] = this
        prefix = f"{self._inbox}.{name}."
        try:
            async with asyncio.timeout(ANSWER_S):
                for number, (subject, payload, headers) in enumerate(messages):
                    await client.publish(subject, payload, reply=f"{prefix}{number}", headers=headers)
                await this.answers
        except TimeoutError:
            if not is_whole and (this.has_any or await self._is_there()):
                return
            await self._doubt()
            raise self.away(f"no answer within {ANSWER_S:g} s") from None
        except (nats.errors.Error, OSError) as error:
            raise self.away(_line(error)) from error
        finally:
            del self._rounds[name]

    async def _is_there(self) -> bool:
        with suppress(SourceUnavailable, ApiError):
            await self.api(f"STREAM.INFO.{self.address.stream}")
            return True
        return False

    async def _doubt(self) -> None:
        """The server owes us an answer: it may be gone without a word. A new connection will tell."""
        client, self._client = self._client, None
        self._lose()
        if client is not None:
            await _close(client)

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})
        client, self._client = self._client, None
        self._lose()
        if client is not None:
            await _close(client)

    async def _connect(self) -> Client:
        client = Client()
        address = self.address

        async def on_closed() -> None:
            self._on_closed(client)

        first_error = self._first_error = asyncio.get_running_loop().create_future()
        # The first error ends it: the library itself would go on trying for a while.
        connecting = asyncio.create_task(
            client.connect(
                f"nats://{address.server}",
                user=address.user or None,
                password=address.password or None,
                token=address.token or None,
                name="fleet",
                connect_timeout=int(_CONNECT_S),
                allow_reconnect=False,
                max_reconnect_attempts=1,
                ping_interval=_PING_EVERY_S,
                error_cb=self._on_error,
                closed_cb=on_closed,
            )
        )
        try:
            await asyncio.wait({connecting, first_error}, timeout=_CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done() or connecting.exception() is not None:
                error = first_error.result() if first_error.done() else None
                why = _line(error or (connecting.exception() if connecting.done() else None) or TimeoutError())
                raise self.away(why)
            self._inbox = client.new_inbox()
            await client.subscribe(
                f"{self._inbox}.*.*", cb=self._on_answer, pending_msgs_limit=0, pending_bytes_limit=0
            )
        except BaseException as error:
            connecting.cancel()
            await asyncio.wait({connecting})
            await _close(client)
            if isinstance(error, nats.errors.Error | OSError):
                raise self.away(_line(error)) from error
            raise
        finally:
            self._first_error = None
        if self.generation:
            log.info("NATS at %s: connected again", address.server)
        self._client = client
        self.generation += 1
        return client

    async def _on_answer(self, msg: Msg) -> None:
        _, name, number = msg.subject.rsplit(".", 2)
        if this := self._rounds.get(name):
            this.take(int(number), msg)

    async def _on_error(self, error: Exception) -> None:
        if self._first_error is not None and not self._first_error.done():
            self._first_error.set_result(error)
        log.debug("NATS at %s: %s", self.address.server, _line(error))

    def _on_closed(self, client: Client) -> None:
        if client is self._client:  # and not one that we closed ourselves
            log.warning("NATS at %s: the connection broke", self.address.server)
            self._client = None
            self._lose()

    def _lose(self) -> None:
        for this in self._rounds.values():
            this.lose(self.away("the connection is broken"))
        if self._on_lost is not None:
            self._on_lost()


class _Round:
    """Questions that were sent together, and their answers in the same places."""

    def __init__(self, count: int) -> None:
        self.answers: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._missing = count
        self.got: list[Msg | None] = [None] * count
        if not count:
            self.answers.set_result(None)

    def take(self, number: int, msg: Msg) -> None:
        if self.got[number] is not None:
            return
        self.got[number] = msg
        self._missing -= 1
        if not self._missing and not self.answers.done():
            self.answers.set_result(None)

    @property
    def has_any(self) -> bool:
        return self._missing < len(self.got)

    def lose(self, error: SourceUnavailable) -> None:
        if not self.answers.done():
            self.answers.set_exception(error)
            self.answers.exception()  # waiting callers get the error; if none is left, asyncio must not print it


def _shares(messages: Sequence[Sent]) -> Iterator[list[Sent]]:
    share: list[Sent] = []
    share_bytes = 0
    for message in messages:
        if share and (len(share) == _AT_ONCE or share_bytes + len(message[1]) > _AT_ONCE_BYTES):
            yield share
            share, share_bytes = [], 0
        share.append(message)
        share_bytes += len(message[1])
    if share:
        yield share


def is_no_responders(msg: Msg) -> bool:
    return not msg.data and status_of(msg)[0] == NO_RESPONDERS


def status_of(msg: Msg) -> tuple[str, str]:
    """What the server says in place of a message: a number and words."""
    headers = msg.headers or {}
    return headers.get("Status", ""), headers.get("Description", "")


async def _close(client: Client) -> None:
    with suppress(Exception):  # whatever it raises, nothing of this connection is used again
        async with asyncio.timeout(_CLOSE_S):
            await client.close()


def _line(error: BaseException) -> str:
    """What nats-py says, on one line. Its text may be empty, or begin with its own name."""
    if isinstance(error, TimeoutError):
        return "it does not answer"
    text = " ".join(str(error).split()).removeprefix("nats: ").strip("'\"")
    return text[:200] or type(error).__name__
