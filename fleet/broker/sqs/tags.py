"""TagQueue, UntagQueue, ListQueueTags, AddPermission, RemovePermission: kept and shown, with no effect of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from fleet.broker.sqs import errors, names, policy
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import Queues
from fleet.broker.sqs.records import QueueRecord
from fleet.broker.sqs.shapes import VERBS

MOST_TAGS = 50
_MOST_KEY, _MOST_VALUE = 128, 256
MOST_ACTIONS = 7
Update = Callable[[str, Callable[[QueueRecord], Awaitable[QueueRecord]]], Awaitable[QueueRecord]]


def check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > MOST_TAGS:
        raise errors.invalid_parameter(f"Too many tags added for queue. Maximum number of tags is {MOST_TAGS}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= _MOST_KEY:
            raise errors.invalid_parameter("Tag keys must be between 1 and 128 characters in length.")
        if value is None or len(value) > _MOST_VALUE:
            raise errors.invalid_parameter("Tag values must be between 0 and 256 characters in length.")


class TagVerbs:
    def __init__(self, queues: Queues, update: Update, *, region: str) -> None:
        self._queues = queues
        self._region = region
        self._update = update

    async def tag_queue(self, call: Call) -> None:
        given = call.params["Tags"]
        if not given:
            raise errors.missing_parameter("Tags")

        async def tagged(record: QueueRecord) -> QueueRecord:
            tags = {**record.tags, **given}
            check_tags(tags)
            return msgspec.structs.replace(record, tags=tags)

        await self._update(call.queue_name, tagged)

    async def untag_queue(self, call: Call) -> None:
        gone = set(call.params["TagKeys"])

        async def untagged(record: QueueRecord) -> QueueRecord:
            return msgspec.structs.replace(record, tags={k: v for k, v in record.tags.items() if k not in gone})

        await self._update(call.queue_name, untagged)

    async def list_queue_tags(self, call: Call) -> dict[str, Any]:
        _, record = await self._queues.find(call.queue_name)
        return {"Tags": record.tags} if record.tags else {}

    async def add_permission(self, call: Call) -> None:
        params = call.params
        label, actions = params["Label"], tuple(params["Actions"])
        for action in actions:
            if action != "*" and action not in VERBS:
                raise errors.invalid_permission_action(action)
        if len(actions) > MOST_ACTIONS:
            raise errors.over_limit(f"{len(actions)} Actions were found, maximum allowed is {MOST_ACTIONS}.")
        arn = names.arn(self._region, call.queue_name)

        async def permitted(record: QueueRecord) -> QueueRecord:
            before = record.attributes.policy
            accounts = params["AWSAccountIds"]
            return _with(record, policy.permitted(before, arn=arn, label=label, accounts=accounts, actions=actions))

        await self._update(call.queue_name, permitted)

    async def remove_permission(self, call: Call) -> None:
        label = call.params["Label"]

        async def forbidden(record: QueueRecord) -> QueueRecord:
            return _with(record, policy.forbidden(record.attributes.policy, label=label))

        await self._update(call.queue_name, forbidden)


def _with(record: QueueRecord, text: str) -> QueueRecord:
    return msgspec.structs.replace(record, attributes=msgspec.structs.replace(record.attributes, policy=text))
