"""One line of what Spark says."""

from __future__ import annotations

import pytest

from spark.words import in_a_line

NO_PYTHON = """An error occurred while calling o427.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
Caused by: org.apache.spark.SparkException: Job aborted: java.io.IOException: Cannot run program "python3.11": error=2
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
"""
NO_PACKAGE = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/somewhere/fleet.zip/spark/sources/store.py", line 16, in <module>
ModuleNotFoundError: No module named 'sqlalchemy'
"""
OURS = """Job aborted due to stage failure
fleet.errors.JobStoreUnavailable: job store 127.0.0.1:5432/x: connection refused
\tat org.apache.spark.api.python.BasePythonRunner
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (NO_PYTHON, 'Cannot run program "python3.11": error=2'),
        (NO_PACKAGE, "ModuleNotFoundError: No module named 'sqlalchemy'"),
        (OURS, "fleet.errors.JobStoreUnavailable: job store 127.0.0.1:5432/x: connection refused"),
        ("[NOT_FOUND] no such table\n\nJVM stacktrace:\nCaused by: x", "[NOT_FOUND] no such table"),
        ("An error occurred while calling x.\n: java.lang.Error: a\nCaused by: b.C: d\n", "b.C: d"),
        ("An error occurred while calling x", "An error occurred while calling x"),
        ("", "an error without words"),
    ],
)  # fmt: skip
def test_the_cause_is_named_in_one_line(text: str, line: str) -> None:
    assert in_a_line(text) == line
