"""A pull that waits: it wakes by a signal, asks nothing meanwhile, and ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fleet.broker import core, waits
from fleet.broker.errors import BrokerError, FailedPrecondition, SubscriptionNotFound
from fleet.broker.queue import MessageQueue
from fleet.state.keys import SubscriptionKeys
from tests.servers.local import RedisCluster, RedisServer
from tests.waiting import let_pass, until

STATE = SubscriptionKeys("topic", "sub").state
SOON_S = waits.LOOK_S / 2
"""Sooner than one who waits would look by itself."""


class Queues:
    """Two, as in two processes, and threads that wait in them."""

    def __init__(self, server: RedisServer, threads: ThreadPoolExecutor) -> None:
        self.server = server
        self.here, self.there = MessageQueue(url=server.url), MessageQueue(url=server.url)
        self._threads = threads
        self.here.register_topic("topic")

    def pulling(self, queue: MessageQueue, most: int = 10, wait_s: float = 30) -> Any:
        with self.server.client() as client:
            client.hdel(STATE, "waits")
            pulling = self._threads.submit(lambda: queue.pull("sub", most, wait_seconds=wait_s))
            until(lambda: bool(client.hget(STATE, "waits")))
        return pulling

    def publish(self, *texts: str, key: str | None = None) -> None:
        self.there.publish("topic", [{"data": text.encode(), "ordering_key": key} for text in texts])

    def close(self) -> None:
        self.here.close()
        self.there.close()


@pytest.fixture
def queues(redis_server: RedisServer) -> Iterator[Queues]:
    with ThreadPoolExecutor(8) as threads:
        queues = Queues(redis_server, threads)
        yield queues
        queues.close()


def texts(pulling: Any) -> list[str]:
    return [one.data.decode() for one in pulling.result(SOON_S)]


def test_it_wakes_when_something_is_published_elsewhere(queues: Queues) -> None:
    queues.here.register_subscription("sub", "topic")
    for text in ("first", "second"):
        pulling = queues.pulling(queues.here)
        queues.publish(text)
        assert texts(pulling) == [text]


def test_it_wakes_when_the_one_before_it_is_acked_or_nacked(queues: Queues) -> None:
    queues.here.register_subscription("sub", "topic", message_ordering=True)
    queues.publish("a", "b", key="k")
    [a] = queues.there.pull("sub", 1)
    pulling = queues.pulling(queues.here)
    queues.there.nack(a.ack_id)
    assert texts(pulling) == ["a"]
    [a] = pulling.result()
    pulling = queues.pulling(queues.here)
    queues.there.ack(a.ack_id)
    assert texts(pulling) == ["b"]


def test_it_wakes_when_a_backoff_is_over_or_flow_control_has_room(queues: Queues) -> None:
    backoff = {"minimum_backoff": 0.2, "maximum_backoff": 0.2}
    queues.here.register_subscription("sub", "topic", retry_policy=backoff, flow_control={"max_messages": 1})
    queues.publish("a", "b")
    [a] = queues.there.pull("sub", 10)
    pulling = queues.pulling(queues.here)
    queues.there.nack(a.ack_id)
    assert texts(pulling) == ["b"]
    queues.there.ack(pulling.result()[0].ack_id)
    assert texts(queues.pulling(queues.here)) == ["a"]


def test_it_asks_nothing_while_it_waits_and_ends_when_its_time_is_over(queues: Queues) -> None:
    queues.here.register_subscription("sub", "topic")
    with queues.server.client() as client:
        pulling = queues.pulling(queues.here, wait_s=2)
        client.config_resetstat()
        begun = time.monotonic()
        assert pulling.result(30) == []
        assert time.monotonic() - begun < 10
        # One call is the last look. Leases of the upkeep are asked for by each of the two queues.
        assert client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"] <= 5


def test_several_who_wait_share_what_comes(queues: Queues) -> None:
    queues.here.register_subscription("sub", "topic")
    pullings = [queues.pulling(queue, most=1) for queue in (queues.here, queues.here, queues.there)]
    queues.publish("a", "b", "c")
    assert sorted(text for pulling in pullings for text in texts(pulling)) == ["a", "b", "c"]


def test_what_is_there_comes_at_once(queues: Queues) -> None:
    queues.here.register_subscription("sub", "topic")
    queues.publish("a")
    assert [one.data for one in queues.here.pull("sub", 10, wait_seconds=30)] == [b"a"]


def test_it_ends_when_the_subscription_is_deleted(queues: Queues) -> None:
    queues.here.register_subscription("sub", "topic")
    pulling = queues.pulling(queues.here)
    queues.there.unregister_subscription("sub")
    with pytest.raises(SubscriptionNotFound):
        pulling.result(SOON_S)


def test_it_goes_on_with_a_subscription_that_was_made_anew_under_another_topic(queues: Queues) -> None:
    queues.here.register_subscription("sub", "topic")
    pulling = queues.pulling(queues.here)
    queues.there.register_topic("other")
    queues.there.unregister_topic("topic")
    let_pass(0.2)  # it looks, and finds it detached: nothing tells a test of that
    queues.there.unregister_subscription("sub")
    queues.there.register_subscription("sub", "other")
    queues.there.publish("other", [{"data": b"a"}])
    assert [one.data for one in pulling.result(2 * waits.LOOK_S)] == [b"a"]


def test_closing_ends_it(queues: Queues) -> None:
    queues.here.register_subscription("sub", "topic")
    pulling = queues.pulling(queues.here)
    queues.here.close()
    with pytest.raises(FailedPrecondition, match="closed"):
        pulling.result(SOON_S)


def test_in_a_cluster_it_wakes_too(redis_cluster: RedisCluster) -> None:
    with (
        MessageQueue(url=redis_cluster.url) as here,
        MessageQueue(url=redis_cluster.url) as there,
        ThreadPoolExecutor(1) as threads,
    ):
        here.register_topic("topic")
        here.register_subscription("sub", "topic")
        pulling = threads.submit(lambda: here.pull("sub", 10, wait_seconds=30))
        until(lambda: bool(there._run(there._broker.client.hget(STATE, "waits"))))
        there.publish("topic", [{"data": b"a"}])
        assert texts(pulling) == ["a"]


@pytest.mark.parametrize("wait_s", [-1, core.MOST_WAIT_S + 1, float("nan"), True, "1"])
def test_how_long_is_bounded(queues: Queues, wait_s: Any) -> None:
    queues.here.register_subscription("sub", "topic")
    with pytest.raises(BrokerError, match="wait_seconds") as refused:
        queues.here.pull("sub", 1, wait_seconds=wait_s)
    assert refused.value.code == 3
