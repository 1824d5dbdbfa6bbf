"""One Spark session for the suite: starting one takes longer than most of what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.session import Spark
from tests.servers.java import quick_java
from tests.servers.local import RedisServer
from tests.spark.driver import Ground


@pytest.fixture(scope="session", autouse=True)
def _quick_java() -> Iterator[None]:
    with quick_java():
        yield


@pytest.fixture(scope="session")
def the_spark() -> Iterator[Spark]:
    spark = Spark(master="local[1]", shards=1)
    try:
        yield spark
    finally:
        spark.close()


@pytest.fixture(scope="session")
def session(the_spark: Spark) -> SparkSession:
    return the_spark.session


@pytest.fixture
def ground(tmp_path: Path, redis_server: RedisServer, the_spark: Spark, database_url: str) -> Iterator[Ground]:
    """On each kind of database in turn."""
    made = Ground(tmp_path, redis_server, the_spark, database_url)
    try:
        yield made
    finally:
        made.store.close()
