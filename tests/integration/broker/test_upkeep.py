"""What nobody pulls is looked after: leases that expired, and messages that are older than the retention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fleet.broker import by_lease, sweep
from fleet.broker.errors import InvalidArgument
from fleet.broker.options import SubscriptionOptions
from fleet.broker.queue import MessageQueue
from fleet.broker.register import Register
from fleet.state.keys import BrokerKeys
from tests.clocks import HandClock
from tests.servers.local import RedisServer
from tests.waiting import until

Wait = Callable[[float], None]
DAY_S = 24 * 60 * 60


def texts(queue: MessageQueue, subscription: str) -> list[str]:
    return [one.data.decode() for one in queue.pull(subscription, 100)]


def take_all(queue: MessageQueue, subscription: str) -> None:
    while pulled := queue.pull(subscription, 1000):
        for one in pulled:
            queue.ack(one.ack_id)


def held(queue: MessageQueue, name: str = "sub") -> int:
    return queue._run(queue._broker.all_depths([name]))[name].messages


def test_the_sweep_ends_an_expired_lease_though_nobody_pulls(message_queue: MessageQueue, wait: Wait) -> None:
    for topic in ("topic", "dead"):
        message_queue.register_topic(topic)
    policy = {"dead_letter_topic": "dead", "max_delivery_attempts": 1}
    message_queue.register_subscription("sub", "topic", dead_letter_policy=policy, message_ordering=True)
    message_queue.register_subscription("letters", "dead")
    message_queue.publish("topic", [{"data": b"a", "ordering_key": "k"}, {"data": b"b", "ordering_key": "k"}])
    message_queue.pull("sub", 10)
    wait(9.9)
    assert texts(message_queue, "letters") == []
    wait(0.2)
    assert texts(message_queue, "letters") == ["a"]
    assert held(message_queue) == 1
    assert texts(message_queue, "sub") == ["b"]


@pytest.mark.parametrize(
    ("options", "kept_s"), [({}, 7 * DAY_S), ({"messageRetentionDuration": 600}, 600)], ids=["default", "configured"]
)
def test_what_is_older_than_the_retention_is_dropped_by_a_pull(
    message_queue: MessageQueue, clock: HandClock, options: Mapping[str, Any], kept_s: int
) -> None:
    message_queue.register_topic("topic")
    message_queue.register_subscription("sub", "topic", options)
    message_queue.publish("topic", [{"data": b"old"}])
    clock.now_ms += 1000
    message_queue.publish("topic", [{"data": b"younger"}])
    clock.now_ms += kept_s * 1000 - 1000
    assert texts(message_queue, "sub") == ["younger"]
    assert held(message_queue) == 1


def test_what_is_too_old_of_a_key_is_not_in_the_way_of_what_is_not(
    message_queue: MessageQueue, clock: HandClock
) -> None:
    message_queue.register_topic("topic")
    message_queue.register_subscription("sub", "topic", message_retention_seconds=600, message_ordering=True)
    message_queue.publish("topic", [{"data": b"old", "ordering_key": "k"} for _ in range(700)])
    clock.now_ms += 600_001
    message_queue.publish("topic", [{"data": b"new", "ordering_key": "k"}])
    assert texts(message_queue, "sub") == ["new"]


@pytest.mark.parametrize("ordering", [True, False])
def test_what_is_older_than_the_retention_is_swept_though_nobody_pulls(
    message_queue: MessageQueue, wait: Wait, stored: Callable[[], Mapping[str, int]], ordering: bool
) -> None:
    message_queue.register_topic("topic")
    message_queue.register_subscription("sub", "topic", message_retention_seconds=600, message_ordering=ordering)
    message_queue.register_subscription("long", "topic")
    message_queue.publish("topic", [{"data": b"first", "ordering_key": "k"}])
    for subscription in ("sub", "long"):
        take_all(message_queue, subscription)
    wait(60)
    before = stored()
    message_queue.publish("topic", [{"data": b"x", "ordering_key": "k" if n % 2 else None} for n in range(1200)])
    message_queue.pull("sub", 10)  # these were shown, and are too old all the same
    wait(599)
    assert held(message_queue) == 1200
    wait(2)
    assert held(message_queue) == 0
    assert held(message_queue, "long") == 1200
    take_all(message_queue, "long")
    assert texts(message_queue, "sub") == []
    assert stored() == before


def test_a_deletion_of_a_topic_that_was_cut_off_is_finished_by_the_sweep(
    message_queue: MessageQueue, wait: Wait, stored: Callable[[], Mapping[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    message_queue.register_topic("topic")
    message_queue.register_subscription("sub", "topic", message_ordering=True)
    message_queue.publish("topic", [{"data": b"a"}, {"data": b"b", "ordering_key": "k"}])

    async def die(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(Register, "_empty", die)
        with pytest.raises(InterruptedError):
            message_queue.unregister_topic("topic")
    message_queue._broker.directory.forget(subscription="sub")  # as another process, which sweeps
    wait(60)
    left = {key.rpartition(":")[2] for key in stored()}
    assert left <= {"state", "subscriptions"}


@pytest.mark.parametrize("step", ["_end_subscription", "_empty"])
def test_a_removal_of_a_subscription_that_was_cut_off_is_finished_by_the_sweep(
    message_queue: MessageQueue,
    wait: Wait,
    stored: Callable[[], Mapping[str, int]],
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    message_queue.register_topic("topic")
    message_queue.register_subscription("sub", "topic", message_ordering=True)
    message_queue.publish("topic", [{"data": b"a"}, {"data": b"b", "ordering_key": "k"}])
    message_queue.pull("sub", 1)

    async def die(*_: object) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(Register, step, die)
        with pytest.raises(InterruptedError):
            message_queue.unregister_subscription("sub")
    wait(60)
    assert {key.rpartition(":")[2] for key in stored()} <= {"state", "topics"}
    message_queue.publish("topic", [{"data": b"nobody wants it"}])
    assert {key.rpartition(":")[2] for key in stored()} <= {"state", "topics"}


def test_the_retention_is_of_pub_sub_by_default_and_has_its_range() -> None:
    assert SubscriptionOptions.read().message_retention_seconds == 7 * DAY_S
    for wrong in (599, 31 * DAY_S + 1):
        with pytest.raises(InvalidArgument, match="message_retention_seconds"):
            SubscriptionOptions.read(message_retention_seconds=wrong)


def test_of_many_subscriptions_some_are_looked_at_in_turn(
    message_queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "MOST_CARRIED", 2)
    message_queue.register_topic("topic")
    policy = {"dead_letter_topic": "dead", "max_delivery_attempts": 1}
    for number in range(5):
        message_queue.register_subscription(f"s{number}", "topic", dead_letter_policy=policy)
    message_queue.register_subscription("plain", "topic")
    message_queue.publish("topic", [{"data": b"x"}])
    for number in range(5):  # they wait for their topic
        message_queue.nack(message_queue.pull(f"s{number}", 1)[0].ack_id)
    message_queue.register_topic("dead")
    message_queue.register_subscription("letters", "dead")
    arrived = []
    for _ in range(4):
        message_queue._run(message_queue._broker.sweeper.carry())
        arrived.append(held(message_queue, "letters"))
    assert arrived == [2, 4, 5, 5]


def test_one_process_sweeps_each_minute_and_another_when_it_ends(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_lease.EACH_MINUTE_S == 60
    monkeypatch.setattr(by_lease, "EACH_MINUTE_S", 0.05)
    monkeypatch.setattr(by_lease, "EACH_SECOND_S", 0.01)
    monkeypatch.setattr(by_lease, "_ASK_EVERY_S", 0.01)
    with redis_server.client() as client, MessageQueue(url=redis_server.url) as first:
        swept: list[str] = []
        until(lambda: bool(client.hget(BrokerKeys.sweeper, "owner")))
        with MessageQueue(url=redis_server.url) as second:
            for name, queue in (("first", first), ("second", second)):
                _note(queue, name, swept, monkeypatch)
            until(lambda: swept.count("first") > 2)
            assert "second" not in swept
            first.close()
            until(lambda: swept.count("second") > 2)


def _note(queue: MessageQueue, name: str, swept: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = queue._broker.sweeper.sweep

    async def noted() -> None:
        swept.append(name)
        await real()

    monkeypatch.setattr(queue._broker.sweeper, "sweep", noted)
