"""A Spark session as the pipeline needs it, opened at its first use: that takes seconds, and often nothing is due."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from spark.sources.store import BATCH_BYTES, StoreSource

QUIET: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Plans are small and many: what AQE learns of one is of no use for the next, and it costs each.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # Of rows with payloads of 1 MiB that many would not fit into memory.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
    "spark.log.level": "ERROR",
}
LOCAL: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""Nobody else has to reach a driver whose executors are threads of it."""
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


class Spark:
    def __init__(self, *, master: str, shards: int, options: Mapping[str, str] | None = None) -> None:
        self._master = master
        self._settings = {
            **QUIET,
            **(LOCAL if master.startswith("local") else {}),
            "spark.sql.shuffle.partitions": str(shards),
            **(options or {}),
        }
        self._session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        if self._session is None:
            self._session = self._open()
        return self._session

    def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            session.stop()

    def _open(self) -> SparkSession:
        _show_executors_our_code()
        on_interrupt = signal.getsignal(signal.SIGINT)
        builder = SparkSession.builder.appName("fleet-feed").master(self._master)
        with tempfile.NamedTemporaryFile("w", prefix="fleet-feed-", suffix=".properties") as logging:
            logging.write(_LOGGING)
            logging.flush()
            given = self._settings.get("spark.driver.extraJavaOptions", "")
            quiet = f"-Dlog4j2.configurationFile=file:{logging.name} {given}".strip()
            for name, value in {**self._settings, "spark.driver.extraJavaOptions": quiet}.items():
                builder = builder.config(name, value)
            session = builder.getOrCreate()
        session.dataSource.register(StoreSource)
        if threading.current_thread() is threading.main_thread():
            # PySpark takes Ctrl-C for itself, and would cancel an epoch in the middle.
            signal.signal(signal.SIGINT, on_interrupt)
        return session


def _show_executors_our_code() -> None:
    """PySpark looks for both in the environment alone, and starts its JVM with it."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    ours = str(Path(__file__).parents[1])
    path = [item for item in os.environ.get("PYTHONPATH", "").split(os.pathsep) if item]
    if ours not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([ours, *path])
