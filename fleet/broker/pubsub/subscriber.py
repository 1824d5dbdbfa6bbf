"""The service google.pubsub.v1.Subscriber: subscriptions, and what is pulled from them."""

from __future__ import annotations

import asyncio
from typing import Any

from fleet.broker.core import Broker
from fleet.broker.errors import AlreadyExists, InvalidArgument, SubscriptionNotFound
from fleet.broker.pubsub import wire
from fleet.broker.pubsub.errors import Unsupported
from fleet.broker.pubsub.messages import answers, received
from fleet.broker.pubsub.names import page, project_of, subscription_of, topic_of
from fleet.broker.pubsub.options import options_of, refuse_changes, told
from fleet.broker.pubsub.outstanding import Outstanding
from fleet.broker.pubsub.rpc import Handlers, stream, timed, unary, unless
from fleet.broker.pubsub.settle import Settler
from fleet.broker.pubsub.streaming import Streams

SERVICE = "google.pubsub.v1.Subscriber"
WAIT_S = 20.0
"""For which a pull waits for a message, if its client waits for longer."""
PART = 0.8
"""Of the time that a client waits: its answer has to be there before that is over."""


class Subscriber:
    """`over`: the door closes, and nobody waits any more."""

    def __init__(self, broker: Broker, over: asyncio.Event) -> None:
        self._broker = broker
        self._over = over
        outstanding = Outstanding()
        self._settler = Settler(broker, outstanding)
        self._streams = Streams(broker, outstanding, self._settler, over)

    def handlers(self) -> Handlers:
        return {
            "CreateSubscription": unary(self.create_subscription, wire.Subscription, wire.Subscription),
            "GetSubscription": unary(self.get_subscription, wire.GetSubscriptionRequest, wire.Subscription),
            "UpdateSubscription": unary(self.update_subscription, wire.UpdateSubscriptionRequest, wire.Subscription),
            "ListSubscriptions": unary(
                self.list_subscriptions, wire.ListSubscriptionsRequest, wire.ListSubscriptionsResponse
            ),
            "DeleteSubscription": unary(self.delete_subscription, wire.DeleteSubscriptionRequest, wire.Empty),
            "ModifyAckDeadline": unary(self.modify_ack_deadline, wire.ModifyAckDeadlineRequest, wire.Empty),
            "Acknowledge": unary(self.acknowledge, wire.AcknowledgeRequest, wire.Empty),
            "Pull": timed(self.pull, wire.PullRequest, wire.PullResponse),
            "StreamingPull": stream(
                self._streams.streaming_pull, wire.StreamingPullRequest, wire.StreamingPullResponse
            ),
            "Seek": unary(self.seek, wire.SeekRequest, wire.SeekResponse),
        }

    async def create_subscription(self, asked: Any) -> Any:
        named = subscription_of(asked.name)
        topic = topic_of(asked.topic).name
        if not await self._broker.register_subscription(named.name, topic, options_of(asked)):
            raise AlreadyExists(f"Subscription already exists: {named.name}")
        return await self._subscription(asked.name)

    async def get_subscription(self, asked: Any) -> Any:
        return await self._subscription(asked.subscription)

    async def update_subscription(self, asked: Any) -> Any:
        now = await self._subscription(asked.subscription.name)
        refuse_changes(now, asked.subscription, asked.update_mask.paths)
        return now

    async def _subscription(self, path: str) -> Any:
        named = subscription_of(path)
        found = await self._broker.get_subscription(named.name)
        if found is None:
            raise SubscriptionNotFound(named.name)
        return told(found, named.project)

    async def list_subscriptions(self, asked: Any) -> Any:
        project = project_of(asked.project)
        found = {one.name: one for one in await self._broker.get_all_subscriptions()}
        names, following = page(sorted(found), asked.page_size, asked.page_token)
        return wire.ListSubscriptionsResponse(
            subscriptions=[told(found[name], project) for name in names], next_page_token=following
        )

    async def delete_subscription(self, asked: Any) -> Any:
        await self._broker.unregister_subscription(subscription_of(asked.subscription).name)
        return wire.Empty()

    async def pull(self, asked: Any, left_s: float | None) -> Any:
        name = subscription_of(asked.subscription).name
        wait_s = 0.0 if asked.return_immediately else min(WAIT_S, WAIT_S if left_s is None else left_s * PART)
        # A pull that waits is told that there was nothing when the door closes.
        messages = await unless(self._over, self._broker.pull(name, asked.max_messages, wait_s=wait_s)) or []
        now, *later = list(answers(messages)) or [[]]
        self._broker.give_back(name, [one for answer in later for one in answer])
        return wire.PullResponse(received_messages=[received(one) for one in now])

    async def acknowledge(self, asked: Any) -> Any:
        if not asked.ack_ids:
            raise InvalidArgument("there are no ack_ids")
        await self._settler.acknowledge(subscription_of(asked.subscription).name, asked.ack_ids)
        return wire.Empty()

    async def modify_ack_deadline(self, asked: Any) -> Any:
        if not asked.ack_ids:
            raise InvalidArgument("there are no ack_ids")
        deadlines = [(one, asked.ack_deadline_seconds) for one in asked.ack_ids]
        await self._settler.modify(subscription_of(asked.subscription).name, deadlines)
        return wire.Empty()

    async def seek(self, asked: Any) -> Any:
        if not asked.HasField("time"):
            raise Unsupported("snapshots are not supported: seek to a time")
        await self._broker.seek(subscription_of(asked.subscription).name, asked.time.ToNanoseconds() / 1e9)
        return wire.SeekResponse()
