"""Taking messages out of an ActiveMQ queue, over STOMP 1.2.

A message belongs to the connection that it was given to, until it is acked or the connection ends; there is no
visibility timeout. So handles are bound to the connection, and there is nothing to extend.

The broker cannot take a message back to show it after a delay: a STOMP NACK makes a dead letter. A transaction cannot
do it either: in one, AMQ_SCHEDULED_DELAY is stored after the commit (a broker that dies in between loses the message).
So a nack with a delay sends a copy under the id of its original and, once the broker has that, acks the original. A
crash between the two leaves both. `Session` merges them when they meet, and drops one that comes after the other was
acked.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence

from fleet.errors import SourceUnavailable
from fleet.sources.activemq import frames
from fleet.sources.activemq.address import Address
from fleet.sources.activemq.depth import Statistics, look
from fleet.sources.activemq.line import HEARTBEAT_MS, StompLine
from fleet.sources.activemq.session import HANDLE, Delivery, Memory, Session
from fleet.sources.base import Depth, Receipt, Received
from fleet.waiting import Backoff

log = logging.getLogger("fleet.sources")

_RETRY_S = (0.1, 5.0)
_GATHER_S, _GATHER_MOST_S = 0.005, 0.05
_ECHO = [frames.StompCommand(name, {"transaction": "echo"}) for name in ("BEGIN", "ABORT")]
"""An empty transaction: the shortest frames that the broker answers."""
_GONE = "Unexpected ACK"
_SIGNS_OF_LIFE = 3
"""The broker checks once per heartbeat interval whether a beat came since its last check: it was seen to take up to 2.4
intervals."""


class ActiveMqSource:
    """One queue, read by one coordinator at a time."""

    holds_groups = False
    shows_in_order = True
    is_looked_into = False
    gives_few_groups = False

    def __init__(self, *, address: Address, visibility_ms: int, heartbeat_ms: int = HEARTBEAT_MS) -> None:
        self.visibility_ms = visibility_ms
        self.crash_wait_ms = _SIGNS_OF_LIFE * heartbeat_ms
        self._address = address
        self._heartbeat_ms = heartbeat_ms
        self._line: StompLine | None = None
        self._session = Session(memory=Memory(), ack_at_once=self._ack_at_once)
        self._outbox: StompLine | None = None
        self._outbox_lock = asyncio.Lock()
        self._subscribe_lock = asyncio.Lock()
        self._memory = Memory()
        self._statistics = Statistics()
        self._keeper: asyncio.Task[None] | None = None
        self._subscribed_at = 0.0

    async def open(self) -> None:
        if self._keeper is not None:
            return
        line = await self._connect()
        self._keeper = asyncio.create_task(self._keep(line))

    async def poll(self, max_messages: int, wait_ms: int) -> list[Received]:
        line, session = self._live()
        if max_messages < 1:
            return []
        is_new = await self._subscribe(line, session)
        if session.waiting() and not is_new:
            return session.take(max_messages)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                while not session.waiting():
                    if line.lost.is_set():
                        raise line.unavailable()
                    session.arrived.clear()  # what came may be a copy that is shown to nobody
                    await session.arrived.wait()
                await self._gather(line, session, max_messages)
        except TimeoutError:
            pass
        return session.take(max_messages)

    async def ack(self, receipts: Sequence[Receipt]) -> list[bool]:
        line, session = self._live()
        await self._delete(line, session, [one.handle for one in receipts])
        return [one.handle in self._memory.acked or self._is_gone(session, one) for one in receipts]

    def _is_gone(self, session: Session, one: Receipt) -> bool:
        """Whether a message of an earlier connection was deleted: otherwise it would have come again on this one by
        now.

        False until the broker has certainly noticed that the other connection is dead.
        """
        loop = asyncio.get_running_loop()
        return (
            session.is_subscribed
            and loop.time() - self._subscribed_at > self.crash_wait_ms / 1000
            and HANDLE.fullmatch(one.handle) is not None
            and not session.may_hold(one.broker_id, self._address.prefetch)
        )

    async def nack(self, receipts: Sequence[tuple[Receipt, int]]) -> list[bool]:
        line, session = self._live()
        result: list[bool] = []
        late: list[tuple[Delivery, int]] = []
        for one, delay_ms in receipts:
            delivery = session.out.pop(one.handle, None)
            result.append(delivery is not None)
            if delivery is not None and delay_ms > 0:
                late.append((delivery, delay_ms))
            elif delivery is not None:
                session.show_again(delivery)
        if late:
            await self._put_off(line, session, late)
        return result

    async def extend(self, receipts: Sequence[Receipt], visibility_ms: int) -> list[bool]:  # noqa: ARG002
        """Nothing lapses while the connection lives."""
        _, session = self._live()
        return [one.handle in session.out for one in receipts]

    async def depth(self) -> Depth:
        """Asked on a line of its own: a broker that cannot write its statistics drops the connection that asked."""
        found = await look(self._address, self._statistics, heartbeat_ms=self._heartbeat_ms)
        session = self._session
        if found.given is None:
            given = len(session.out) if session.is_subscribed else min(found.size, self._address.prefetch)
        else:
            # What we were sent and have given to nobody still counts as waiting.
            given = max(0, found.given - session.waiting())
        return Depth(
            waiting=max(0, found.size - given),
            invisible=given + found.scheduled,
            oldest_s=None,
            delayed=found.scheduled,
        )

    async def close(self) -> None:
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait([keeper])
        self._session.end()
        lines = [line for line in (self._line, self._outbox) if line is not None]
        self._line = self._outbox = None
        for line in lines:
            await line.close()

    # The connection --------------------------------------------------------------------------------

    def _live(self) -> tuple[StompLine, Session]:
        if self._line is None or not self._line.is_up:
            raise self._line.unavailable() if self._line else SourceUnavailable(f"{self._address}: not connected")
        return self._line, self._session

    async def _connect(self) -> StompLine:
        session = Session(memory=self._memory, ack_at_once=self._ack_at_once)
        line = StompLine(
            address=self._address,
            on_message=session.add,
            on_messages_end=session.arrived.set,
            heartbeat_ms=self._heartbeat_ms,
        )
        await line.open()
        self._line, self._session = line, session
        return line

    async def _keep(self, line: StompLine) -> None:
        """Connect again whenever the line is lost. The next poll subscribes."""
        backoff = Backoff(*_RETRY_S)
        while True:
            await line.lost.wait()
            self._session.end()
            log.warning("%s", line.unavailable())
            await line.close()
            while line.lost.is_set():
                # Spread out, so that not all come at once when a broker is back.
                await asyncio.sleep(backoff.spend() * random.uniform(0.5, 1))
                try:
                    line = await self._connect()
                except SourceUnavailable as error:
                    log.debug("%s", error)
            backoff.renew()
            log.info("%s: connected again", self._address)

    async def _subscribe(self, line: StompLine, session: Session) -> bool:
        async with self._subscribe_lock:
            if session.is_subscribed:
                return False
            # With a receipt the broker would send the first message at once, and open the window for the rest later.
            line.tell([frames.subscribe(self._address)])
            answers = await line.ask(_ECHO)
            if None in answers:
                raise line.unavailable()
            if refused := next(filter(None, answers), ""):
                raise SourceUnavailable(f"{self._address}: {refused}")
            session.is_subscribed = True
            self._subscribed_at = asyncio.get_running_loop().time()
            return True

    async def _gather(self, line: StompLine, session: Session, most: int) -> None:
        """What was sent together should be one batch. Its first message is here: wait for what the broker has in hand.

        The broker never says that this was all. It counts as all when a round trip and a moment brought no more.
        """
        give_up = time.monotonic() + _GATHER_MOST_S
        before = 0
        while before < session.waiting() < most and time.monotonic() < give_up:
            before = session.waiting()
            await line.ask(_ECHO)
            await asyncio.sleep(_GATHER_S)

    # Settling --------------------------------------------------------------------------------------

    def _ack_at_once(self, ack_id: str) -> None:
        if self._line is not None:
            self._line.tell([frames.ack(ack_id)])

    async def _delete(self, line: StompLine, session: Session, handles: Sequence[str]) -> None:
        going = [delivery for handle in handles if (delivery := session.out.pop(handle, None)) is not None]
        ack_ids = [(delivery, ack_id) for delivery in going for ack_id in delivery.ack_ids]
        answers = await self._acks(line, [ack_id for _, ack_id in ack_ids])
        said: dict[str, list[str | None]] = {delivery.handle: [] for delivery in going}
        for (delivery, _), answer in zip(ack_ids, answers, strict=True):
            said[delivery.handle].append(answer)
        asked = {ack_id for _, ack_id in ack_ids}
        for delivery in going:
            if None in said[delivery.handle]:
                continue  # belonged to the lost connection, like all that it was given
            if refused := next(filter(None, said[delivery.handle]), ""):
                session.leave(delivery)
                log.warning("%s: an ack was refused: %s", self._address, refused)
                continue
            session.acknowledged(delivery)
            for ack_id in delivery.ack_ids:
                if ack_id not in asked:  # a copy that came meanwhile
                    self._ack_at_once(ack_id)
        if None in answers:
            raise line.unavailable()

    async def _acks(self, line: StompLine, ack_ids: list[str]) -> list[str | None]:
        """What the broker no longer knows (its queue was purged) is as good as acked."""
        acks = [frames.ack(ack_id) for ack_id in ack_ids]
        answer = await line.ask_last(acks)
        if not answer:
            return [answer] * len(acks)
        return ["" if said and said.startswith(_GONE) else said for said in await line.ask(acks)]

    async def _put_off(self, line: StompLine, session: Session, late: list[tuple[Delivery, int]]) -> None:
        for delivery, _ in late:
            # The copy may come before the original is acked, and is another delivery then.
            session.leave(delivery)
        copies = [
            frames.copy_of(
                self._address.queue,
                delivery.headers,
                delivery.body,
                broker_id=delivery.broker_id,
                count=delivery.receive_count,
                delay_ms=delay_ms,
            )
            for delivery, delay_ms in late
        ]
        try:
            answers = await self._send(copies)
        except BaseException:
            for delivery, _ in late:
                session.keep(delivery)
            raise
        copied: list[Delivery] = []
        for (delivery, delay_ms), answer in zip(late, answers, strict=True):
            if answer == "":
                copied.append(delivery)
            elif answer is None:
                session.keep(delivery)
            else:
                # Then it stays ours: it comes just as late, but only while this connection lasts.
                log.warning("%s: a copy was refused: %s", self._address, answer)
                delivery.receive_count += 1
                session.rest(delivery, delay_ms)
        await self._delete_copied(line, copied)
        if None in answers:
            raise SourceUnavailable(f"{self._address}: no answer to a delayed copy")

    async def _delete_copied(self, line: StompLine, copied: list[Delivery]) -> None:
        """Ack the originals. They do not go into `acked`: their messages come again."""
        answers: list[str | None] = [None]
        try:
            answers = await self._acks(line, [ack_id for delivery in copied for ack_id in delivery.ack_ids])
        finally:
            if None in answers:
                for delivery in copied:
                    self._memory.unsettled.add(delivery.broker_id)
        if None in answers:
            raise line.unavailable()

    async def _send(self, copies: list[frames.StompCommand]) -> list[str | None]:
        """On a line of its own: a broker whose store is full holds up a SEND and what is behind it. Acks must not be:
        they make room."""
        async with self._outbox_lock:
            if self._outbox is None or not self._outbox.is_up:
                if self._outbox is not None:
                    await self._outbox.close()
                self._outbox = StompLine(address=self._address, heartbeat_ms=self._heartbeat_ms)
                await self._outbox.open()
            return await self._outbox.ask(copies)
