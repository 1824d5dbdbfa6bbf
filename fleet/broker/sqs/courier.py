"""Brings dead letters, and what a task moves, from the outboxes of a queue to other queues.

Never lost, never twice, in their order: whoever dies half-way is followed by another who begins at the same head of the
outbox, and the target knows how far it was. Meanwhile a message counts as not visible.
"""

from __future__ import annotations

import logging
from itertools import groupby

import msgspec

from fleet.broker.names import message_id
from fleet.broker.sqs.catalogue import PREFIX, Queue, Queues
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.stored import pack, unpack
from fleet.errors import StateFull
from fleet.state.engine import Engine, Moving

log = logging.getLogger("fleet.sqs")

_AT_ONCE = 100


class Courier:
    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._said: dict[tuple[str, str], str] = {}
        """Why what a queue sends waits, as was said once."""

    async def carry(self, queue: Queue) -> int:
        """Everything that waits in its outboxes. Returns how many it brought."""
        brought = 0
        for partition, engine in enumerate(queue.engines):
            for target in sorted(await engine.targets()):
                count, why = await self._carry_to(target.removeprefix(PREFIX), target, queue, partition, engine)
                brought += count
                if why and self._said.get((queue.name, target)) != why:
                    log.warning("dead letters of queue %s wait: %s", queue.name, why)
                self._said[queue.name, target] = why
        return brought

    async def _carry_to(self, name: str, target: str, queue: Queue, partition: int, engine: Engine) -> tuple[int, str]:
        """How many were brought, and why the rest was not; '' if there is none."""
        source = f"{engine.keys.prefix}{queue.record.incarnation}"
        brought = 0
        while moving := await engine.outgoing(target, _AT_ONCE):

            async def bring(to: Queue, moving: list[Moving] = moving) -> None:
                # A run at a time: what comes with a lower place than what has arrived is taken for known.
                for is_dead, run in groupby(moving, lambda one: one.times > 0):
                    by_partition: dict[int, list[tuple[int, int | str, str, str]]] = {}
                    for one in run:
                        place = to.attributes.partition_of(one.group)
                        letter = _letter(queue, partition, one, fifo=to.attributes.fifo)
                        by_partition.setdefault(place, []).append((one.place, one.number, one.group, letter))
                    # What a task moves is a dead letter no longer.
                    origin = PREFIX + queue.name if is_dead else ""
                    for place, letters in by_partition.items():
                        await to.engines[place].arrive(letters, source=source, origin=origin)

            try:
                await self._queues.use(name, bring)
            except SqsError as error:
                return brought, f"queue {name}: {error}"
            except StateFull as error:
                return brought, str(error)
            await engine.leave(target, moving[-1].place)
            brought += len(moving)
        return brought, ""


def _letter(queue: Queue, partition: int, moving: Moving, *, fifo: bool) -> str:
    header, body = unpack(moving.stored)
    incarnation, number = queue.record.incarnation, int(moving.number)
    id_ = header.id or message_id(queue.engines[partition].keys.prefix, incarnation, partition, number)
    kept = msgspec.structs.replace(header, id=id_, dedup_id=id_ if fifo else header.dedup_id)
    return pack(kept, body)
