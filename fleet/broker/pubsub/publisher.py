"""The service google.pubsub.v1.Publisher: topics, and what is published to them."""

from __future__ import annotations

from typing import Any

from fleet.broker.core import Broker
from fleet.broker.errors import AlreadyExists, InvalidArgument, TopicNotFound
from fleet.broker.pubsub import wire
from fleet.broker.pubsub.messages import published
from fleet.broker.pubsub.names import page, project_of, subscription_path, topic_of, topic_path
from fleet.broker.pubsub.options import refuse_changes, refuse_what_we_cannot
from fleet.broker.pubsub.rpc import Handlers, unary

SERVICE = "google.pubsub.v1.Publisher"


class Publisher:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def handlers(self) -> Handlers:
        return {
            "CreateTopic": unary(self.create_topic, wire.Topic, wire.Topic),
            "UpdateTopic": unary(self.update_topic, wire.UpdateTopicRequest, wire.Topic),
            "Publish": unary(self.publish, wire.PublishRequest, wire.PublishResponse),
            "GetTopic": unary(self.get_topic, wire.GetTopicRequest, wire.Topic),
            "ListTopics": unary(self.list_topics, wire.ListTopicsRequest, wire.ListTopicsResponse),
            "ListTopicSubscriptions": unary(
                self.list_topic_subscriptions, wire.ListTopicSubscriptionsRequest, wire.ListTopicSubscriptionsResponse
            ),
            "DeleteTopic": unary(self.delete_topic, wire.DeleteTopicRequest, wire.Empty),
        }

    async def create_topic(self, asked: Any) -> Any:
        named = topic_of(asked.name)
        refuse_what_we_cannot(asked, {"name"})
        if not await self._broker.register_topic(named.name):
            raise AlreadyExists(f"Topic already exists: {named.name}")
        return _told(*named)

    async def update_topic(self, asked: Any) -> Any:
        now = await self._topic(asked.topic.name)
        refuse_changes(now, asked.topic, asked.update_mask.paths)
        return now

    async def get_topic(self, asked: Any) -> Any:
        return await self._topic(asked.topic)

    async def _topic(self, path: str) -> Any:
        named = topic_of(path)
        if await self._broker.get_topic(named.name) is None:
            raise TopicNotFound(named.name)
        return _told(*named)

    async def list_topics(self, asked: Any) -> Any:
        project = project_of(asked.project)
        names = [one.name for one in await self._broker.get_all_topics()]
        names, following = page(names, asked.page_size, asked.page_token)
        return wire.ListTopicsResponse(topics=[_told(project, name) for name in names], next_page_token=following)

    async def list_topic_subscriptions(self, asked: Any) -> Any:
        named = topic_of(asked.topic)
        names = sorted(one.name for one in await self._broker.get_subscriptions_for_topic(named.name))
        names, following = page(names, asked.page_size, asked.page_token)
        paths = [subscription_path(named.project, name) for name in names]
        return wire.ListTopicSubscriptionsResponse(subscriptions=paths, next_page_token=following)

    async def delete_topic(self, asked: Any) -> Any:
        await self._broker.unregister_topic(topic_of(asked.topic).name)
        return wire.Empty()

    async def publish(self, asked: Any) -> Any:
        named = topic_of(asked.topic)
        if not asked.messages:
            raise InvalidArgument("there are no messages to publish")
        ids = await self._broker.publish(named.name, published(asked.messages))
        return wire.PublishResponse(message_ids=ids)


def _told(project: str, name: str) -> Any:
    return wire.Topic(name=topic_path(project, name), state=1)  # ACTIVE
