"""Into which queue a producer's messages go, and what is answered where that is not clear."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer
from starlette.applications import Starlette
from starlette.routing import Route

from fleet.config.router import canonical, parse_router_config
from fleet.server import produce
from fleet.server.answers import HANDLERS
from fleet.server.publishers import Publishers
from fleet.sources.base import Never, Outgoing, Unsent, Unsure
from fleet.sources.open import open_source
from fleet.state.registry import Registry
from tests.unit.server.asking import Answer, ask

MESSAGE = b'{"id":"m","mediationTarget":"http://127.0.0.1:1/"}'


LOST = Unsure("it may not have been accepted: gone")
BEHIND = Unsent("not sent: gone")


class Halfway(Publishers):
    """Of a queue that says this of what is put into it, and takes the rest."""

    def __init__(self, *answers: str | None) -> None:
        super().__init__()
        self._answers = answers
        self.ids: list[str] = []

    async def publish(self, _uri: str, messages: Sequence[Outgoing]) -> list[str | None]:
        self.ids += [message.id for message in messages]
        return [*self._answers, *[None] * (len(messages) - len(self._answers))][: len(messages)]


class Door:
    """The addresses for producers, with the queues of a test behind them."""

    def __init__(self, folder: Path, publishers: Publishers | None = None) -> None:
        self._folder = folder
        self._client = FakeAsyncRedis(decode_responses=True, server=FakeServer())
        self._publishers = publishers or Publishers()

    async def configure(self, *names: str) -> None:
        queues = [{"queueName": n, "queueUri": f"sqlite:///{self._folder}/q.db?queue={n}"} for n in names]
        body = canonical(parse_router_config(json.dumps({"queues": queues}).encode()))
        await Registry(self._client).publish_config(body)

    async def post(self, path: str, body: bytes, query: str = "") -> Answer:
        context: Any = SimpleNamespace(client=self._client, publishers=self._publishers)
        routes = [
            Route("/messages", produce.post_messages, methods=["POST"]),
            Route("/api/seed/messages", produce.post_seed, methods=["POST"]),
        ]
        app = Starlette(routes=routes, exception_handlers=HANDLERS)
        app.state.context = context
        return await ask(app, "POST", path, body=body, query=query)

    async def close(self) -> None:
        await self._publishers.close()
        await self._client.aclose()


@pytest.mark.parametrize(("path", "body"), [("/messages", MESSAGE), ("/api/seed/messages", b"{}")])
async def test_with_several_queues_and_none_named_the_request_is_wrong_and_says_what_to_name(
    tmp_path: Path, path: str, body: bytes
) -> None:
    door = Door(tmp_path)
    await door.configure("a", "b")
    unclear = await door.post(path, body)
    assert (unclear.status, unclear.document) == (
        400,
        {"error": "queue: several queues are configured, name one of them: a, b"},
    )
    assert (await door.post(path, body, "queue=b")).document["queue"] == "b"
    unknown = await door.post(path, body, "queue=c")
    assert (unknown.status, unknown.document["error"]) == (404, "no queue c is configured; there are: a, b")
    await door.close()


async def test_without_a_name_the_queue_called_default_or_the_only_one_is_meant(tmp_path: Path) -> None:
    door = Door(tmp_path)
    for names, meant in ((("a",), "a"), (("a", "default"), "default")):
        await door.configure(*names)
        answer = await door.post("/messages", MESSAGE)
        assert (answer.status, answer.document["queue"]) == (200, meant)
    await door.close()


async def test_where_no_queue_is_configured_there_is_none_of_any_name(tmp_path: Path) -> None:
    door = Door(tmp_path)
    answer = await door.post("/messages", MESSAGE)
    assert (answer.status, answer.document) == (404, {"error": "no queue is configured"})
    await door.close()


async def test_what_may_have_been_accepted_is_told_apart_with_the_id_to_send_it_again_under(tmp_path: Path) -> None:
    halfway = Halfway(None, LOST, BEHIND)
    door = Door(tmp_path, halfway)
    await door.configure("a")
    posted = [{"mediationTarget": "http://127.0.0.1:1/"}] * 3 + [{"id": "x"}]
    answer = await door.post("/messages", json.dumps(posted).encode())
    document = answer.document
    results = document.pop("results")
    assert (answer.status, document) == (207, {"queue": "a", "accepted": 1, "refused": 2, "unknown": 1})
    assert results[:3] == [
        {"id": halfway.ids[0], "accepted": True},
        {"id": halfway.ids[1], "accepted": False, "unknown": True, "error": LOST},
        {"id": halfway.ids[2], "accepted": False, "error": BEHIND},
    ]
    assert "unknown" not in results[3]
    await door.close()


async def test_what_is_posted_again_under_its_id_is_accepted_and_comes_once(tmp_path: Path) -> None:
    door = Door(tmp_path)
    await door.configure("a")
    for _ in range(2):
        assert (await door.post("/messages", MESSAGE)).document["accepted"] == 1
    source = open_source("a", f"sqlite:///{tmp_path}/q.db?queue=a", 1000)
    await source.open()
    assert (await source.depth()).waiting == 1
    await source.close()
    await door.close()


async def test_a_request_of_which_nothing_is_known_is_not_told_that_it_was_wrong(tmp_path: Path) -> None:
    for answers, status, words in (
        ((LOST, BEHIND), 503, "no message is known to be accepted: it may not have been accepted: gone"),
        ((Never("too large"), BEHIND), 400, "no message was accepted: too large"),
    ):
        door = Door(tmp_path, Halfway(*answers))
        await door.configure("a")
        answer = await door.post("/messages", b"[" + MESSAGE + b"," + MESSAGE + b"]")
        assert (answer.status, answer.document["error"]) == (status, words)
        await door.close()


async def test_made_up_messages_that_may_have_been_accepted_are_counted_as_unknown(tmp_path: Path) -> None:
    door = Door(tmp_path, Halfway(None, LOST, LOST, BEHIND))
    await door.configure("a")
    answer = await door.post("/api/seed/messages", b'{"count": 5}')
    assert (answer.status, answer.document) == (
        207, {"queue": "a", "accepted": 2, "refused": 1, "unknown": 2, "error": LOST},
    )  # fmt: skip
    await door.close()
