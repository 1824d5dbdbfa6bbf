"""What a pull costs does not follow from how much waits, nor from how many keys there are (seed 001, section 4)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

from fleet.broker.queue import MessageQueue
from tests.servers.local import RedisServer

FEW, MANY = 10, 10_000
EACH, ROUNDS = 40, 6


class Meter:
    """What Redis says that it has done: commands, those in scripts among them, and the time that scripts took."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self.commands = self.script_us = 0.0

    @contextmanager
    def measuring(self) -> Iterator[None]:
        self._client.config_resetstat()
        yield
        stats = self._client.info("commandstats")
        self.script_us = stats["cmdstat_evalsha"]["usec"] / stats["cmdstat_evalsha"]["calls"]
        ours = ("cmdstat_config", "cmdstat_info", "cmdstat_hscan", "cmdstat_client", "cmdstat_ping")
        calls = sum(one["calls"] for name, one in stats.items() if not name.startswith(ours))
        self.commands = calls / stats["cmdstat_evalsha"]["calls"]


def pull_and_ack(queue: MessageQueue, subscription: str, count: int) -> None:
    for _ in range(count):
        [message] = queue.pull(subscription, 1)
        queue.ack(message.ack_id)


@pytest.mark.parametrize("ordering", [False, True])
def test_a_pull_costs_the_same_of_ten_and_of_ten_thousand(redis_server: RedisServer, ordering: bool) -> None:
    with MessageQueue(url=redis_server.url) as queue, redis_server.client() as client:
        meter = Meter(client)
        for topic, messages in (("few", FEW), ("many", MANY - EACH)):
            queue.register_topic(topic)
            queue.register_subscription(topic, topic, message_ordering=ordering)
            for first in range(0, messages, 1000):
                fill(queue, topic, range(first, min(first + 1000, messages)))
        fastest = {"few": float("inf"), "many": float("inf")}
        commands = {}
        for _ in range(ROUNDS):
            for topic in fastest:
                with meter.measuring():
                    for first in range(0, EACH, FEW):
                        fill(queue, topic, range(first, first + FEW))
                        pull_and_ack(queue, topic, FEW)
                fastest[topic] = min(fastest[topic], meter.script_us)
                commands[topic] = meter.commands
        print(f"{fastest['few']:.1f} us a call of {FEW}, {fastest['many']:.1f} us of {MANY:,}; commands {commands}")
        assert commands["many"] <= commands["few"] * 1.1
        assert fastest["many"] <= fastest["few"] * 1.5


def fill(queue: MessageQueue, topic: str, numbers: range) -> None:
    queue.publish(topic, [{"data": b"x" * 100, "ordering_key": f"key-{n % 1000}"} for n in numbers])


def test_the_next_of_a_key_is_found_by_its_key(redis_server: RedisServer) -> None:
    """However many of others wait before it, and of its own behind it."""
    with MessageQueue(url=redis_server.url) as queue, redis_server.client() as client:
        queue.register_topic("topic")
        queue.register_subscription("sub", "topic", message_ordering=True)
        meter = Meter(client)
        calls = {}
        for waiting in (FEW, MANY // 2):
            queue.publish("topic", [{"data": b"x", "ordering_key": "held"} for _ in range(waiting)])
            if waiting == FEW:
                [held] = queue.pull("sub", 10)
            queue.publish("topic", [{"data": b"free", "ordering_key": "free"}])
            with meter.measuring():
                [free] = queue.pull("sub", 10)
                queue.ack(free.ack_id)
            assert (held.ordering_key, free.ordering_key) == ("held", "free")
            calls[waiting] = meter.commands
        assert calls[MANY // 2] <= calls[FEW]
