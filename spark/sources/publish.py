"""From claims to messages in the queue: what each executor does with its shard, batch by batch, in order."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import to_arrow_schema

from fleet import failpoint
from fleet.errors import Fenced, FleetError, InvalidMessage, StateError
from fleet.jobs.app_key import token_of
from fleet.message import DEFAULT_POOL, DispatchMode, Message, decode, encode
from fleet.sources import own
from fleet.sources.base import Outgoing, Publisher, Surroundings
from fleet.sources.open import open_publisher
from fleet.state.connect import Client, connect
from fleet.state.own_queue import NewMessage, OwnQueue
from spark import schemas

BATCH = 500
PRODUCER = "feed"
FAILPOINT = "feed-publishing"
_FENCED = "fenced"
_SCHEMA = to_arrow_schema(schemas.PUBLISHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where messages go, and what they say beside the job's own."""

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


def publisher(to: Destination) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: rows of `TO_PUBLISH` in, a row of `PUBLISHED` a batch out.

    Not a data source's writer: what it has to say, counts, refusals, a lost lead, would not reach the driver.
    """

    def publish(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if to.failpoint.startswith(FAILPOINT + ":"):
            failpoint.arm(to.failpoint)
        with asyncio.Runner() as runner:
            line = _line_to(to)
            try:
                runner.run(line.open())
                for batch in batches:
                    rows = batch.to_pylist()
                    for first in range(0, len(rows), BATCH):
                        yield _answer(runner.run(_send(line, to, rows[first : first + BATCH])))
                        _pass_failpoint(to)
            except Fenced:
                yield _answer([_said(trouble=_FENCED)])
            except FleetError as error:
                yield _answer([_said(trouble=str(error))])
            finally:
                with suppress(FleetError):
                    runner.run(line.close())

    return publish


def raise_trouble(trouble: str) -> None:
    if trouble == _FENCED:
        raise Fenced("another driver has taken over the feed")
    raise FleetError(trouble)


async def _send(line: _Line, to: Destination, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    drafts, said = [], []
    for row in rows:
        message, group = message_of(row, to), _group_at_queue(row)
        body = encode(message)
        dedup_id = f"{row['job_id']}:{row['attempt']}"
        try:
            decode(body)
        except InvalidMessage as error:
            said.append(_said(refused=row, trouble=str(error)))
            continue
        drafts.append((row, Outgoing(row["job_id"], body, group, dedup_id)))
    counts = await line.send([draft for _, draft in drafts])
    for (row, _), refusal in zip(drafts, counts.refusals, strict=True):
        if refusal is not None:
            said.append(_said(refused=row, trouble=refusal))
    return [*said, _said(sent=counts.sent, seen=counts.seen)]


def message_of(row: dict[str, Any], to: Destination) -> Message:
    mark = "&" if "?" in to.endpoint else "?"
    return Message(
        id=row["job_id"],
        # One that names none has our default in the store.
        pool_code=to.default_pool if row["pool"] == DEFAULT_POOL else row["pool"],
        auth_token=token_of(to.key, row["job_id"]),
        mediation_target=f"{to.endpoint}{mark}attempt={row['attempt']}",
        message_group_id=_group_at_queue(row),
        dispatch_mode=_mode_at_router(row),
    )


def _mode_at_router(row: dict[str, Any]) -> DispatchMode:
    # The endpoint acks whatever the target said. What a router sees fail is our own server, or a job that a dead one
    # still has: no reason to let the rest of a group overtake, whatever its jobs do after an error of their target.
    ordered: bool = row["message_group"] is not None and row["mode"] != "IMMEDIATE"
    return "BLOCK_ON_ERROR" if ordered else row["mode"]


def _group_at_queue(row: dict[str, Any]) -> str | None:
    # Who asks for no order has none at the queue either.
    return None if row["mode"] == "IMMEDIATE" else row["message_group"]


# The queue -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counts:
    sent: int
    seen: int
    refusals: Sequence[str | None]


class _Line:
    """To any queue. Its own deduplication drops what it has seen, and does not say so."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def open(self) -> None:
        await self._publisher.open()

    async def send(self, messages: Sequence[Outgoing]) -> _Counts:
        refusals = await self._publisher.publish(messages)
        return _Counts(sum(refusal is None for refusal in refusals), 0, refusals)

    async def close(self) -> None:
        await self._publisher.close()


class _OwnLine(_Line):
    """To a queue of our own, which also refuses a driver that was replaced."""

    def __init__(self, to: Destination) -> None:
        self._to = to
        self._client: Client | None = None

    async def open(self) -> None:
        self._client = await connect(self._to.redis_url)

    async def send(self, messages: Sequence[Outgoing]) -> _Counts:
        assert self._client is not None
        queue = OwnQueue(self._client, own.name_of(self._to.uri))
        new = [NewMessage(m.body, m.group or "", m.dedup_id or "") for m in messages]
        numbers = await queue.send(new, dedup_ms=self._to.dedup_ms, producer=PRODUCER, epoch=self._to.fence)
        return _Counts(sum(map(bool, numbers)), numbers.count(""), [None] * len(messages))

    async def close(self) -> None:
        if self._client is not None:
            with suppress(StateError):
                await self._client.aclose()


def _line_to(to: Destination) -> _Line:
    if is_own(to.uri):
        return _OwnLine(to)
    around = Surroundings(redis_url=to.redis_url, sqs_endpoint=to.sqs_endpoint)
    return _Line(open_publisher(to.uri, around=around))


def is_own(uri: str) -> bool:
    return uri.lower().startswith(own.PREFIX)


# What is said of it --------------------------------------------------------------------------------


def _said(
    *, sent: int = 0, seen: int = 0, refused: dict[str, Any] | None = None, trouble: str | None = None
) -> dict[str, Any]:
    return {
        "sent": sent,
        "seen": seen,
        "refused_job": refused["job_id"] if refused else None,
        "refused_attempt": refused["attempt"] if refused else None,
        "trouble": trouble,
    }


def _answer(said: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(said, schema=_SCHEMA)


def _pass_failpoint(to: Destination) -> None:
    # The driver is another process than this one; a place of its own it has none while it waits for us.
    signals = {"kill-driver": signal.SIGKILL, "stop-driver": signal.SIGSTOP}
    if (action := failpoint.hit(FAILPOINT)) in signals:
        os.kill(to.driver_pid, signals[action])
