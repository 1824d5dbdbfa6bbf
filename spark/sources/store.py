"""The job store as a Spark data source: a question by its name, answered in Arrow batches, one partition a shard."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from fleet.jobs.database import open_engine, parse_url, reading_in_parts
from spark.sources.copy import select_rows
from spark.sources.queries import QUESTIONS

_WHOLE = -1


class StoreSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "fleet_store"

    def schema(self) -> StructType:
        return QUESTIONS[self.options["question"]][0]

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(
            # It holds a password. Spark hides an option of this name in its plans and logs.
            url=self.options["url"],
            question=self.options["question"],
            asked=json.loads(self.options["asked"]),
            shards=json.loads(self.options["shards"]),
            schema=schema,
        )


class _Reader(DataSourceReader):
    def __init__(
        self, *, url: str, question: str, asked: dict[str, Any], shards: list[int], schema: StructType
    ) -> None:
        self._url = url
        self._question = question
        self._asked = asked
        self._shards = shards
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(shard) for shard in self._shards or [_WHOLE]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        asked = self._asked if partition.value == _WHOLE else {**self._asked, "shard": partition.value}
        engine = open_engine(parse_url(self._url), connections=1)
        schema = to_arrow_schema(self._schema)
        try:
            with reading_in_parts(engine) as connection:
                yield from select_rows(connection, QUESTIONS[self._question][1](**asked), schema)
        finally:
            engine.dispose()


def ask(spark: SparkSession, url: str, question: str, *, shards: Sequence[int] = (), **asked: Any) -> DataFrame:
    """The answer as a table. `shards`: one partition, and one query, for each."""
    return (
        spark.read.format(StoreSource.name())
        .options(url=url, question=question, asked=json.dumps(asked), shards=json.dumps(list(shards)))
        .load()
    )
