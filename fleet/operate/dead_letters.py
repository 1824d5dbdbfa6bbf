"""Dead letters: messages that were acked at their source and put aside. Read them, send them again, throw them away.

Three kinds: `malformed` (not a message; only the beginning of its body is kept), `parked` (its endpoint accepted it in
none of its tries, or its target is not a URL) and `skipped` (an operator took it out of the way). They are kept with
their queue, newest first; `fleet/letter.py` writes them.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from fleet.config.router import RouterConfig, shown_uri
from fleet.errors import FleetError
from fleet.message import DEFAULT_GROUP, Message, encode
from fleet.sources.base import Outgoing, Unsent, Unsure
from fleet.sources.open import open_returner
from fleet.state.connect import Client
from fleet.state.letters import Letters
from fleet.words import number

BATCH = 100
_NEEDED = {"messageId", "mediationTarget", "poolCode", "messageGroupId"}
KEPT = "kept"
"""What is shown in place of a token."""
_TOKEN_IN_BODY = re.compile(r'("authToken"\s*:\s*)("(?:\\.|[^"\\])*"?|[^,}\s]+)', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LettersWanted:
    """Which letters are meant; None is any."""

    queue: str | None = None
    kind: str | None = None
    id: str | None = None
    """The message's own id, or the queue's id for it."""
    pool: str | None = None
    group: str | None = None

    def fits(self, letter: Letter) -> bool:
        content = letter.content
        return (
            self.kind in (None, letter.kind)
            and self.id in (None, content.get("messageId"), content.get("brokerMessageId"))
            and self.pool in (None, content.get("poolCode"))
            and self.group in (None, content.get("messageGroupId"))
        )


@dataclass(frozen=True, slots=True)
class Letter:
    queue: str
    raw: str
    content: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.content.get("kind", "malformed"))

    def age_s(self) -> float:
        return max(0.0, time.time() - float(self.content.get("t", 0)) / 1000)

    def shown(self) -> dict[str, Any]:
        """For people: without its token."""
        content = {"kind": self.kind, **self.content}
        if content.get("authToken"):
            content["authToken"] = KEPT
        if "mediationTarget" in content:
            content["mediationTarget"] = shown_uri(str(content["mediationTarget"]))
        if "body" in content:
            content["body"] = _TOKEN_IN_BODY.sub(rf'\1"{KEPT}"', str(content["body"]))
        return content

    def message(self) -> Message | None:
        """The message that was once sent; None if it never was one."""
        content = self.content
        if self.kind == "malformed" or not content.keys() >= _NEEDED:
            return None
        group = str(content["messageGroupId"])
        return Message(
            id=content["messageId"],
            mediation_target=content["mediationTarget"],
            pool_code=content["poolCode"],
            auth_token=content.get("authToken", ""),
            message_group_id=None if group == DEFAULT_GROUP else group,
            high_priority=content.get("highPriority", False),
            dispatch_mode=content.get("dispatchMode"),
        )


async def letters(client: Client, queues: Sequence[str], wanted: LettersWanted) -> AsyncIterator[Letter]:
    """Queue by queue, the newest first."""
    for queue in queues if wanted.queue is None else [wanted.queue]:
        async for raw in Letters(client, queue).newest_first():
            letter = Letter(queue, raw, _content(raw))
            if wanted.fits(letter):
                yield letter


def _content(raw: str) -> dict[str, Any]:
    try:
        content = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        content = None
    # What somebody else put there is shown as it is, and can be thrown away.
    return content if isinstance(content, dict) else {"body": raw, "reason": "not a letter of ours"}


@dataclass(slots=True)
class Replayed:
    sent: int = 0
    left: list[str] = field(default_factory=list)
    """Why the others stay where they are, one line each."""


async def replay(
    client: Client, config: RouterConfig, found: Sequence[Letter], *, on_progress: Callable[[int], None] | None = None
) -> Replayed:
    """Publish letters to the queue they came from, oldest first, each removed only once its queue has accepted it.

    A crash between the two leaves a letter that was already sent. If it is sent again soon, a queue that knows dedup
    ids takes it for the same message; in any other queue, or later, it is a duplicate. It is never a loss.
    """
    done = Replayed()
    by_queue: dict[str, list[Letter]] = {}
    for letter in reversed(found):
        by_queue.setdefault(letter.queue, []).append(letter)
    for queue, mine in by_queue.items():
        try:
            await _replay_queue(client, config, queue, mine, done, on_progress)
        except FleetError as error:
            done.left.append(f"queue {queue}: {error}")
    return done


async def _replay_queue(
    client: Client,
    config: RouterConfig,
    queue: str,
    mine: Sequence[Letter],
    done: Replayed,
    on_progress: Callable[[int], None] | None,
) -> None:
    messages = [(letter, letter.message()) for letter in mine]
    malformed = sum(message is None for _, message in messages)
    if malformed:
        what = number(malformed, "letter is", "letters are")
        done.left.append(f"queue {queue}: {what} malformed: there is no message to send, mend it at its sender")
    # The same text twice is one message, buried twice when a coordinator died in between.
    copies = Counter(letter.raw for letter in mine)
    good = list({letter.raw: (letter, message) for letter, message in messages if message is not None}.values())
    if not good:
        return
    configured = config.queue(queue)
    if configured is None:
        what = number(len(good), "letter")
        done.left.append(f"queue {queue} is not configured (any more): configure it to replay {what}")
        return
    publisher = open_returner(configured.uri)
    await publisher.open()
    try:
        for first in range(0, len(good), BATCH):
            batch = good[first : first + BATCH]
            answers = await publisher.publish([_outgoing(letter, message) for letter, message in batch])
            accepted = [letter.raw for (letter, _), refusal in zip(batch, answers, strict=True) if refusal is None]
            await Letters(client, queue).remove({raw: copies[raw] for raw in accepted})
            done.sent += len(accepted)
            if on_progress is not None:
                on_progress(done.sent)
            refusals = [(letter, refusal) for (letter, _), refusal in zip(batch, answers, strict=True) if refusal]
            for letter, refusal in refusals:
                done.left.append(_why_left(queue, str(letter.content["messageId"]), refusal))
            if refusals:
                return  # later ones would overtake it
    finally:
        await publisher.close()


def _why_left(queue: str, message_id: str, refusal: str) -> str:
    # Only the queue's own refusal is one that it would repeat.
    if isinstance(refusal, Unsent | Unsure):
        return f"queue {queue}: {message_id}: {refusal}"
    return f"queue {queue} refuses {message_id}: {refusal}"


def _outgoing(letter: Letter, message: Message) -> Outgoing:
    # Not the message's own: a queue remembers an id for minutes, and would ignore this message. A letter holds when the
    # message died and under which id of its queue, so this id stays the same however often the letter is tried, and is
    # another one if the message dies again.
    dedup_id = f"replay-{hashlib.sha256(letter.raw.encode()).hexdigest()}"
    group = None if message.dispatch_mode == "IMMEDIATE" else message.message_group_id
    return Outgoing(message.id, encode(message), group, dedup_id)


async def purge(client: Client, found: Sequence[Letter]) -> int:
    """Throw these away, and none that comes meanwhile. Returns how many there were."""
    by_queue: dict[str, Counter[str]] = {}
    for letter in found:
        by_queue.setdefault(letter.queue, Counter())[letter.raw] += 1
    return sum([await Letters(client, queue).remove(raws) for queue, raws in by_queue.items()])
