"""What comes from Google's packages: gRPC, and the messages of Pub/Sub as protobuf has them.

Nothing else imports them. They are an optional extra, so nothing outside of this room imports this module either, but a
command that is about to serve. The messages are the classes below those of proto-plus: a call costs several times as
much through the latter.
"""

from __future__ import annotations

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types

Topic = types.Topic.pb()
UpdateTopicRequest = types.UpdateTopicRequest.pb()
GetTopicRequest = types.GetTopicRequest.pb()
ListTopicsRequest = types.ListTopicsRequest.pb()
ListTopicsResponse = types.ListTopicsResponse.pb()
ListTopicSubscriptionsRequest = types.ListTopicSubscriptionsRequest.pb()
ListTopicSubscriptionsResponse = types.ListTopicSubscriptionsResponse.pb()
DeleteTopicRequest = types.DeleteTopicRequest.pb()
PublishRequest = types.PublishRequest.pb()
PublishResponse = types.PublishResponse.pb()
PubsubMessage = types.PubsubMessage.pb()

Subscription = types.Subscription.pb()
UpdateSubscriptionRequest = types.UpdateSubscriptionRequest.pb()
GetSubscriptionRequest = types.GetSubscriptionRequest.pb()
ListSubscriptionsRequest = types.ListSubscriptionsRequest.pb()
ListSubscriptionsResponse = types.ListSubscriptionsResponse.pb()
DeleteSubscriptionRequest = types.DeleteSubscriptionRequest.pb()
AcknowledgeRequest = types.AcknowledgeRequest.pb()
ModifyAckDeadlineRequest = types.ModifyAckDeadlineRequest.pb()
PullRequest = types.PullRequest.pb()
PullResponse = types.PullResponse.pb()
ReceivedMessage = types.ReceivedMessage.pb()
StreamingPullRequest = types.StreamingPullRequest.pb()
StreamingPullResponse = types.StreamingPullResponse.pb()
SeekRequest = types.SeekRequest.pb()
SeekResponse = types.SeekResponse.pb()

__all__ = [
    "AcknowledgeRequest",
    "DeleteSubscriptionRequest",
    "DeleteTopicRequest",
    "Empty",
    "GetSubscriptionRequest",
    "GetTopicRequest",
    "ListSubscriptionsRequest",
    "ListSubscriptionsResponse",
    "ListTopicSubscriptionsRequest",
    "ListTopicSubscriptionsResponse",
    "ListTopicsRequest",
    "ListTopicsResponse",
    "ModifyAckDeadlineRequest",
    "PublishRequest",
    "PublishResponse",
    "PubsubMessage",
    "PullRequest",
    "PullResponse",
    "ReceivedMessage",
    "SeekRequest",
    "SeekResponse",
    "StreamingPullRequest",
    "StreamingPullResponse",
    "Subscription",
    "Topic",
    "UpdateSubscriptionRequest",
    "UpdateTopicRequest",
    "grpc",
]
