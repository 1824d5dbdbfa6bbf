"""Java for a session of our own, without the lines that it prints at every start and that nobody needs."""

from __future__ import annotations

import os
import sys
import threading

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

_SAID_ALWAYS = (
    "NOTE: Picked up JDK_JAVA_OPTIONS",
    "WARNING: Using incubator modules",
    "Setting default log level to",
    "To adjust logging level use",
    "Setting Spark log level to",
)


def start_java(conf: SparkConf) -> None:
    """Start Java for the next session of this process, unless it has one already."""
    if SparkContext._gateway is not None:
        return
    theirs, ours = os.pipe()
    # A daemon: it ends with Java, which ends with us.
    threading.Thread(target=_tell, args=(theirs,), name="stderr-of-java", daemon=True).start()
    try:
        SparkContext._gateway = launch_gateway(conf, {"stderr": ours})  # type: ignore[no-untyped-call]
    finally:
        os.close(ours)
    SparkContext._jvm = SparkContext._gateway.jvm


def _tell(what: int) -> None:
    with open(what, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(_SAID_ALWAYS):
                sys.stderr.write(line)
                sys.stderr.flush()
