"""Topics and subscriptions, on the engine of our own queues (`fleet/state/engine.py`)."""

from fleet.broker.errors import BrokerError
from fleet.broker.message import Message, PulledMessage
from fleet.broker.options import SubscriptionOptions
from fleet.broker.queue import MessageQueue

__all__ = ["BrokerError", "Message", "MessageQueue", "PulledMessage", "SubscriptionOptions"]
