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
        source = f"{engine.prefix}{queue.record.incarnation}"
        brought = 0
        while moving := await engine.outgoing(target, _AT_ONCE):

            async def bring(to: Queue, moving: list[Moving] = moving) -> None:
                by_partition: dict[int, list[Moving]] = {}
                for one in moving:
                    by_partition.setdefault(to.attributes.partition_of(one.group), []).append(one)
                for place, ones in by_partition.items():
                    # In the order of their places: what is behind the highest that came is not taken.
                    for is_new, run in groupby(ones, key=_is_new_there):
                        letters = [
                            (
                                one.place,
                                0 if is_new else one.number,
                                one.group,
                                _letter(queue, partition, one, fifo=to.attributes.fifo),
                            )
                            for one in run
                        ]
                        origin = "" if is_new else PREFIX + queue.name
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
    id_ = header.id or message_id(queue.engines[partition].prefix, incarnation, partition, number)
    dedup_id = id_ if fifo else header.dedup_id
    kept = msgspec.structs.replace(header, id="" if _is_new_there(moving) else id_, dedup_id=dedup_id)
    return pack(kept, body)


def _is_new_there(moving: Moving) -> bool:
    """A dead letter stays the message that it was. To AWS what a task moves is a new one: a new id, sent just now."""
    return moving.times < 0
