"""A Spark cluster of real processes on loopback, whose Python has nothing of ours, and what is submitted to it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import venv
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import pyspark

from spark.pack import Packed
from tests.acceptance.fleet_command import Process
from tests.servers.java import QUICK
from tests.servers.local import _running, _wait_for
from tests.servers.ports import free_port
from tests.spark.driver import end_session

PATIENCE_S = 240.0
_SPARK_HOME = Path(pyspark.__file__).parent
_CLASSES = "org.apache.spark.deploy"


class Submitted(Process):
    """spark-submit, which is Java's, and the driver that it has started and ends with."""

    killed: ClassVar[int] = 128 + signal.SIGKILL

    @cached_property
    def pid(self) -> int:
        """Of the driver: Java has other Pythons beside it, and some of them have just ended."""
        found = ["pgrep", "--parent", str(self.popen.pid), "--full", "fleet_job.py"]
        return int(subprocess.run(found, capture_output=True, text=True, check=True).stdout)


@dataclass(frozen=True)
class Cluster:
    master: str
    directory: Path
    environment: Mapping[str, str] = field(repr=False)
    """All that a process of it knows: no path leads to our code or to the packages that the tests run with."""

    @contextmanager
    def submitting(self, packed: Packed, *words: str, **environment: str) -> Iterator[Submitted]:
        """spark-submit, as docs/pipeline.md says it, from the folder that was packed."""
        command = [
            str(_SPARK_HOME / "bin" / "spark-submit"), "--master", self.master,
            "--py-files", packed.code.name, "--archives", f"{packed.environment.name}#environment",
            "--conf", "spark.pyspark.python=./environment/bin/python", packed.job.name, *words,
        ]  # fmt: skip
        log = self.directory / f"submit-{time.monotonic_ns()}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                command, cwd=packed.directory, env={**self.environment, **environment},
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        try:
            yield Submitted(popen, log)
        finally:
            end_session(popen.pid)
            popen.wait()

    def executors(self) -> list[Path]:
        """A folder for each that ran here, of all applications."""
        return sorted((self.directory / "work").glob("app-*/*"))


@contextmanager
def running_cluster(directory: Path) -> Iterator[Cluster]:
    """A master, and a worker with two cores."""
    directory.mkdir()
    venv.create(directory / "python", symlinks=True)
    (directory / "spark-defaults.conf").write_text(
        f"spark.executor.memory 512m\nspark.executor.extraJavaOptions {QUICK}\n"
        f"spark.driver.extraJavaOptions {QUICK}\nspark.ui.enabled false\nspark.log.level WARN\n"
    )
    java = shutil.which("java")
    assert java is not None, "java is not installed; scripts/test installs what the tests need"
    environment = {
        "PATH": os.pathsep.join([str(directory / "python" / "bin"), str(Path(java).parent), "/usr/bin", "/bin"]),
        "HOME": str(directory),
        "SPARK_CONF_DIR": str(directory),
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        "SPARK_LAUNCHER_OPTS": QUICK,
    }
    address = ["--host", "127.0.0.1", "--port", str(free_port())]
    master = f"spark://127.0.0.1:{address[-1]}"
    work = ["--host", "127.0.0.1", "--work-dir", str(directory / "work"), "--cores", "2", "--memory", "1g", master]
    with ExitStack() as stack:
        for name, words, says in (
            ("master.Master", address, "I have been elected leader"),
            ("worker.Worker", work, "Successfully registered with master"),
        ):
            log = directory / f"{name}.log"
            # What surrounds the tests stays outside, their PYTHONPATH first of all.
            shell = ["env", "-i", "-C", str(directory), *(f"{key}={value}" for key, value in environment.items())]
            command = [*shell, str(_SPARK_HOME / "bin" / "spark-class"), f"{_CLASSES}.{name}", *words]
            server = stack.enter_context(_running([*command, "--webui-port", str(free_port())], log))
            _wait_for(server, lambda log=log, says=says: says in log.read_text(errors="replace"))  # type: ignore[misc]
        yield Cluster(master, directory, environment)


def unpack_environment(packed: Packed) -> None:
    """For the driver, which runs where it was submitted."""
    there = packed.directory / "environment"
    there.mkdir(exist_ok=True)
    # As its user does; Debian 12's own Python cannot say `filter` to tarfile, and later ones want it said.
    subprocess.run(["tar", "-xf", packed.environment, "-C", there], check=True)
