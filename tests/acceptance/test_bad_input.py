"""Bad input from every side: each gets one clear error where its user looks, and nothing else stops."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import redis

from fleet.message import MAX_BODY_BYTES, MAX_NAME_CHARACTERS
from fleet.operate.journal import Journal
from fleet.sources.base import Outgoing
from fleet.sources.open import open_publisher
from fleet.state import observe
from fleet.state.connect import connected
from fleet.state.keys import FleetKeys, QueueKeys
from fleet.state.warnings import Warnings
from tests.acceptance.fleet_command import Fleet
from tests.servers.local import RedisServer, running_redis
from tests.stage import POOL, QUEUE, Stage, a_stage
from tests.waiting import until

LONG = 10_000
A_LINE = 300
"""Characters of a log line or an error that people still read."""
PASSWORD = "not-for-any-eye"


@pytest.fixture
def alone(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, {"FLEET_LEASE_TTL_MS": "1500"})


# Messages ------------------------------------------------------------------------------------------


def body(stage: Stage, **changes: Any) -> bytes:
    fields = {"id": "bad", "poolCode": POOL, "messageGroupId": "g", "mediationTarget": stage.endpoint_url}
    return json.dumps({k: v for k, v in {**fields, **changes}.items() if v is not None}).encode()


def bad_messages(stage: Stage) -> list[tuple[str, Outgoing]]:
    """What the error says, and the message. All but one in the very group of good ones."""
    padded = body(stage, comment="x" * (1024 * 1024))
    of_long_group = body(stage, messageGroupId=None)
    return [
        ("body is not a message: JSON is malformed", Outgoing("no-json", b"no json", "g")),
        ("body is not a message: Input data was truncated", Outgoing("empty", b"", "g")),
        ("body is not a message: Expected `object`", Outgoing("a-list", b"[]", "g")),
        ("'utf-8' codec can't decode byte", Outgoing("not-utf-8", b'{"id":"\xff"}', "g")),
        ("missing required field `mediationTarget`", Outgoing("no-target", body(stage, mediationTarget=None), "g")),
        (f"body is {len(padded)} bytes, the limit is {MAX_BODY_BYTES}", Outgoing("1-mb", padded, "g")),
        (f"id has {LONG} characters, the limit is {MAX_NAME_CHARACTERS}",
         Outgoing("long-id", body(stage, id="i" * LONG), "g")),
        (f"messageGroupId has {LONG} characters, the limit is {MAX_NAME_CHARACTERS}",
         Outgoing("long-group", body(stage, messageGroupId="g" * LONG), "g")),
        ("group name is too long or unprintable", Outgoing("long-source-group", of_long_group, "s" * LONG)),
        ("id holds an unprintable character", Outgoing("control-id", body(stage, id="a\r\nFleet-Epoch: 0"), "g")),
        ("messageGroupId holds an unprintable character",
         Outgoing("control-group", body(stage, messageGroupId="g\x1f1\x00"), "g")),
    ]  # fmt: skip


def send_between_good_ones(stage: Stage, bad: list[Outgoing]) -> None:
    """A good message of the same group before and behind each, and one of another group."""
    messages: list[Outgoing] = []
    for number, each in enumerate([*bad, None]):
        for group in ("g", f"other-{number % 3}"):
            name = f"good-{number:02}-{group}"
            messages.append(Outgoing(name, body(stage, id=name, messageGroupId=group), group))
        if each is not None:
            messages.append(each)
    asyncio.run(_publish(stage, messages))
    stage.sent += len(messages) - len(bad)


async def _publish(stage: Stage, messages: list[Outgoing]) -> None:
    publisher, journal = open_publisher(stage.queue_uri), Journal(stage.sent_journal)
    await publisher.open()
    assert not any(await publisher.publish(messages))
    for number, message in enumerate(messages):
        if message.id.startswith("good"):
            journal.sent(message.id, message.group or "", number)
    await publisher.close()
    journal.close()


async def _counted(url: str) -> tuple[int, int, int]:
    async with connected(url) as client:
        (view,) = await observe.queues(client, [QUEUE])
        return view.counts["malformed"], view.counts["received"], await client.llen(QueueKeys(QUEUE).dead)


def _warned(stage: Stage) -> bool:
    async def ask() -> bool:
        async with connected(stage.redis_server.url) as client:
            found = await Warnings(client).list()
            return any(w.category == "MALFORMED_MESSAGE" and QUEUE in w.message for w in found)

    return asyncio.run(ask())


def test_what_can_never_be_delivered_is_kept_and_named_and_stops_nothing(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        stage.start_endpoint(latency_ms=0)
        stage.configure()
        bad = bad_messages(stage)
        send_between_good_ones(stage, [message for _, message in bad])
        coordinator = stage.start("coordinator")
        worker = stage.start("worker")
        stage.wait_drained(30)

        # Delivered: all the good ones, in order. Acked at the source: the rest as well, or it were not drained.
        verdict = stage.verdict()
        assert (verdict.accepted, verdict.lost, verdict.inversions, verdict.duplicates) == (stage.sent, 0, 0, 0)
        assert verdict.requests == stage.sent
        assert stage.leftover_keys() == []

        # Kept, with the reason; of the body no more than people need.
        with stage.client() as client:
            letters = [json.loads(letter) for letter in client.lrange(QueueKeys(QUEUE).dead, 0, -1)]
        assert len(letters) == len(bad)
        for reason, message in bad:
            size = len(message.body)
            letter = next((each for each in letters if reason in each["reason"] and each["bodyBytes"] == size), None)
            assert letter is not None, (message.id, [each["reason"] for each in letters])
            assert letter["queueId"] == QUEUE
            assert message.body.decode("utf-8", "replace").startswith(letter["body"])
            assert len(letter["body"]) <= 16 * 1024

        # Said: one line each, which no message can break or stretch.
        lines = [line for line in coordinator.text().splitlines() if "can never be delivered" in line]
        assert len(lines) == len(bad)
        for letter in letters:
            (line,) = [line for line in lines if letter["brokerMessageId"] in line]
            assert letter["reason"] in line
            assert len(line) <= A_LINE
            assert line.isprintable()
        assert "Traceback" not in coordinator.text() + worker.text()
        assert (coordinator.alive, worker.alive) == (True, True)

        # A warning for those who read no logs, and counted with the coordinator's next heartbeat.
        until(lambda: _warned(stage), 10, stage.describe)
        expected = (len(bad), len(bad) + stage.sent, len(bad))
        until(lambda: asyncio.run(_counted(stage.redis_server.url)) == expected, 10, stage.describe)


def test_a_url_that_can_never_be_called_is_kept_with_the_reason_and_its_group_goes_on(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        stage.start_endpoint(latency_ms=0)
        stage.configure()
        bad = [
            Outgoing(f"uncallable-{i}", body(stage, id=f"uncallable-{i}", mediationTarget=target), "g")
            for i, target in enumerate(("http://", "http://[::1", "https://host:99999/"))
        ]
        send_between_good_ones(stage, bad)
        stage.start("coordinator")
        worker = stage.start("worker")
        stage.wait_drained(30)
        assert stage.verdict().accepted == stage.sent == 8
        with stage.client() as client:
            letters = [json.loads(letter) for letter in client.lrange(QueueKeys(QUEUE).dead, 0, -1)]
        assert sorted(letter["messageId"] for letter in letters) == [message.id for message in bad]
        assert all("not a URL that can be called" in letter["reason"] for letter in letters)
        assert "put aside" in worker.text()


def test_bad_messages_that_fill_whole_batches_let_good_ones_through(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        stage.start_endpoint(latency_ms=0)
        stage.configure()
        flood = [Outgoing(f"bad-{number}", b"{", f"bad-{number % 7}") for number in range(1200)]
        asyncio.run(_publish(stage, flood))
        send_between_good_ones(stage, [])
        coordinator = stage.start("coordinator")
        stage.start("worker")
        stage.wait_drained(30)
        assert stage.verdict().accepted == stage.sent == 2
        # Bounded: Redis keeps no more than it is told to, whatever producers send.
        *_, kept = asyncio.run(_counted(stage.redis_server.url))
        assert 1000 <= kept <= len(flood)
        assert coordinator.alive


# Configuration -------------------------------------------------------------------------------------

BAD_CONFIGURATIONS = [
    pytest.param(
        '{"processingPools":[{"code":"A"},{"code":"B"},{"code":"A"}]}',
        'processingPools[2]: pool "A" is already at processingPools[0]',
        id="duplicate pool",
    ),
    pytest.param(
        '{"processingPools":[{"code":"A","concurrency":-1}]}',
        "processingPools[0].concurrency: must be an integer from 0",
        id="negative concurrency",
    ),
    pytest.param(
        '{"processingPools":[{"code":"A","concurrency":"ten"}]}',
        'processingPools[0].concurrency: must be an integer from 0 to 1000000000, is "ten"',
        id="wrong type",
    ),
    pytest.param('{"processingPools":{"code":"A"}}', "processingPools: must be a list", id="no list"),
    pytest.param('{"processingPools":[{"code":"A"}', "not a JSON document", id="no JSON"),
    pytest.param("[]", "must be an object", id="no object"),
]


@pytest.mark.parametrize(("text", "words"), BAD_CONFIGURATIONS)
def test_a_bad_configuration_is_one_line_that_names_the_place(
    alone: Fleet, redis_server: RedisServer, text: str, words: str
) -> None:
    (alone.directory / "router.json").write_text(text)
    for command in (
        ["config", "check", "router.json"],
        ["up", "--config", "router.json"],
        ["syncer", "--config", "router.json", "--redis", redis_server.url],
    ):
        result = alone.run(*command)
        assert (result.code, result.out) == (1, ""), command
        assert words in result.err, command
        assert "router.json" in result.err
        assert result.err.count("\n") == 1
        assert len(result.err) <= A_LINE


def test_all_that_is_wrong_is_named_at_once(alone: Fleet) -> None:
    (alone.directory / "router.json").write_text(
        '{"processingPools":[{"code":"A","concurrency":-1},{"code":"A","rateLimitPerMinute":"x"}]}'
    )
    result = alone.run("config", "check", "router.json")
    for place in ("[0].concurrency", "[1].rateLimitPerMinute", 'pool "A" is already'):
        assert place in result.err


@pytest.mark.parametrize(("text", "words"), BAD_CONFIGURATIONS[:3])
def test_a_running_fleet_keeps_its_last_good_configuration_and_goes_on_delivering(
    tmp_path: Path, text: str, words: str
) -> None:
    with a_stage(tmp_path) as stage:
        stage.start_endpoint(latency_ms=0)
        stage.configure()
        coordinator, worker = stage.start("coordinator"), stage.start("worker")
        syncer = next(member for member in stage.members if member.role == "syncer")
        with stage.client() as client:
            before = published(client)
            assert all(before)
            (tmp_path / "router.json").write_text(text)
            until(lambda: words in syncer.text(), 15, stage.describe)
            assert published(client) == before
        stage.send_messages(50, 5)
        stage.wait_drained(30)
        assert stage.verdict().accepted == 50
        said = [line for line in syncer.text().splitlines() if "the last good configuration stays" in line]
        assert len(said) == 1, syncer.text()
        assert all(member.alive for member in (syncer, coordinator, worker))


def published(client: redis.Redis) -> list[Any]:
    return client.hmget(FleetKeys.config, "revision", "body")


# A Redis that refuses the password -----------------------------------------------------------------

ROLES = (
    ["syncer", "--config", "router.json"], ["coordinator"], ["worker"], ["worker", "--processes", "2"],
    ["server", "--port", "0"], ["up"], ["status"], ["pools"], ["dead", "list"], ["send", "q", "--target", "http://h/"],
)  # fmt: skip


@pytest.mark.parametrize("role", ROLES, ids=" ".join)
def test_a_refused_password_is_one_line_and_exit_code_1(alone: Fleet, role: list[str]) -> None:
    (alone.directory / "router.json").write_text('{"processingPools":[{"code":"A"}]}')
    with running_redis() as server:
        server.client().config_set("requirepass", "sesame")
        for user in (f":{PASSWORD}@", f"someone:{PASSWORD}@", ""):
            result = alone.run(*role, FLEET_REDIS_URL=f"redis://{user}127.0.0.1:{server.port}/0")
            assert (result.code, result.out) == (1, ""), result.err
            assert "refuses us" in result.err
            assert result.err.count("\n") == 1, result.err
            assert PASSWORD not in result.err
            assert len(result.err) <= A_LINE


def test_a_password_that_is_refused_only_later_is_said_and_nothing_is_lost(tmp_path: Path) -> None:
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=4) as stage:
        stage.start_endpoint(latency_ms=5)
        stage.configure()
        members = [stage.start("coordinator"), stage.start("worker")]
        stage.send_messages(200, 10)
        stage.wait_drained(30)
        with stage.client() as client:
            client.config_set("requirepass", PASSWORD)
            client.client_kill_filter(_type="normal", skipme=True)
            client.client_kill_filter(_type="pubsub", skipme=True)
            for member in members:
                until(lambda member=member: "refuses us" in member.text(), 15, stage.describe)  # type: ignore[misc]
            stage.send_messages(200, 10)
            client.config_set("requirepass", "")
        stage.wait_drained(60)
        assert stage.verdict().accepted == 400
        for member in members:
            assert member.alive
            assert "Traceback" not in member.text()
            assert len(re.findall("refuses us", member.text())) <= 5, member.text()
            assert PASSWORD not in member.text()
