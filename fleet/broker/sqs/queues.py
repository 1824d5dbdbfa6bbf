"""CreateQueue, GetQueueUrl, ListQueues, PurgeQueue, and the attributes of a queue.

The catalogue is changed first, then every partition is told; callers that know less are refused from then on.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from fleet.broker.sqs import attributes, errors, names, ranges, records, redrive
from fleet.broker.sqs.attributes import Attributes
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import Queues, engine_of, establish
from fleet.broker.sqs.look import QueueNow, count, described
from fleet.broker.sqs.records import PARTITIONS, QueueRecord
from fleet.broker.sqs.tags import check_tags
from fleet.state.due import Due
from fleet.state.engine import Engine, Stale
from fleet.state.keys import BrokerKeys

_TRIES = 20
_PURGED_WITHIN_MS = 1_000


class QueueVerbs:
    """`serves_partitions`: whether every live door can serve a queue of several partitions."""

    def __init__(
        self,
        queues: Queues,
        *,
        region: str,
        purge_interval_s: float,
        serves_partitions: Callable[[], Awaitable[bool]],
    ) -> None:
        self._queues = queues
        self._region = region
        self._purge_interval_s = purge_interval_s
        self._serves_partitions = serves_partitions
        self._due = Due(queues.client, BrokerKeys.sqs_due)
        self._ahead_us = 0

    # There or not -------------------------------------------------------------------------------------

    async def create_queue(self, call: Call) -> dict[str, Any]:
        name, given = call.params["QueueName"], call.params.get("Attributes") or {}
        tags = call.params.get("tags") or {}
        fifo = attributes.wants_fifo(given)
        names.check_name(name, fifo=fifo)
        url = {"QueueUrl": names.queue_url(call.base_url, name)}
        for _ in range(_TRIES):
            found = await self._queues.seen(name)
            if found is not None:
                found[1].attributes.check_same(given)
                return url
            record = await self._new_record(name, given, tags)
            if not await self._queues.change(name, "", record):
                continue
            try:
                await asyncio.gather(*(engine.establish() for engine in self._engines(name, record)))
            except Stale:
                # Somebody has deleted it already. Or if it still stands there as we wrote it, one of that name was
                # deleted under a higher number: a clock stepped back.
                if await self._queues.change(name, records.written(record), None):
                    self._ahead_us += 60_000_000
                continue
            return url
        raise errors.service_unavailable()

    async def _new_record(self, name: str, given: Mapping[str, str], tags: Mapping[str, str]) -> QueueRecord:
        chosen = attributes.create(given)
        check_tags(tags)
        if chosen.partitions > 1 and not await self._serves_partitions():
            raise errors.unsupported("A door that is running cannot serve a queue of several partitions.")
        await self._check_target(name, chosen)
        now_s = int(time.time())
        return QueueRecord(
            attributes=chosen,
            incarnation=time.time_ns() // 1000 + self._ahead_us,
            version=1,
            created_s=now_s,
            modified_s=now_s,
            tags=dict(tags),
            needs=(PARTITIONS,) if chosen.partitions > 1 else (),
        )

    async def get_queue_url(self, call: Call) -> dict[str, Any]:
        name = call.params["QueueName"]
        await self._queues.find(name)
        return {"QueueUrl": names.queue_url(call.base_url, name)}

    async def list_queues(self, call: Call) -> dict[str, Any]:
        prefix = call.params.get("QueueNamePrefix") or ""
        found = [name for name in await self._queues.names() if name.startswith(prefix)]
        page, token = paged(found, call.params)
        result: dict[str, Any] = {}
        if page:
            result["QueueUrls"] = [names.queue_url(call.base_url, name) for name in page]
        if token:
            result["NextToken"] = token
        return result

    async def list_dead_letter_source_queues(self, call: Call) -> dict[str, Any]:
        await self._queues.find(call.queue_name)
        found = sorted(
            name
            for name, record in (await self._queues.all()).items()
            if record.attributes.redrive is not None and record.attributes.redrive.target == call.queue_name
        )
        page, token = paged(found, call.params)
        result: dict[str, Any] = {"queueUrls": [names.queue_url(call.base_url, name) for name in page]}
        if token:
            result["NextToken"] = token
        return result

    async def purge_queue(self, call: Call) -> None:
        name, token = call.queue_name, secrets.token_hex(8)
        interval_ms = round(self._purge_interval_s * 1000)
        # Should we die half-way, the upkeep finishes it: it looks once we should have.
        await self._due.put({name: self._queues.now_ms() + _PURGED_WITHIN_MS})
        if not await self._queues.use(name, lambda queue: queue.purge(token, hold_off_ms=interval_ms)):
            raise errors.purge_in_progress(name, round(self._purge_interval_s))

    # Attributes ---------------------------------------------------------------------------------------

    async def get_queue_attributes(self, call: Call) -> dict[str, Any]:
        asked = call.params.get("AttributeNames") or ()
        _, record = await self._queues.find(call.queue_name)
        if not asked:
            return {}
        now = QueueNow(
            call.queue_name, record, await count(self._engines(call.queue_name, record), fifo=record.attributes.fifo)
        )
        return {"Attributes": described(now, asked, self._region)}

    async def set_queue_attributes(self, call: Call) -> None:
        given = call.params["Attributes"]

        async def changed(record: QueueRecord) -> QueueRecord:
            chosen = record.attributes.changed(given)
            await self._check_target(call.queue_name, chosen, given)
            return msgspec.structs.replace(
                record, attributes=chosen, version=record.version + 1, modified_s=int(time.time())
            )

        record = await self.update(call.queue_name, changed)
        await establish(self._engines(call.queue_name, record), record)

    async def update(self, name: str, change: Callable[[QueueRecord], Awaitable[QueueRecord]]) -> QueueRecord:
        """Change the record of a queue, as many others as may do so too."""
        for _ in range(_TRIES):
            seen, record = await self._queues.find(name)
            after = await change(record)
            if after == record or await self._queues.change(name, seen, after):
                return after
        raise errors.service_unavailable()

    async def _check_target(self, name: str, chosen: Attributes, given: Mapping[str, str] | None = None) -> None:
        """A dead-letter queue has to be there, of the same kind, and to let this one use it."""
        policy = chosen.redrive
        if policy is None or (given is not None and "RedrivePolicy" not in given):
            return
        text = redrive.written(policy)
        found = await self._queues.seen(policy.target)
        if found is None:
            raise redrive.no_such_target(text)
        target = found[1].attributes
        if target.fifo != chosen.fifo:
            raise redrive.other_kind(text)
        if target.allow is not None and not target.allow.allows(names.arn(self._region, name)):
            raise redrive.refused(text)

    def _engines(self, name: str, record: QueueRecord) -> list[Engine]:
        return [
            engine_of(self._queues.client, name, record, partition) for partition in range(record.attributes.partitions)
        ]


def paged(found: list[str], params: Mapping[str, Any]) -> tuple[list[str], str]:
    """A page of names, and the token of the next one; '' where there is none."""
    token = params.get("NextToken")
    after = _after(token) if token else ""
    left = [name for name in found if name > after]
    most = ranges.results(params)
    page = left[: most or ranges.MOST_RESULTS]
    more = most is not None and len(left) > len(page)
    return page, urlsafe_b64encode(page[-1].encode()).decode() if more else ""


def _after(token: str) -> str:
    try:
        return urlsafe_b64decode(token.encode()).decode()
    except ValueError as error:
        raise errors.invalid_parameter("Invalid or expired next token.") from error
