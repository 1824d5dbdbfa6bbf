"""Fixtures of every suite: real servers, started once a session, as new for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.servers.activemq import ActiveMqServer, running_activemq
from tests.servers.local import (
    RedisCluster,
    RedisServer,
    Sink,
    running_redis,
    running_redis_cluster,
    running_sink,
)
from tests.servers.moto import MotoServer, aws_settings, running_moto
from tests.servers.nats import NatsServer, running_nats
from tests.servers.postgres import PostgresServer, running_postgres
from tests.servers.sqs_door import SqsDoor, running_sqs_door

# What a made-up case takes says how busy the machine is, not whether it holds.
settings.register_profile("busy machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")


@pytest.fixture(scope="session")
def _one_redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
def redis_server(_one_redis: RedisServer) -> RedisServer:
    """A real Redis without keys. A test that stops or kills one starts its own: `running_redis`."""
    _one_redis.reset()
    return _one_redis


@pytest.fixture(scope="session")
def _one_redis_cluster() -> Iterator[RedisCluster]:
    with running_redis_cluster() as cluster:
        yield cluster


@pytest.fixture
def redis_cluster(_one_redis_cluster: RedisCluster) -> RedisCluster:
    """A real three-master cluster without keys."""
    _one_redis_cluster.reset()
    return _one_redis_cluster


@pytest.fixture(scope="session")
def sink() -> Iterator[Sink]:
    """An endpoint that acks everything."""
    with running_sink() as server:
        yield server


@pytest.fixture(scope="session")
def moto_server() -> Iterator[MotoServer]:
    """AWS's SQS as moto knows it. Each test makes queues of its own."""
    with aws_settings(), running_moto() as server:
        yield server


@pytest.fixture(scope="session")
def sqs_door() -> Iterator[SqsDoor]:
    """Our own SQS door, over a Redis of its own. Each test makes queues of its own."""
    with aws_settings(), running_redis() as server, running_sqs_door(server.url) as door:
        yield door


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A real JetStream; each test makes streams of its own. One that stops or kills a server starts its own."""
    with running_nats(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="session")
def activemq_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActiveMqServer]:
    """A real ActiveMQ. Each test takes queues of its own; one that stops or kills a broker starts its own."""
    with running_activemq(tmp_path_factory.mktemp("activemq")) as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A real PostgreSQL. A test that stops or kills one starts its own."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """An empty database of its own."""
    url = postgres_server.new_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty job store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    found: str = request.getfixturevalue("postgres_url")
    return found


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long forms too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    # Left out rather than skipped: the short form of each stands beside it and always runs.
    kept = [item for item in items if item.get_closest_marker("long") is None]
    left_out = [item for item in items if item.get_closest_marker("long") is not None]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
