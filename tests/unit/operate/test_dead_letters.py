"""Dead letters: what is shown of them, what they become again, and what is left of them when sending fails."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fakeredis
import pytest

from fleet.config.router import QueueConfig, RouterConfig
from fleet.errors import SourceUnavailable
from fleet.letter import skipped
from fleet.message import DEFAULT_GROUP
from fleet.operate import dead_letters as dead
from fleet.operate.dead_letters import Letter, LettersWanted, letters, replay
from fleet.sources.base import Never, Outgoing, Unsent, Unsure
from fleet.sources.open import open_source
from fleet.state.connect import Client
from fleet.state.entry import Entry
from fleet.state.keys import QueueKeys


def entry(policy: str = "", group: str = "g", lane: str = "g") -> Entry:
    return Entry("q", "b1", "1", "b", lane, group, 0, "m1", "https://u:p@h/?token=x&a=1", "sesame", True, False, policy)


def letter(number: int, **content: Any) -> str:
    whole = {
        "kind": "parked",
        "messageId": f"m{number}",
        "brokerMessageId": f"b{number}",
        "poolCode": "P",
        "messageGroupId": "g",
        "mediationTarget": "http://h/",
        "authToken": "sesame",
        "reason": "no",
        **content,
    }
    return json.dumps(whole)


@pytest.fixture
def client() -> Client:
    return fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer())


@pytest.fixture
def config(tmp_path: Path) -> RouterConfig:
    return RouterConfig(queues=(QueueConfig(name="q", uri=f"sqlite:///{tmp_path}/q.db?queue=q"),))


async def found(client: Client) -> list[Letter]:
    return [one async for one in letters(client, ["q"], LettersWanted())]


def test_neither_token_nor_password_is_shown() -> None:
    raw = skipped(entry(), pool="P")
    shown = json.dumps(Letter("q", raw, json.loads(raw)).shown())
    assert "sesame" not in shown
    assert "u:p" not in shown
    assert "token=x" not in shown
    assert '"authToken": "kept"' in shown


@pytest.mark.parametrize(
    "body",
    [
        '{"authToken":"sesame"}',
        '{"AuthToken" : "sesame\\" and more sesame", "id": 1}',
        '{"id":"x","authToken":"sesame cut off he',
        '{"authToken":sesame}',
    ],
)
def test_a_token_in_a_malformed_body_is_not_shown_either(body: str) -> None:
    shown = Letter("q", "", {"body": body}).shown()
    assert "sesame" not in shown["body"]
    assert "kept" in shown["body"]


@pytest.mark.parametrize(
    ("policy", "mode"), [("", None), ("return", "IMMEDIATE"), ("skip", "NEXT_ON_ERROR"), ("hold", "BLOCK_ON_ERROR")]
)
def test_a_skipped_message_becomes_what_it_was(policy: str, mode: str | None) -> None:
    raw = skipped(entry(policy), pool="P")
    message = Letter("q", raw, json.loads(raw)).message()
    assert message is not None
    assert (message.id, message.pool_code, message.auth_token, message.message_group_id, message.dispatch_mode) == (
        "m1",
        "P",
        "sesame",
        "g",
        mode,
    )


def test_a_message_without_a_group_has_none_again() -> None:
    raw = skipped(entry(group=DEFAULT_GROUP, lane=DEFAULT_GROUP), pool="P")
    message = Letter("q", raw, json.loads(raw)).message()
    assert message is not None
    assert message.message_group_id is None


async def test_letters_are_sent_oldest_first_and_twice_the_same_is_sent_once(
    client: Client, config: RouterConfig
) -> None:
    await client.lpush(QueueKeys("q").dead, letter(1), letter(2), letter(2), letter(3))
    done = await replay(client, config, await found(client))
    assert (done.sent, done.left) == (3, [])
    assert await found(client) == []
    source = open_source("q", config.queues[0].uri, 1000)
    await source.open()
    bodies = [json.loads(one.body) for one in await source.poll(10, 0)]
    await source.close()
    assert [body["id"] for body in bodies] == ["m1", "m2", "m3"]
    assert {body["authToken"] for body in bodies} == {"sesame"}


@pytest.mark.parametrize(
    ("second", "waiting"),
    [(letter(1, t=1), 1), (letter(1, t=2), 2), (letter(1, t=1, brokerMessageId="b2"), 2)],
    ids=["replayed-again", "died-again", "died-again-at-once"],
)
async def test_a_replay_that_is_repeated_adds_nothing_and_a_message_that_died_again_is_sent_again(
    client: Client, config: RouterConfig, second: str, waiting: int
) -> None:
    for raw in (letter(1, t=1), second):
        # As after a crash between the queue's yes and the letter's end.
        await client.lpush(QueueKeys("q").dead, raw)
        assert (await replay(client, config, await found(client))).sent == 1
        assert await found(client) == []
    source = open_source("q", config.queues[0].uri, 1000)
    await source.open()
    assert (await source.depth()).waiting == waiting
    await source.close()


class Broken:
    """A queue that accepts `good` messages, then refuses or is away."""

    def __init__(self, good: int, refusal: str) -> None:
        self.good, self.refusal = good, refusal

    async def open(self) -> None:
        pass

    async def publish(self, messages: Sequence[Outgoing]) -> list[str | None]:
        if not self.refusal:
            raise SourceUnavailable("it is away")
        return [None if place < self.good else self.refusal for place in range(len(messages))]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("refusal", "sent", "words"),
    [
        ("", 0, "queue q: it is away"),
        ("too large", 2, "queue q refuses m3: too large"),
        (Never("too large"), 2, "queue q refuses m3: too large"),
        (Unsent("not sent: it is away"), 2, "queue q: m3: not sent: it is away"),
        (
            Unsure("it may not have been accepted: it is away"),
            2,
            "queue q: m3: it may not have been accepted: it is away",
        ),
    ],
)
async def test_a_letter_that_its_queue_did_not_accept_stays(
    client: Client, config: RouterConfig, monkeypatch: pytest.MonkeyPatch, refusal: str, sent: int, words: str
) -> None:
    monkeypatch.setattr(dead, "open_returner", lambda _uri: Broken(2, refusal))
    await client.lpush(QueueKeys("q").dead, letter(1), letter(2), letter(3))
    done = await replay(client, config, await found(client))
    assert done.sent == sent
    assert done.left == [words]
    assert [one.content["messageId"] for one in await found(client)] == ["m3", "m2", "m1"][: 3 - sent]


async def test_what_is_malformed_or_of_a_queue_that_is_not_configured_stays_and_is_named(client: Client) -> None:
    await client.lpush(QueueKeys("q").dead, letter(1), letter(2, kind="malformed"), "no letter", '{"kind":"parked"}')
    done = await replay(client, RouterConfig(), await found(client))
    assert done.sent == 0
    assert ["malformed" in why or "not configured" in why for why in done.left] == [True, True]
    assert len(await found(client)) == 4
