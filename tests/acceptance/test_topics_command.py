"""`fleet topics` and `fleet subscriptions`, from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.fleet_command import Fleet, Result
from tests.servers.local import RedisServer


class Broker(Fleet):
    def topics(self, *arguments: str) -> Result:
        return self.run("topics", *arguments)

    def subscriptions(self, *arguments: str) -> Result:
        return self.run("subscriptions", *arguments)


@pytest.fixture
def fleet(tmp_path: Path, redis_server: RedisServer) -> Broker:
    return Broker(tmp_path, {"FLEET_REDIS_URL": redis_server.url})


@pytest.fixture
def subscribed(fleet: Broker) -> Broker:
    assert fleet.topics("add", "orders").code == 0
    assert fleet.subscriptions("add", "billing", "orders").code == 0
    return fleet


def error_of(result: Result) -> tuple[int, str]:
    assert result.out == "", result.out
    assert len(result.err.splitlines()) == 1, result.err
    return result.code, result.err


def test_topics_are_made_shown_and_removed(fleet: Broker) -> None:
    assert fleet.topics("list").out.startswith("There are no topics")
    assert fleet.topics("add", "orders").out == "Topic orders is there.\n"
    assert fleet.topics("add", "orders", "--json").document == {"name": "orders", "created": False}
    (topic,) = fleet.topics("list", "--json").document
    assert (topic["name"], topic["subscriptions"]) == ("orders", [])
    assert "Nobody subscribes" in fleet.topics("show", "orders").out
    assert fleet.topics("remove", "orders").code == 0
    assert error_of(fleet.topics("show", "orders")) == (1, "fleet: Topic not found: orders\n")


def test_subscriptions_are_made_with_their_options_and_shown(fleet: Broker) -> None:
    fleet.topics("add", "orders")
    options = ["--ack-deadline-seconds", "60", "--message-ordering", "--minimum-backoff", "1", "--maximum-backoff", "9"]
    options += ["--dead-letter-topic", "dead", "--max-delivery-attempts", "3", "--max-messages", "7"]
    options += ["--filter", "attributes:kind", "--message-retention-seconds", "600"]
    added = fleet.subscriptions("add", "billing", "orders", *options)
    assert added.out == "billing subscribes to orders.\n"
    assert added.err == "note: there is no topic dead yet; until then what fails for good stays here\n"
    assert fleet.subscriptions("add", "billing", "orders", *options, "--json").document["created"] is False
    code, error = error_of(fleet.subscriptions("add", "billing", "orders"))
    assert (code, "other options" in error) == (1, True)
    shown = fleet.subscriptions("show", "billing", "--json").document
    assert shown["options"] == {
        "ackDeadlineSeconds": 60, "messageOrdering": True, "filter": "attributes:kind", "messageRetentionSeconds": 600,
        "retryPolicy": {"minimumBackoff": 1, "maximumBackoff": 9}, "flowControl": {"maxMessages": 7},
        "deadLetterPolicy": {"deadLetterTopic": "dead", "maxDeliveryAttempts": 3},
    }  # fmt: skip
    people = fleet.subscriptions("show", "billing").out.splitlines()
    assert people[5] == "Oldest        -"
    assert people[7:10] == [
        "ackDeadlineSeconds: 60",
        "deadLetterPolicy: deadLetterTopic dead, maxDeliveryAttempts 3",
        "filter: attributes:kind",
    ]
    assert "messageOrdering: yes" in people
    (listed,) = fleet.subscriptions("list", "--json").document
    assert listed == shown
    assert "attributes:kind" in fleet.topics("show", "orders").out


def test_what_is_published_is_pulled_and_gone_once_it_is_acked(subscribed: Broker) -> None:
    sent = subscribed.topics("publish", "orders", "--body", "one", "--attribute", "kind=a=b", "--key", "k", "--json")
    (id_,) = sent.document["messageIds"]
    (pulled,) = subscribed.subscriptions("pull", "billing", "--json").document
    facts = [pulled[name] for name in ("id", "data", "attributes", "orderingKey", "deliveryAttempt")]
    assert facts == [id_, "one", {"kind": "a=b"}, "k", 1]
    assert subscribed.subscriptions("pull", "billing").out == "No message is there to be pulled.\n"
    state = subscribed.subscriptions("show", "billing", "--json").document
    assert (state["messages"], state["inFlight"]) == (1, 1)
    subscribed.topics("publish", "orders", "--body", "two")
    table = subscribed.subscriptions("pull", "billing", "--max", "10", "--ack").out
    assert "two" in table and "one" not in table
    assert subscribed.subscriptions("show", "billing", "--json").document["messages"] == 1


def test_a_file_is_published_line_by_line_and_what_is_refused_is_named(subscribed: Broker) -> None:
    lines = [
        {"data": "text", "attributes": {"n": "1"}},
        {"data": {"id": "m", "mediationTarget": "http://127.0.0.1:1/"}, "orderingKey": "k"},
        {"dataBase64": "/w=="},
        {"data": "", "attributes": {"goog": "x"}},
        {"dat": "x"},
        {"data": "x", "attributes": [1]},
    ]
    text = "\n".join([*map(json.dumps, lines), "{no json", ""])
    done = subscribed.run("topics", "publish", "orders", "--file", "-", input_text=text)
    assert (done.code, done.out) == (1, "3 published, 4 refused\n")
    assert [line.partition(":")[2].partition(":")[0] for line in done.err.splitlines()] == [
        " line 4", " line 5", " line 6", " line 7",
    ]  # fmt: skip
    pulled = subscribed.subscriptions("pull", "billing", "--max", "10", "--json").document
    assert [(one.get("data"), one.get("dataBase64"), one["orderingKey"]) for one in pulled] == [
        ("text", None, None), ('{"id":"m","mediationTarget":"http://127.0.0.1:1/"}', None, "k"), (None, "/w==", None),
    ]  # fmt: skip


def test_removing_what_holds_messages_asks_first(subscribed: Broker) -> None:
    subscribed.topics("publish", "orders", "--body", "one")
    for family, name in (("subscriptions", "billing"), ("topics", "orders")):
        code, error = error_of(subscribed.run(family, "remove", name))
        assert (code, "1 message" in error, "--yes" in error) == (2, True, True)
    assert subscribed.topics("remove", "orders", "--yes").out.startswith("Topic orders is gone, and 1 message")
    shown = subscribed.subscriptions("show", "billing", "--json").document
    assert (shown["detached"], shown["messages"], shown["topic"]) == (True, 0, "orders")
    assert "deleted" in subscribed.subscriptions("list").out
    assert subscribed.subscriptions("remove", "billing").code == 0
    assert subscribed.subscriptions("list", "--json").document == []


def test_seek_throws_away_what_was_published_before(subscribed: Broker) -> None:
    subscribed.topics("publish", "orders", "--body", "one")
    assert subscribed.subscriptions("seek", "billing", "2020-01-01").out == "0 messages are gone.\n"
    assert subscribed.subscriptions("seek", "billing", "2040-01-01", "--json").document == {
        "name": "billing", "gone": 1,
    }  # fmt: skip
    assert subscribed.subscriptions("seek", "billing", "now").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ("topics add 1st", 2, "1st"),
        ("topics publish orders", 2, "--body or --file"),
        ("topics publish orders --body x --attribute kind", 2, "KEY=VALUE"),
        ("topics publish orders --body x --attribute goog=x", 2, "goog"),
        ("topics publish nowhere --body x", 1, "Topic not found: nowhere"),
        ("topics remove nowhere", 1, "Topic not found: nowhere"),
        ("subscriptions add s nowhere", 1, "Topic not found: nowhere"),
        ("subscriptions add s orders --ack-deadline-seconds 9", 2, "ack_deadline_seconds"),
        ("subscriptions add s orders --filter (", 2, "filter"),
        ("subscriptions pull nobody", 1, "Subscription not found: nobody"),
        ("subscriptions pull billing --max 0", 2, "--max"),
        ("subscriptions show nobody", 1, "Subscription not found: nobody"),
        ("subscriptions remove nobody", 1, "Subscription not found: nobody"),
        (
            "subscriptions seek billing yesterday",
            2,
            "TIME must be `now`, or a date or time in ISO 8601, is 'yesterday'",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(subscribed: Broker, arguments: str, code: int, says: str) -> None:
    found, error = error_of(subscribed.run(*arguments.split()))
    assert (found, says in error) == (code, True), error


def test_a_subscription_is_not_sent_to_and_names_its_topic(subscribed: Broker) -> None:
    message = ("--target", "http://127.0.0.1:1/")
    code, error = error_of(subscribed.run("send", "fleet://subscription/billing", *message))
    assert (code, "publish to its topic orders" in error, "fleet topics publish orders" in error) == (1, True, True)
    code, error = error_of(subscribed.run("send", "fleet://subscription/nobody", *message))
    assert (code, "there is no subscription nobody" in error) == (1, True)
    code, error = error_of(subscribed.run("send", "fleet://topic/nowhere", *message))
    assert (code, "fleet topics add nowhere" in error) == (1, True)
    assert subscribed.run("send", "fleet://topic/orders", *message, "--group", "g").out == "1 accepted\n"
    (pulled,) = subscribed.subscriptions("pull", "billing", "--json").document
    assert (json.loads(pulled["data"])["messageGroupId"], pulled["orderingKey"]) == ("g", "g")


def test_a_wrong_subscription_in_a_configuration_is_found(fleet: Broker) -> None:
    for uri, says in (
        ("fleet://subscription/audit", ""),
        ("fleet://subscription/1", "does not begin with a letter"),
        ("fleet://topic/orders", "read a subscription to it"),
    ):
        (fleet.directory / "router.json").write_text(json.dumps({"queues": [{"queueUri": uri}]}))
        checked = fleet.run("config", "check", "router.json").out
        assert (f"warn: queue {uri}" in checked, says in checked) == (bool(says), True), checked
