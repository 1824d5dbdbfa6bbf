"""From the rows of a claim to messages in a queue. Knows nothing of Spark: any program with such rows can send them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from fleet.config.router import shown_uri
from fleet.errors import InvalidMessage, SourceUnavailable, StateError
from fleet.jobs.app_key import token_maker
from fleet.message import DEFAULT_POOL, DispatchMode, Message, encode_checked
from fleet.sources.base import Never, Outgoing, Surroundings
from fleet.sources.open import open_publisher
from fleet.sources.own.address import is_own, name_of
from fleet.state.connect import Client, connect
from fleet.state.own_queue import NewMessage, OwnQueue

BATCH = 500
PRODUCER = "feed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where messages go, and what they say besides what the job says."""

    uri: str
    redis_url: str = field(repr=False)
    sqs_endpoint: str
    endpoint: str
    key: bytes = field(repr=False)
    fence: int
    dedup_ms: int
    default_pool: str = DEFAULT_POOL
    failpoint: str = ""
    driver_pid: int = 0


class Row(NamedTuple):
    """What a message says of its job."""

    job_id: str
    attempt: int
    msg_group: str | None
    mode: DispatchMode
    pool: str


@dataclass(frozen=True, slots=True)
class ShardSent:
    sent: int
    seen: int
    refused: Sequence[tuple[Row, str]]
    """What can never be published as it is, and why."""


class Sender:
    """One shard's connection to the queue: call after call, in order."""

    def __init__(self, to: Destination) -> None:
        self._line = _OwnLine(to) if is_own(to.uri) else _Line(to)
        self._write = writer(to)

    async def open(self) -> None:
        await self._line.open()

    async def send(self, rows: Sequence[Row]) -> ShardSent:
        """Pass at most `BATCH` of them in one call: Redis answers nothing else while it runs."""
        good: list[Row] = []
        messages: list[Outgoing] = []
        refused: list[tuple[Row, str]] = []
        for row in rows:
            try:
                messages.append(self._write(row))
            except InvalidMessage as error:
                refused.append((row, str(error)))
            else:
                good.append(row)
        counts = await self._line.send(messages)
        if counts.refusals is not None:
            pairs = zip(good, counts.refusals, strict=True)
            refused += [(row, refusal) for row, refusal in pairs if refusal is not None]
        return ShardSent(counts.sent, counts.seen, refused)

    async def close(self) -> None:
        await self._line.close()


def writer(to: Destination) -> Callable[[Row], Outgoing]:
    """A message for each row; InvalidMessage where no router would take it."""
    address = f"{to.endpoint}{'&' if '?' in to.endpoint else '?'}attempt="
    token_of = token_maker(to.key)

    def write(row: Row) -> Outgoing:
        job_id, attempt, msg_group, mode, pool = row
        # A job that asks for no order has none at the queue either.
        group = None if mode == "IMMEDIATE" else msg_group
        message = Message(
            id=job_id,
            # A job that names no pool has DEFAULT_POOL in the store.
            pool_code=to.default_pool if pool == DEFAULT_POOL else pool,
            auth_token=token_of(job_id),
            mediation_target=f"{address}{attempt}",
            message_group_id=group,
            # The endpoint acks whatever the target said. What a router sees fail is our own server, or a job that a
            # dead server still has: no reason to let the rest of the group overtake, whatever the mode of its jobs.
            # Without a group there is no rest: such messages would wait for each other for nothing.
            dispatch_mode="IMMEDIATE" if group is None else "BLOCK_ON_ERROR",
        )
        return Outgoing(job_id, encode_checked(message), group, f"{job_id}:{attempt}")

    return write


# The queue -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counts:
    sent: int
    seen: int
    refusals: Sequence[str | None] | None = None


class _Line:
    """To any queue. The queue's own deduplication drops what it has seen, and does not say so."""

    def __init__(self, to: Destination) -> None:
        around = Surroundings(redis_url=to.redis_url, sqs_endpoint=to.sqs_endpoint)
        self._publisher = open_publisher(to.uri, around=around)
        self._uri = shown_uri(to.uri)

    async def open(self) -> None:
        await self._publisher.open()

    async def send(self, messages: Sequence[Outgoing]) -> _Counts:
        refusals = await self._publisher.publish(messages)
        trouble = next((why for why in refusals if why is not None and not isinstance(why, Never)), None)
        if trouble is not None:
            # The queue may take them another time: the epoch stays as it is, and is sent again from its first message.
            raise SourceUnavailable(f"{self._uri}: {trouble}")
        return _Counts(sum(refusal is None for refusal in refusals), 0, refusals)

    async def close(self) -> None:
        await self._publisher.close()


class _OwnLine:
    """To a queue of our own, which also refuses a driver that was replaced."""

    def __init__(self, to: Destination) -> None:
        self._to = to
        self._client: Client | None = None

    async def open(self) -> None:
        self._client = await connect(self._to.redis_url)

    async def send(self, messages: Sequence[Outgoing]) -> _Counts:
        assert self._client is not None
        queue = OwnQueue(self._client, name_of(self._to.uri))
        new = [NewMessage(m.body, m.group or "", m.dedup_id or "") for m in messages]
        numbers = await queue.send(new, dedup_ms=self._to.dedup_ms, producer=PRODUCER, epoch=self._to.fence)
        seen = numbers.count("")
        return _Counts(len(numbers) - seen, seen)

    async def close(self) -> None:
        if self._client is not None:
            with suppress(StateError):
                await self._client.aclose()
