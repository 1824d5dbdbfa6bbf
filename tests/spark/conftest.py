"""One Spark session for the suite: starting one takes longer than most of what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.session import Spark

QUICK_JVM = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


@pytest.fixture(scope="session")
def the_spark() -> Iterator[Spark]:
    spark = Spark(master="local[1]", shards=1, options=QUICK_JVM)
    try:
        yield spark
    finally:
        spark.close()


@pytest.fixture(scope="session")
def session(the_spark: Spark) -> SparkSession:
    return the_spark.session
