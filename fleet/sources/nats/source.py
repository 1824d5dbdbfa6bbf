"""Messages of a NATS JetStream stream, through a durable pull consumer with explicit acks.

JetStream has no groups: a message that is nacked is overtaken by the later ones of its group, unless the pool keeps it
(`onFailure: hold`). What is shown for the first time comes in the stream's order, even across a broken connection: what
was lost on the line is asked for again before anything newer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from fleet.clock import Clock
from fleet.errors import SourceUnavailable
from fleet.sources.base import Depth, Receipt, Received
from fleet.sources.nats.address import NatsAddress
from fleet.sources.nats.consumer import FoundConsumer, look, prepare
from fleet.sources.nats.delivery import ACK_PREFIX, Floors, Incarnation, Marks, group_of, like, read_marks, read_time_ns
from fleet.sources.nats.line import NO_RESPONDERS, ApiError, NatsLine, is_no_responders
from fleet.sources.nats.pull import LOST, SILENT, Puller, PullRequest

log = logging.getLogger("fleet.sources")

ACK, NAK, PROGRESS = b"+ACK", b"-NAK", b"+WPI"
_OLD_PART = 4
"""What was received and not handed over for a quarter of the ack wait is too old to begin with."""
_AGAIN_S = 0.02
_SET_ASIDE_MS = 60_000
_LOST_MOST = 10_000
"""More than can be on the line at once: such a gap means that somebody else takes from this consumer as well."""
_CLOSE_S = 0.4
_OVER_S = 2.5


class NatsSource:
    """One consumer of one stream."""

    holds_groups = False
    shows_in_order = True
    is_looked_into = False
    gives_few_groups = False

    def __init__(self, *, address: NatsAddress, visibility_ms: int, clock: Clock) -> None:
        self.visibility_ms = visibility_ms
        # The last owner may still be closing, and what it nacks at the very end may then wait a whole ack wait.
        self.crash_wait_ms = visibility_ms + round((_OVER_S + _CLOSE_S) * 1000)
        self._address = address
        self._clock = clock
        self._line = NatsLine(address, on_lost=self._on_lost)
        self._puller = Puller(line=self._line, stream=address.stream, consumer=address.consumer)
        self._floors = Floors()
        self._incarnation: Incarnation | None = None
        self._known_at = 0
        """The connection at which the incarnation was looked up."""
        self._prepared_at = 0
        self._polled: Incarnation | None = None
        """The incarnation that was polled last."""
        self._preparing = asyncio.Lock()
        self._may_have_lost = False
        """The line broke under a request, and we have not had shown again yet what was on it."""

    async def open(self) -> None:
        try:
            self._know(await look(self._line))
        except BaseException:
            await self._line.close()
            raise

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        tried = False
        while max_messages > 0:
            await self._prepare()
            if not self._puller.buffer:
                ask = await self._puller.fetch(max_messages, until_s)
                tried = self._check(ask, tried)
            await self._renew()
            if self._puller.buffer or loop.time() >= until_s:
                return self._hand_over(max_messages)
            await asyncio.sleep(min(_AGAIN_S, until_s - loop.time()))
        return []

    async def ack(self, receipts: Sequence[Receipt]) -> list[bool]:
        return await self._settle([(one, ACK) for one in receipts])

    async def nack(self, receipts: Sequence[tuple[Receipt, int]]) -> list[bool]:
        return await self._settle([(one, _nak(delay_ms)) for one, delay_ms in receipts])

    async def extend(self, receipts: Sequence[Receipt], visibility_ms: int) -> list[bool]:
        # "In progress" restarts the consumer's own ack wait. For any other time there is a nak with a delay: the server
        # shows the message again after that, and takes an ack under the same handle until then, which is an extension.
        word = PROGRESS if visibility_ms == self.visibility_ms else _nak(max(1, visibility_ms))
        return await self._settle([(one, word) for one in receipts], extends=True)

    async def depth(self) -> Depth:
        found = await look(self._line)
        if found.consumer is None:
            waiting, invisible, after = int(found.stream["state"]["messages"]), 0, 0
        else:
            waiting, invisible = int(found.consumer["num_pending"]), int(found.consumer["num_ack_pending"])
            after = int(found.consumer["ack_floor"]["stream_seq"])
        oldest_s = await self._oldest_s(after) if waiting or invisible else 0.0
        return Depth(waiting=waiting, invisible=invisible, oldest_s=oldest_s)

    async def close(self) -> None:
        if self._puller.buffer:
            await self.ask_no_more()
        is_known = False
        with suppress(SourceUnavailable, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                is_known = await self._puller.end() and not self._may_have_lost
                # So that nobody waits for their ack wait. (Not set aside first: that could use up all the time.)
                await self._line.exchange([(one.message.reply, NAK, None) for one in self._puller.buffer])
                self._puller.buffer.clear()
        is_known = is_known and not self._puller.buffer
        self._puller.buffer.clear()
        await self._line.close()
        self._prepared_at = self._known_at = 0
        self._may_have_lost = False
        if not is_known:
            raise self._line.away("closed while messages were on their way")

    async def ask_no_more(self) -> None:
        with suppress(SourceUnavailable, TimeoutError):
            async with asyncio.timeout(_OVER_S):
                await self._puller.over()

    def _on_lost(self) -> None:
        self._may_have_lost |= self._puller.lose()

    async def _oldest_s(self, after_seq: int) -> float | None:
        wanted = {"seq": after_seq + 1, "next_by_subj": self._address.subject or ">"}
        try:
            told = await self._line.api(f"STREAM.MSG.GET.{self._address.stream}", wanted)
        except ApiError:
            return None  # gone meanwhile, or we are not allowed to look
        return max(0.0, self._clock.wall_ms() / 1000 - read_time_ns(told["message"]["time"]) / 1e9)

    # What the names stand for now -------------------------------------------------------------------

    def _know(self, found: FoundConsumer) -> None:
        if self._incarnation is not None and found.incarnation != self._incarnation:
            self._floors.forget()
        self._incarnation = found.incarnation
        self._known_at = self._line.generation

    async def _prepare(self) -> None:
        """Once per connection, and again after the consumer was found missing."""
        await self._line.client()
        if self._prepared_at == self._line.generation:
            return
        async with self._preparing:
            generation = self._line.generation
            if self._prepared_at == generation:
                return
            found = await prepare(self._line, self.visibility_ms)
            self._know(found)
            if found.incarnation == self._polled:
                await self._begin_where_it_broke(*found.delivered)
            else:
                self._puller.begin(found.delivered[0])
            self._polled = found.incarnation
            self._puller.went_back = self._may_have_lost = False
            self._prepared_at = generation

    async def _begin_where_it_broke(self, delivered_seq: int, consumer_seq: int) -> None:
        """By itself, what was on the line when it broke comes again only after the ack wait, and newer ones overtake
        it."""
        first = self._puller.newest_seq + 1
        lost = range(first, delivered_seq + 1) if delivered_seq - first < _LOST_MOST else range(0)
        pattern = self._puller.last.message.reply if self._puller.last else self._first_subject()
        subjects = [like(pattern, stream_seq=seq, consumer_seq=consumer_seq) for seq in lost]
        await self._show_again([one.message.reply for one in self._puller.buffer] + subjects)
        self._puller.begin(delivered_seq)

    def _first_subject(self) -> str:
        return f"{ACK_PREFIX}{self._address.stream}.{self._address.consumer}.1.0.0.0.0"

    async def _show_again(self, subjects: Sequence[str]) -> None:
        """At once, before anything new, in this order. Set aside first: some may be in the server's line already,
        behind others."""
        if not subjects:
            return
        for word in (_nak(_SET_ASIDE_MS), NAK):
            await self._line.exchange([(subject, word, None) for subject in subjects])

    # Polling --------------------------------------------------------------------------------------------

    def _check(self, ask: PullRequest, tried: bool) -> bool:
        """Whether the consumer was missing just now. Raises if asking again cannot help."""
        if not ask.over.is_set() or ask.status in ("", "404", "408") or self._puller.buffer:
            return False
        if ask.status == LOST:
            raise self._line.away("the connection is broken")
        self._prepared_at = 0
        if ask.status == SILENT:  # no consumer, or no server: preparing again will tell
            return False
        if tried or (ask.status != NO_RESPONDERS and "deleted" not in ask.words.lower()):
            raise self._line.away(f"consumer {self._address.consumer}: {ask.words or 'it does not answer'}")
        return True

    async def _renew(self) -> None:
        """Let nothing be handed over that will soon be shown to somebody else, or under the incarnation of an earlier
        stream."""
        buffer = self._puller.buffer
        if self._puller.went_back and buffer:
            self._prepared_at = 0
            await self._prepare()
        if buffer and time.monotonic() - buffer[0].arrived_s > self.visibility_ms / 1000 / _OLD_PART:
            await self._return_buffer()

    async def _return_buffer(self) -> None:
        subjects = [one.message.reply for one in self._puller.buffer]
        await self._show_again(subjects)
        self._puller.buffer.clear()

    def _hand_over(self, max_messages: int) -> list[Received]:
        incarnation, buffer, out = self._incarnation, self._puller.buffer, list[Received]()
        assert incarnation is not None  # nothing is polled before it is known
        while buffer and len(out) < max_messages:
            one = buffer.popleft()
            message, marks = one.message, one.marks
            self._floors.shown(marks)
            out.append(
                Received(
                    broker_id=incarnation.broker_id(marks.stream_seq),
                    handle=incarnation.handle(message.reply),
                    body=message.data,
                    group=group_of(message.headers, message.subject, self._address.group_token),
                    receive_count=marks.deliveries,
                )
            )
        return out

    # Settling -------------------------------------------------------------------------------------------

    async def _settle(self, words: Sequence[tuple[Receipt, bytes]], *, extends: bool = False) -> list[bool]:
        if not words:
            return []
        if self._known_at != self._line.generation or self._incarnation is None:
            self._know(await look(self._line))
        results = [False] * len(words)
        sent: list[tuple[int, Marks, str, bytes]] = []
        for place, (one, word) in enumerate(words):
            read = self._read(one.handle)
            if read is None:
                continue
            subject, marks = read
            if self._floors.is_void(marks):
                results[place] = word == ACK and self._floors.is_acked(marks)
            else:
                sent.append((place, marks, subject, word))
        answers = await self._line.ask([(subject, word, None) for _, _, subject, word in sent])
        for (place, marks, _, word), answer in zip(sent, answers, strict=True):
            # No answer, or nobody there to give one: the consumer is gone, or no longer knows this delivery.
            results[place] = answer is not None and not is_no_responders(answer)
            if word == ACK and results[place]:
                self._floors.acked(marks)
            elif results[place] and not extends:
                self._floors.shown_again(marks)
        return results

    def _read(self, handle: str) -> tuple[str, Marks] | None:
        subject = self._incarnation.subject(handle) if self._incarnation else None
        marks = read_marks(subject) if subject else None
        if subject is None or marks is None:
            return None
        if (marks.stream, marks.consumer) != (self._address.stream, self._address.consumer) or not marks.stream_seq:
            return None
        return subject, marks


def _nak(delay_ms: int) -> bytes:
    return NAK + b" " + json.dumps({"delay": delay_ms * 1_000_000}).encode() if delay_ms > 0 else NAK
