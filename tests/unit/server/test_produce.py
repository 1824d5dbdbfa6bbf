"""Into which queue a producer's messages go, and what is answered where that is not clear."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer
from starlette.applications import Starlette
from starlette.routing import Route

from fleet.config import canonical, parse_router_config
from fleet.server import produce
from fleet.server.answers import HANDLERS
from fleet.server.publishers import Publishers
from fleet.state.registry import Registry
from tests.unit.server.asking import Answer, ask

MESSAGE = b'{"id":"m","mediationTarget":"http://127.0.0.1:1/"}'


class Door:
    """The addresses for producers, with the queues of a test behind them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._client = FakeAsyncRedis(decode_responses=True, server=FakeServer())
        self._publishers = Publishers()

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
