"""A Spark session as the pipeline needs it, opened at first use: opening takes seconds, and often nothing is due."""

from __future__ import annotations

import logging
import signal
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fleet.errors import FleetError
from spark.cluster import Shipping, is_local, look_for, show_python_our_code, submitted
from spark.gateway import start_java
from spark.sources.copy import BATCH_BYTES
from spark.sources.store import StoreSource
from spark.words import in_a_line

log = logging.getLogger("fleet")

FITTED: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # Plans are small and many: what AQE learns from one does not help the next, and it slows each.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # That many rows with payloads of 1 MiB each would not fit into memory.
    "spark.sql.execution.arrow.maxBytesPerBatch": str(BATCH_BYTES),
}
QUIET: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""For our own commands. A submitted application has a page and a log like everything else on its cluster."""
LOCAL: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
"""The executors of a local driver are its own threads: nothing else has to reach it."""
_LOGGING = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# Who waits for executors that do not come has to know it.
logger.scheduler.name = org.apache.spark.scheduler.TaskSchedulerImpl
logger.scheduler.level = warn
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""


class Spark:
    """`pack_into`: the folder for the files that executors on other machines need. spark-submit brings its own."""

    def __init__(
        self,
        *,
        master: str,
        shards: int,
        options: Mapping[str, str] | None = None,
        name: str = "fleet-feed",
        pack_into: Path | None = None,
    ) -> None:
        self._name = name
        self.master = str(SparkConf().get("spark.master")) if submitted() else master
        self._settings = {
            **FITTED,
            **({} if submitted() else QUIET),
            **(LOCAL if is_local(self.master) else {}),
            "spark.sql.shuffle.partitions": str(shards),
            **(options or {}),
        }
        self._pack_into = pack_into
        self._session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        if self._session is None:
            self._session = self._open()
        return self._session

    def progress(self) -> object:
        """A value that changes as long as Spark gets on: which stages run, and how many of their tasks are done."""
        if self._session is None:
            return None
        tracker = self._session.sparkContext.statusTracker()
        stages = ((stage, tracker.getStageInfo(stage)) for stage in tracker.getActiveStageIds())
        return [(stage, info and info.numCompletedTasks) for stage, info in stages]

    def cancel(self) -> None:
        """End what runs: nobody waits for it any more."""
        if self._session is not None:
            self._session.sparkContext.cancelAllJobs()

    def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            with suppress(Py4JError, ConnectionError):
                session.stop()

    def _open(self) -> SparkSession:
        on_interrupt = signal.getsignal(signal.SIGINT)
        try:
            session = self._open_submitted() if submitted() else self._open_own()
        except (Py4JError, PySparkException) as error:
            raise FleetError(f"no Spark at {self.master}: {in_a_line(str(error))}") from error
        session.dataSource.register(StoreSource)
        _say_once(session)
        if threading.current_thread() is threading.main_thread():
            # PySpark takes Ctrl-C for itself, and would cancel an epoch in the middle.
            signal.signal(signal.SIGINT, on_interrupt)
        return session

    def _open_submitted(self) -> SparkSession:
        given = SparkConf()
        builder = SparkSession.builder
        for name, value in {"spark.app.name": self._name, **self._settings}.items():
            # What spark-submit was told counts, except for the time zone: our hours are UTC everywhere.
            if name == "spark.sql.session.timeZone" or not given.contains(name):
                builder = builder.config(name, value)
        return builder.getOrCreate()

    def _open_own(self) -> SparkSession:
        look_for(self.master)
        shipping = None
        settings = dict(self._settings)
        if self._pack_into is not None and not is_local(self.master):
            shipping = Shipping(directory=self._pack_into)
            settings = {**shipping.prepare(), **settings}
        show_python_our_code()
        conf = SparkConf().setAppName(self._name).setMaster(self.master)
        with tempfile.NamedTemporaryFile("w", prefix="fleet-feed-", suffix=".properties") as log4j:
            log4j.write(_LOGGING)
            log4j.flush()
            given = settings.get("spark.driver.extraJavaOptions", "")
            quiet = f"-Dlog4j2.configurationFile=file:{log4j.name} {given}".strip()
            conf.setAll(list({**settings, "spark.driver.extraJavaOptions": quiet}.items()))
            start_java(conf)
            session = SparkSession.builder.config(conf=conf).getOrCreate()
        if shipping is not None:
            shipping.send(session.sparkContext)
        return session


def _say_once(session: SparkSession) -> None:
    """When Java is gone, each connection to it reports that in twenty lines. Ours is one: `SparkGone`."""
    # py4j logs it to the root logger, with a traceback.
    logging.getLogger().addFilter(_is_news)

    def handle_error(_request: object, address: object) -> None:
        log.debug("Java has dropped its line %s", address, exc_info=True)

    counters: Any = session.sparkContext._accumulatorServer
    counters.handle_error = handle_error


def _is_news(record: logging.LogRecord) -> bool:
    return record.msg != "Exception while sending command."
