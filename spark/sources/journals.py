"""Journals as a Spark table. The files must be where the executors are: here, or in a folder that all share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark import schemas

_IN_FILE = [field for field in schemas.JOURNAL.fields if field.name != "journal"]


_PATTERN = re.compile(r"[][{}*?\\]")


def _plain(path: Path) -> str:
    """As Hadoop takes it: spaces as they are, and the characters of patterns escaped."""
    return "file://" + _PATTERN.sub(r"\\\g<0>", str(path.absolute()))


def journals(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """Every record with its file. What is not a record is left out: a writer that was killed leaves half a line."""
    if not paths:
        return spark.createDataFrame([], schemas.JOURNAL)
    schema = type(schemas.JOURNAL)(_IN_FILE)
    read = spark.read.schema(schema).json([_plain(path) for path in paths])
    whole = F.col("kind").isin("sent", "start", "end") & F.col("id").isNotNull() & F.col("t").isNotNull()
    return read.withColumn("journal", F.input_file_name()).filter(whole)
