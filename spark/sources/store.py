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
from spark.sources.queries import QUESTIONS

BATCH_BYTES = 16 * 1024 * 1024
_BATCH = 10_000
_FEW = 16
"""Rows that are read before it is known how large they are: payloads have up to 1 MiB each."""
_WHOLE = -1


class StoreSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "fleet_store"

    def schema(self) -> StructType:
        return QUESTIONS[self.options["question"]][0]

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Reader(
            # Spark shows no option of this name in its plans and logs: it holds a password.
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
                statement = QUESTIONS[self._question][1](**asked)
                rows = connection.execution_options(stream_results=True).execute(statement)
                most = _FEW
                while part := rows.fetchmany(most):
                    columns = zip(*part, strict=True)
                    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
                    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
                    most = max(_FEW, min(_BATCH, BATCH_BYTES * len(part) // max(batch.nbytes, 1)))
                    yield batch
        finally:
            engine.dispose()


def ask(spark: SparkSession, url: str, question: str, *, shards: Sequence[int] = (), **asked: Any) -> DataFrame:
    """The answer as a table. `shards`: one partition, and one query, for each."""
    return (
        spark.read.format(StoreSource.name())
        .options(url=url, question=question, asked=json.dumps(asked), shards=json.dumps(list(shards)))
        .load()
    )
