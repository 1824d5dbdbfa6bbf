"""Topics and subscriptions over HTTP, and their metrics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer
from starlette.applications import Starlette

from fleet.broker.core import Broker
from fleet.broker.options import SubscriptionOptions
from fleet.metrics.broker import MOST_LABELS, OTHERS, add_broker, labels
from fleet.metrics.exposition import Exposition
from fleet.server import metrics
from fleet.server.answers import HANDLERS
from fleet.server.app import ROUTES
from fleet.state.totals import Tally, totals
from tests.unit.server.asking import Answer, ask


class Door:
    def __init__(self) -> None:
        self.client = FakeAsyncRedis(decode_responses=True, server=FakeServer())
        self.broker = Broker(self.client)
        self._app = Starlette(routes=ROUTES, exception_handlers=HANDLERS)
        self._app.state.context = SimpleNamespace(client=self.client, broker=self.broker)

    async def publish(self, *messages: Any, topic: str = "orders") -> Answer:
        return await self.post({"messages": messages}, topic)

    async def post(self, body: Any, topic: str = "orders") -> Answer:
        return await ask(self._app, "POST", f"/topics/{topic}/publish", body=json.dumps(body).encode())

    async def get(self, path: str) -> Any:
        answer = await ask(self._app, "GET", path)
        assert answer.status == 200, answer.body
        return answer.document


@pytest.fixture
async def door() -> AsyncIterator[Door]:
    door = Door()
    await door.broker.register_topic("orders")
    await door.broker.register_subscription("billing", "orders", SubscriptionOptions.read(filter="attributes:a"))
    yield door
    await door.client.aclose()


async def test_what_is_posted_is_published_and_its_ids_are_told(door: Door) -> None:
    answer = await door.publish(
        {"data": "text", "attributes": {"a": "1"}, "orderingKey": "k"},
        {"dataBase64": "/w==", "attributes": {"a": "2"}},
        {"data": {"id": "m"}, "attributes": {"a": "3"}},
        {"data": "filtered out"},
    )
    assert (answer.status, answer.document["topic"]) == (200, "orders")
    pulled = await door.broker.pull("billing", 10)
    assert [one.data for one in pulled] == [b"text", b"\xff", b'{"id":"m"}']
    assert [one.id for one in pulled] == answer.document["messageIds"][:3]
    assert (pulled[0].attributes, pulled[0].ordering_key) == ({"a": "1"}, "k")


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([{"data": "x"}, {"data": "x", "attributes": {"goog": "x"}}], "message 1: "),
        ([{"data": "x"}, {"dataBase64": "!"}], "message 1: dataBase64"),
        ([{"dataBase64": 7}], "message 0: dataBase64"),
        ([{"data": "x", "dataBase64": ""}], "exclude"),
        ([{"data": "x", "key": "k"}], "key: unknown field"),
        ([7], "must be an object"),
    ],
)
async def test_one_wrong_message_publishes_none_and_has_the_code(door: Door, messages: list[Any], says: str) -> None:
    answer = await door.publish(*messages)
    assert (answer.status, answer.document["code"]) == (400, 3)
    assert says in answer.document["error"]
    assert (await door.get("/monitoring/subscriptions"))[0]["messages"] == 0


async def test_a_topic_that_is_not_there_and_a_body_that_is_none(door: Door) -> None:
    answer = await door.publish({"data": "x"}, topic="nowhere")
    assert (answer.status, answer.document) == (404, {"error": "Topic not found: nowhere", "code": 5})
    assert (await door.publish({"data": "x"}, topic="1")).document["code"] == 3
    bodies: list[Any] = [[], {"messages": {}}, {"messages": [], "more": 1}]
    for body in bodies:
        assert (await door.post(body)).status == 400


async def test_how_they_stand_is_listed(door: Door) -> None:
    await door.publish({"data": "x", "attributes": {"a": "1"}}, {"data": "y", "attributes": {"a": "1"}})
    await door.broker.pull("billing", 1)
    (topic,) = await door.get("/monitoring/topics")
    assert (topic["name"], topic["subscriptions"], topic["createdAt"][-1]) == ("orders", ["billing"], "Z")
    (found,) = await door.get("/monitoring/subscriptions")
    assert [found[name] for name in ("name", "topic", "detached", "messages", "inFlight", "deadLettersWaiting")] == [
        "billing", "orders", False, 2, 1, 0,
    ]  # fmt: skip
    assert found["options"] == {"filter": "attributes:a"}


# Metrics -------------------------------------------------------------------------------------------


async def test_what_becomes_of_messages_is_counted(door: Door) -> None:
    await door.publish(*[{"data": "x", "attributes": {"a": "1"}}] * 3)
    first, second, _ = await door.broker.pull("billing", 10)
    await door.broker.ack(first.ack_id)
    await door.broker.nack(second.ack_id)
    tally = Tally(door.client, "t", door.broker.counters)
    await tally.tell_all(now_ms=0)
    page = Exposition()
    await metrics._broker(page, door.client, await totals(door.client))
    lines = dict(line.rsplit(" ", 1) for line in page.text().splitlines() if not line.startswith("#"))
    assert lines['fleet_broker_published_total{topic="orders"}'] == "3"
    shown = {
        name.removeprefix("fleet_broker_").partition("{")[0]: value
        for name, value in lines.items() if 'subscription="billing"' in name
    }  # fmt: skip
    assert float(shown.pop("oldest_seconds")) < 60
    assert shown == {
        "pulled_total": "3", "acked_total": "1", "nacked_total": "1", "expired_total": "0", "full_total": "0",
        "dead_lettered_total": "0", "messages": "2", "in_flight": "1", "dead_letters_waiting": "0",
    }  # fmt: skip


def test_labels_are_bounded() -> None:
    names = [f"s{place:04}" for place in range(MOST_LABELS + 5)]
    assert set(labels(names).values()) == {*names[:MOST_LABELS], OTHERS}
    page = Exposition()
    counted = {("topic", name): {"published": 1} for name in names}
    add_broker(page, counted, topics=names, subscriptions=(), standings={})
    assert f'fleet_broker_published_total{{topic="{OTHERS}"}} 5' in page.text()


async def test_what_was_counted_of_the_gone_is_forgotten(door: Door) -> None:
    await door.broker.register_topic("gone")
    await door.broker.publish("gone", [{"data": b"x"}])
    await door.publish({"data": "x"})
    await door.broker.unregister_topic("gone")
    await Tally(door.client, "t", door.broker.counters).tell_all(now_ms=0)
    await metrics.forget_what_the_broker_lost(door.client)
    assert {of for kind, of in await totals(door.client) if kind == "topic"} == {"orders"}
