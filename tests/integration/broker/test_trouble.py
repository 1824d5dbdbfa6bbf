"""Answers that get lost, processes that are killed, and several that change the same at once."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet.broker import publish as publishing
from fleet.broker.core import Broker
from fleet.broker.errors import AlreadyExists, BrokerError, NotFound, Unavailable, Unsure
from fleet.broker.options import SubscriptionOptions
from fleet.broker.queue import MessageQueue
from fleet.broker.waits import LOOK_S
from fleet.errors import StateFull, StateUnavailable
from fleet.state.keys import OWN_QUEUE_CHANNEL, FleetKeys
from fleet.state.topic import Published, Topic
from tests.servers.local import RedisServer
from tests.servers.proxy import proxied
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[3]
ORDERED = SubscriptionOptions.read(message_ordering=True)


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[MessageQueue]:
    with MessageQueue(url=redis_server.url) as queue:
        queue.register_topic("topic")
        yield queue


def texts(queue: MessageQueue, subscription: str) -> list[str]:
    """All that can be pulled, acked."""
    found = []
    while pulled := queue.pull(subscription, 1000):
        for one in pulled:
            found.append(one.data.decode())
            queue.ack(one.ack_id)
    return found


# Lost answers --------------------------------------------------------------------------------------


async def test_a_publish_whose_answer_is_swallowed_is_unsure_and_was_done(redis_server: RedisServer) -> None:
    with proxied(redis_server.port) as line:
        async with Broker.connected(f"redis://127.0.0.1:{line.port}/0") as broker:
            await broker.register_topic("topic")
            await broker.register_subscription("sub", "topic", ORDERED)
            await broker.publish("topic", [{"data": b"before"}])
            line.break_after(0)
            with pytest.raises(Unsure) as lost:
                await broker.publish("topic", [{"data": b"lost"}])
            assert (lost.value.code, line.broke) == (2, True)
            line.mend()
            await broker.publish("topic", [{"data": b"after"}])
            assert [one.data for one in await broker.pull("sub", 10)] == [b"before", b"lost", b"after"]


async def test_a_publish_that_reaches_nobody_is_unavailable_and_was_not_done(redis_server: RedisServer) -> None:
    with proxied(redis_server.port) as line:
        async with Broker.connected(f"redis://127.0.0.1:{line.port}/0") as broker:
            await broker.register_topic("topic")
            await broker.register_subscription("sub", "topic", ORDERED)
            line.close()
            with pytest.raises((Unavailable, Unsure)):  # it may still be written to the line that is cut
                await broker.publish("topic", [{"data": b"never"}])
            with pytest.raises(Unavailable) as away:
                await broker.publish("topic", [{"data": b"never"}])
            assert away.value.code == 14
    async with Broker.connected(redis_server.url) as broker:
        assert await broker.pull("sub", 10) == []


@pytest.mark.parametrize("error", [StateUnavailable("Error 111 connecting to h:1"), StateFull()])
async def test_a_large_publish_that_fails_half_way_says_how_far_it_came(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(publishing, "MOST_COPIES", 4)
    real, calls = Topic.publish, []

    async def publish(*arguments: Any, **more: Any) -> Published:
        calls.append(arguments)
        if len(calls) == 3:
            raise error
        return await real(*arguments, **more)

    async with Broker.connected(redis_server.url) as broker:
        await broker.register_topic("topic")
        for name in ("one", "other"):
            await broker.register_subscription(name, "topic", ORDERED)
        monkeypatch.setattr(Topic, "publish", publish)
        with pytest.raises(Unsure, match="the first 4 of 7 messages are published"):
            await broker.publish("topic", [{"data": str(number).encode()} for number in range(7)])
        for name in ("one", "other"):
            assert [one.data for one in await broker.pull(name, 10)] == [b"0", b"1", b"2", b"3"]


async def test_a_nack_is_done_though_its_dead_letter_cannot_be_brought(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any, **__: Any) -> Published:
        raise StateUnavailable("away")

    async with Broker.connected(redis_server.url) as broker:
        for name in ("topic", "dead"):
            await broker.register_topic(name)
        policy = {"dead_letter_topic": "dead", "max_delivery_attempts": 1}
        await broker.register_subscription("sub", "topic", SubscriptionOptions.read(dead_letter_policy=policy))
        await broker.register_subscription("letters", "dead", ORDERED)
        await broker.publish("topic", [{"data": b"a"}])
        [a] = await broker.pull("sub", 1)
        with monkeypatch.context() as patch:
            patch.setattr(Topic, "publish", away)
            await broker.nack(a.ack_id)
        assert await broker.pull("letters", 1) == []
        await broker.sweeper.carry()
        assert [one.data for one in await broker.pull("letters", 1)] == [b"a"]


# Kills ---------------------------------------------------------------------------------------------

PRELUDE = """
import json, os, signal, sys
from fleet.broker.queue import MessageQueue
from fleet.state.engine import Engine
queue = MessageQueue(url=sys.argv[1])
"""
COURIER = """
letters = queue.pull("sub", 6)
for one in letters[:5]:
    queue.nack(one.ack_id)  # their topic is not there yet: they wait
queue.register_topic("dead")
queue.register_subscription("letters", "dead")
async def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(Engine, sys.argv[2], die)
queue.nack(letters[5].ack_id)
"""
PUBLISHER = """
for number in range(100000):
    batch = [{"data": f"{number}-{i}".encode(), "ordering_key": f"k{i % 3}"} for i in range(50)]
    queue.publish("topic", batch)
    print(number, flush=True)
"""
WAITERS = """
from concurrent.futures import ThreadPoolExecutor
from fleet.broker.waits import Waiter
wait = Waiter.wait
async def say_and_wait(waiter, **how):
    print("waits", flush=True)
    await wait(waiter, **how)
Waiter.wait = say_and_wait
with ThreadPoolExecutor() as threads:
    for pulled in threads.map(lambda _: queue.pull("sub", 2, wait_seconds=60), range(2)):
        print(*(one.data.decode() for one in pulled), flush=True)
"""


@contextmanager
def program(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PRELUDE) + code, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("place", ["outgoing", "leave"], ids=["moved and not brought", "brought and still there"])
def test_of_a_killed_courier_every_dead_letter_arrives_once_and_in_order(
    queue: MessageQueue, redis_server: RedisServer, place: str
) -> None:
    policy = {"dead_letter_topic": "dead", "max_delivery_attempts": 1}
    queue.register_subscription("sub", "topic", dead_letter_policy=policy)
    queue.publish("topic", [{"data": str(number).encode()} for number in range(9)])
    with program(COURIER, redis_server.url, place) as courier:
        assert courier.wait(60) == -signal.SIGKILL
    with redis_server.client() as client:
        assert client.keys("*:o:dead"), "it died too late"
    for one in queue.pull("sub", 10):
        queue.nack(one.ack_id)
    queue._run(queue._broker.sweeper.carry())
    assert texts(queue, "letters") == [str(number) for number in range(9)]
    with redis_server.client() as client:
        assert client.keys("*:o:dead") == []


def test_one_publish_answers_all_who_wait_in_two_processes_at_once(
    queue: MessageQueue, redis_server: RedisServer
) -> None:
    queue.register_subscription("sub", "topic")
    with program(WAITERS, redis_server.url) as waiters, ThreadPoolExecutor(2) as threads:
        assert waiters.stdout is not None
        lines = iter(waiters.stdout.readline, "")
        assert [next(lines), next(lines)] == ["waits\n", "waits\n"]
        with redis_server.client() as client:
            here = threads.submit(queue.pull, "sub", 2, wait_seconds=60)
            # It listens here too, and has found nothing.
            until(lambda: dict(client.pubsub_numsub(OWN_QUEUE_CHANNEL))[OWN_QUEUE_CHANNEL] == 2)
            until(lambda: len(queue._broker._waits._waiters) == 1)
        queue.publish("topic", [{"data": str(number).encode()} for number in range(6)])
        there = threads.submit(lambda: [line.split() for line in lines if line != "waits\n"])
        # Sooner than one would look by itself.
        found = [*there.result(LOOK_S / 2), [one.data.decode() for one in here.result(LOOK_S / 2)]]
    assert [len(one) for one in found] == [2, 2, 2]
    assert sorted(number for one in found for number in one) == [str(number) for number in range(6)]


def test_of_a_killed_publisher_each_call_is_whole_for_everybody_or_not_at_all(
    queue: MessageQueue, redis_server: RedisServer
) -> None:
    for name in ("one", "other"):
        queue.register_subscription(name, "topic")
    told = -1
    with program(PUBLISHER, redis_server.url) as publisher:
        assert publisher.stdout is not None
        for line in publisher.stdout:
            told = int(line)
            if told == 20:
                publisher.kill()
                break
        told = max([told, *map(int, publisher.stdout.read().split())])
    seen = texts(queue, "one")
    assert seen == texts(queue, "other")
    last = int(seen[-1].split("-")[0])
    assert told <= last <= told + 1
    assert seen == [f"{number}-{i}" for number in range(last + 1) for i in range(50)]


# Several at once -----------------------------------------------------------------------------------

REGISTER = """
sys.stdin.readline()
from fleet.broker.errors import BrokerError
said = []
for step in json.loads(sys.argv[2]):
    try:
        getattr(queue, step[0])(*step[1:])
        said.append(0)
    except BrokerError as error:
        said.append(error.code)
print(json.dumps(said))
"""


def all_at_once(url: str, *steps: list[list[Any]]) -> list[list[int]]:
    """What each of several processes was told, which begin together."""
    with ExitStack() as stack:
        running = [stack.enter_context(program(REGISTER, url, json.dumps(each))) for each in steps]
        for one in running:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        return [json.loads(one.communicate(timeout=60)[0]) for one in running]


def test_processes_that_register_the_same_at_once_all_succeed(queue: MessageQueue, redis_server: RedisServer) -> None:
    steps = [["register_topic", "new"], *(["register_subscription", f"s{n}", "new"] for n in range(10))]
    assert all_at_once(redis_server.url, steps, steps, steps) == [[0] * 11] * 3
    assert [one.name for one in queue.get_subscriptions_for_topic("new")] == [f"s{n}" for n in range(10)]
    queue.publish("new", [{"data": b"x"}])
    assert [len(queue.pull(f"s{n}", 10)) for n in range(10)] == [1] * 10


def test_of_processes_that_register_one_name_with_other_options_one_wins(
    queue: MessageQueue, redis_server: RedisServer
) -> None:
    def steps(deadline_s: int) -> list[list[Any]]:
        return [["register_subscription", f"s{n}", "topic", {"ackDeadlineSeconds": deadline_s}] for n in range(20)]

    first, second = all_at_once(redis_server.url, steps(20), steps(30))
    assert sorted({*zip(first, second, strict=True)}) in ([(0, 6)], [(6, 0)], [(0, 6), (6, 0)])
    won = [queue.get_subscription(f"s{n}") for n in range(20)]
    assert [one.options.ack_deadline_seconds for one in won if one] == [
        20 if code == 0 else 30 for code in first
    ]  # fmt: skip


def test_subscriptions_that_come_and_go_at_once_leave_a_list_that_is_right(
    queue: MessageQueue, redis_server: RedisServer
) -> None:
    def steps(mine: str) -> list[list[Any]]:
        made = [["register_subscription", f"{mine}{n}", "topic"] for n in range(10)]
        return [*made, *(["unregister_subscription", f"{mine}{n}"] for n in range(0, 10, 2))]

    assert all_at_once(redis_server.url, steps("a"), steps("b")) == [[0] * 15] * 2
    left = {f"{mine}{n}" for mine in "ab" for n in range(1, 10, 2)}
    assert {one.name for one in queue.get_subscriptions_for_topic("topic")} == left
    assert {one.name for one in queue.get_all_subscriptions()} == left


def test_a_topic_that_is_deleted_under_load_leaves_nothing_and_breaks_nothing(
    queue: MessageQueue, redis_server: RedisServer
) -> None:
    over = threading.Event()
    refused: Counter[str] = Counter()
    done: Counter[int] = Counter()

    def load(number: int, work: Any) -> None:
        with MessageQueue(url=redis_server.url) as mine:
            while not over.is_set():
                try:
                    done[number] += work(mine)
                except BrokerError as error:
                    refused[type(error).__name__] += 1

    def publish(mine: MessageQueue) -> int:
        return len(mine.publish("topic", [{"data": b"x" * 100, "ordering_key": f"k{n}"} for n in range(20)]))

    def pull(mine: MessageQueue) -> int:
        pulled = mine.pull("sub", 10)
        for number, one in enumerate(pulled):
            (mine.ack if number % 2 else mine.nack)(one.ack_id)
        return len(pulled)

    queue.register_subscription("sub", "topic", message_ordering=True)
    with ThreadPoolExecutor(4) as threads:
        loads = [threads.submit(load, *one) for one in enumerate((publish, publish, pull, pull))]
        until_s = time.monotonic() + PATIENCE_S
        rounds = 0
        # On a busy machine a thread may take its time to begin.
        while rounds < 15 or (len(+done) < len(loads) and time.monotonic() < until_s):
            rounds += 1
            queue.publish("topic", [{"data": b"ours", "ordering_key": "ours"}])
            queue.unregister_topic("topic")
            assert queue.pull("sub", 10) == []
            queue.unregister_subscription("sub")
            queue.register_topic("topic")
            queue.register_subscription("sub", "topic", message_ordering=True)
        over.set()
        for one in loads:
            one.result(PATIENCE_S)
    assert len(+done) == len(loads), "nothing was published, or nothing pulled"
    assert set(refused) <= {"TopicNotFound", "SubscriptionNotFound", "InvalidAckId", "FailedPrecondition"}, refused
    queue.unregister_topic("topic")
    queue.unregister_subscription("sub")
    queue._run(queue._broker.sweeper.sweep())
    with redis_server.client() as client:
        left = {key for key in client.keys("*") if not key.startswith((FleetKeys.totals, FleetKeys.tallied))}
    assert left <= {"{t:topic}:state", "{t:topic}:s:sub:state", "{broker}:sweeper"}, left


def test_a_name_that_is_taken_is_told_apart_from_one_that_is_not_there(queue: MessageQueue) -> None:
    queue.register_subscription("sub", "topic")
    with pytest.raises(AlreadyExists):
        queue.register_subscription("sub", "topic", ack_deadline_seconds=20)
    with pytest.raises(NotFound):
        queue.register_subscription("other", "nowhere")
