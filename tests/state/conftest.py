"""Every script test runs four times: on fakeredis, on the simulation's Redis, on a real server, on a real Cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import fakeredis
import pytest

from fleet.state.connect import Client, connect

_ASSERTING = ("stage", "every_call", "model", "model_queue", "pool_machine", "queue_machine", "engine_machine")
pytest.register_assert_rewrite(*(f"tests.state.{name}" for name in _ASSERTING))

from tests.simulation.direct import DirectClient  # noqa: E402
from tests.state.stage import Stage  # noqa: E402  (rewritten on import)

KINDS = ("fakeredis", "simulated", "redis", "cluster")


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest) -> str:
    """Where the state is; '' for what is in this process."""
    if request.param in ("fakeredis", "simulated"):
        return ""
    server = request.getfixturevalue("redis_server" if request.param == "redis" else "redis_cluster")
    # `connect` finds out by itself that it speaks to a Cluster.
    return str(server.url).partition("?")[0]


@pytest.fixture
async def client(url: str, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    client: Client
    if not url and request.node.callspec.params["url"] == "simulated":
        client = DirectClient()
    elif not url:
        client = fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer())
    else:
        client = await connect(url)
    yield client
    await client.aclose()


@pytest.fixture
def stage(client: Client, url: str) -> Stage:
    return Stage(client=client, url=url)
