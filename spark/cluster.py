"""Where Spark runs: on this machine, on a cluster that we ask for, or on one that spark-submit has asked for us."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fleet.errors import FleetError
from spark import pack

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOOK_S = 5.0
_PR_SET_PDEATHSIG = 1
_HERE = Path(__file__).parents[1]


def submitted() -> bool:
    """Whether spark-submit started us: then its master, its settings and what it ships count."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def end_with_spark_submit() -> None:
    """Stopping spark-submit ends only its JVM: without this we would go on leading for ever, without a Spark."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def is_local(master: str) -> bool:
    """On this machine alone: what it has, executors have."""
    return master.startswith("local")


def look_for(master: str) -> None:
    """Spark itself tries a standalone master for a minute, then ends without saying why."""
    if not master.startswith("spark://"):
        return
    troubles = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_LOOK_S).close()
        except (OSError, ValueError) as error:
            troubles.append(f"{address}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise FleetError(f"no Spark at {master}: {'; '.join(troubles)}")


class Shipping:
    """Sends executors on other machines our code, and our packages too unless PYSPARK_PYTHON is set."""

    def __init__(self, *, directory: Path) -> None:
        self._directory = directory
        # If somebody chose a Python for the executors, it has the packages.
        self._with_environment = not os.environ.get("PYSPARK_PYTHON")

    def prepare(self) -> Mapping[str, str]:
        """Before the session: returns options for it. PySpark takes its Python from the environment alone."""
        if not self._with_environment:
            return {}
        # A name, not a path: the driver's JVM and every executor look it up in their own PATH.
        os.environ["PYSPARK_PYTHON"] = pack.PYTHON
        beside_us = str(Path(sys.executable).parent)
        os.environ["PATH"] = os.pathsep.join([beside_us, os.environ.get("PATH", os.defpath)])
        return {"spark.executorEnv.PYTHONPATH": f"environment/{pack.PACKAGES}"}

    def send(self, context: SparkContext) -> None:
        packed = pack.pack(self._directory)
        context.addPyFile(str(packed.code))
        if self._with_environment:
            context.addArchive(f"{packed.environment}#environment")


def show_python_our_code() -> None:
    """A Python that our JVM starts is the same as this one, and finds our code as this one does."""
    os.environ["PYSPARK_PYTHON"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
    path = [item for item in os.environ.get("PYTHONPATH", "").split(os.pathsep) if item]
    if str(_HERE) not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_HERE), *path])
