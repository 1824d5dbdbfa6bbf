"""Producing: messages from a line, a file or a generator into a queue, in batches, with a journal of what the queue
took."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from fleet.config.router import RouterConfig, parse_router_config
from fleet.config.settings import Settings
from fleet.errors import FleetError, InvalidConfig, InvalidMessage, NotUp, SourceError, SourceUnavailable
from fleet.message import DEFAULT_POOL, Message, decode
from fleet.operate.journal import Journal
from fleet.sources import ulid
from fleet.sources.base import Outgoing, Publisher, Unsent, Unsure
from fleet.sources.open import open_publisher
from fleet.state import observe
from fleet.state.connect import connected
from fleet.state.registry import Registry

BATCH = 500
SAMPLE_ENDPOINTS = ("fast", "slow", "faulty", "fail")
SAMPLE_PORT = 8421
ONE_OF_EIGHT = 8
_REFUSALS_NAMED = 10

GroupMode = Literal["unique", "1of8", "single"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What the command line says about every message; None leaves it as it is."""

    group: str | None = None
    pool: str | None = None
    target: str | None = None
    dedup_id: str | None = None

    def fields(self) -> dict[str, str]:
        named = {"messageGroupId": self.group, "poolCode": self.pool, "mediationTarget": self.target}
        return {key: value for key, value in named.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Draft:
    """One message on its way, or why it cannot go. `line` is where it came from."""

    line: int
    id: str = ""
    group: str | None = None
    body: bytes = b""
    refusal: str = ""
    dedup_id: str | None = None
    pool: str = ""
    """The pool that it asks for."""


@dataclass(slots=True)
class SendResult:
    accepted: int = 0
    refused: int = 0
    refusals: list[str] = field(default_factory=list)
    """The first of them, with their line."""
    unsure: int = 0
    """Messages whose answer got lost: they may be in the queue."""
    doubts: list[str] = field(default_factory=list)
    stopped: str = ""
    """From which line on nothing was sent because the queue had gone away, and why."""

    @property
    def is_whole(self) -> bool:
        return not (self.refused or self.unsure or self.stopped)

    def refuse(self, line: int, reason: str) -> None:
        match reason:
            case Unsent():
                self.stopped = self.stopped or f"line {line} and what is behind it: {reason}"
            case Unsure():
                self.unsure += 1
                _name(self.doubts, line, reason)
            case _:
                self.refused += 1
                _name(self.refusals, line, reason)


def _name(named: list[str], line: int, reason: str) -> None:
    if len(named) < _REFUSALS_NAMED:
        named.append(f"line {line}: {reason}")


# Drafts --------------------------------------------------------------------------------------------


def drafts_from_lines(lines: Iterable[bytes], overrides: Overrides, *, unchecked: bool = False) -> Iterator[Draft]:
    """One message per line; empty lines are skipped."""
    fields = overrides.fields()
    for number, line in enumerate(lines, start=1):
        body = line.strip()
        if body:
            yield _draft(number, body, fields, unchecked=unchecked, dedup_id=overrides.dedup_id)


def drafts_of_one(body: bytes, count: int, overrides: Overrides, *, unchecked: bool = False) -> Iterator[Draft]:
    """One body `count` times. If there are several, each gets its own id: the same id would be taken for the same
    message."""
    fields = overrides.fields()
    for number in range(1, count + 1):
        yield _draft(
            number, body, fields, unchecked=unchecked, fresh_id=count > 1, dedup_id=overrides.dedup_id
        )  # fmt: skip


def _draft(
    line: int,
    body: bytes,
    fields: dict[str, str],
    *,
    unchecked: bool,
    fresh_id: bool = False,
    dedup_id: str | None = None,
) -> Draft:
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _as_it_is(line, body, dedup_id) if unchecked else Draft(line, refusal=f"not JSON: {error}")
    if not isinstance(document, dict):
        return _as_it_is(line, body, dedup_id) if unchecked else Draft(line, refusal="not a JSON object")
    added: dict[str, Any] = dict(fields)
    if fresh_id or "id" not in document:
        added["id"] = _new_ids(1)[0]
    if added:
        body = msgspec.json.encode({**document, **added})
    try:
        message = decode(body)
    except InvalidMessage as error:
        return _as_it_is(line, body, dedup_id) if unchecked else Draft(line, refusal=str(error))
    pool = message.pool_code or DEFAULT_POOL
    return Draft(line, message.id, _group_of(message), body, dedup_id=dedup_id or message.id, pool=pool)


def _as_it_is(line: int, body: bytes, dedup_id: str | None) -> Draft:
    return Draft(line, _new_ids(1)[0], None, body, dedup_id=dedup_id)


def _group_of(message: Message) -> str | None:
    # A message that asks for no order has none at the source either.
    return None if message.dispatch_mode == "IMMEDIATE" else message.message_group_id or None


def made_up_body() -> bytes:
    """A message for a caller that gives none: complete but for its id and its target, so that nobody is warned about
    it."""
    return msgspec.json.encode({"poolCode": DEFAULT_POOL})


def seed_drafts(*, count: int, mode: GroupMode, groups: int, target: str, pool: str = "") -> Iterator[Draft]:
    """Messages for trying things out, as seed 002 groups them."""
    # Named, although they would go there anyway: coordinators warn about messages that name no pool.
    pool = pool or DEFAULT_POOL
    encode = msgspec.json.Encoder().encode
    sent = 0
    while sent < count:
        for message_id in _new_ids(min(BATCH, count - sent)):
            sent += 1
            match mode:
                case "unique":
                    group = f"group-{message_id}"
                case "1of8":
                    group = f"group-{random.randrange(groups)}"
                case "single":
                    group = "group-single"
            message = Message(id=message_id, pool_code=pool, mediation_target=target, message_group_id=group)
            yield Draft(sent, message_id, group, encode(message), pool=pool)


def _new_ids(count: int) -> list[str]:
    return ulid.take(count, time.time_ns() // 1_000_000)


def sample_target(endpoint: str, *, port: int = SAMPLE_PORT) -> str:
    """The URL of a sample endpoint by its name, or the URL that was given."""
    if endpoint in SAMPLE_ENDPOINTS:
        return f"http://127.0.0.1:{port}/{endpoint}"
    if "://" not in endpoint:
        raise FleetError(f"{endpoint}: neither a URL nor one of {', '.join(SAMPLE_ENDPOINTS)}")
    return endpoint


# Sending -------------------------------------------------------------------------------------------


async def send(
    uri: str,
    drafts: Iterable[Draft],
    *,
    journal: Journal | None = None,
    on_progress: Callable[[SendResult], None] | None = None,
) -> SendResult:
    """Put the drafts into the queue, in order. What cannot go is counted and named, and stops nothing else.

    A queue that goes away ends it: what was sent to it later would overtake what it did not take.
    """
    publisher = open_publisher(uri)
    sent = SendResult()
    await publisher.open()
    try:
        seq, batches = itertools.count(), _batches(drafts, BATCH)
        for batch in batches:
            try:
                await publish(publisher, batch, sent, journal=journal, seq=seq)
            except SourceError as error:
                if not sent.accepted:
                    raise
                _note_trouble(sent, batch, error)
            if on_progress is not None:
                on_progress(sent)
            if sent.unsure or sent.stopped:
                if behind := next(batches, []):
                    sent.refuse(behind[0].line, Unsent("an earlier message met trouble"))
                break
    finally:
        await publisher.close()
        if journal is not None:
            journal.flush()
    return sent


async def publish(
    publisher: Publisher, batch: list[Draft], sent: SendResult, *, journal: Journal | None, seq: Iterator[int]
) -> None:
    good = [draft for draft in batch if not draft.refusal]
    for draft in batch:
        if draft.refusal:
            sent.refuse(draft.line, draft.refusal)
    if not good:
        return
    answers = await publisher.publish([Outgoing(d.id, d.body, d.group, d.dedup_id) for d in good])
    for draft, refusal in zip(good, answers, strict=True):
        if refusal is not None:
            sent.refuse(draft.line, refusal)
            continue
        sent.accepted += 1
        if journal is not None:
            # Journalled once the queue has it: a message it refused was never lost.
            journal.sent(draft.id, draft.group, next(seq), pool=draft.pool)
    if journal is not None:
        journal.flush()


def _note_trouble(sent: SendResult, batch: list[Draft], error: SourceError) -> None:
    """Note a batch of which nothing is known to be in the queue; earlier batches are."""
    is_known = not isinstance(error, SourceUnavailable)
    for draft in batch:
        if not draft.refusal:
            sent.refuse(draft.line, Unsent(error) if is_known else Unsure(f"it may not have been accepted: {error}"))


def _batches(drafts: Iterable[Draft], size: int) -> Iterator[list[Draft]]:
    iterator = iter(drafts)
    while batch := list(itertools.islice(iterator, size)):
        yield batch


# Which queue ---------------------------------------------------------------------------------------


async def config_in_force(settings: Settings) -> RouterConfig:
    """The configuration that the fleet follows now."""
    async with connected(settings.redis.url) as client:
        found = await Registry(client).config()
    if found is None:
        raise NotUp("no configuration is in force yet; start `fleet syncer`, or `fleet up`")
    return parse_router_config(found.body)


async def is_served(settings: Settings, queue: str) -> bool:
    """Whether somebody takes messages from it, and somebody delivers them."""
    async with connected(settings.redis.url) as client:
        (owner,) = await observe.owners(client, [queue])
        return bool(owner.owner) and any(one["role"] == "worker" for one in await Registry(client).processes())


def uri_of_queue(config: RouterConfig, name: str | None) -> tuple[str, str]:
    """Name and URI of a queue; without a name, of `default` or of the only one."""
    names = sorted(queue.name for queue in config.queues)
    if name is None:
        name = "default" if "default" in names else names[0] if len(names) == 1 else None
        if name is None and names:
            raise FleetError(f"several queues are configured, name one of them: {', '.join(names)}")
        if name is None:
            raise InvalidConfig("no queue is configured")
    queue = config.queue(name)
    if queue is None:
        raise InvalidConfig(f"no queue {name} is configured; there are: {', '.join(names) or 'none'}")
    return queue.name, queue.uri
